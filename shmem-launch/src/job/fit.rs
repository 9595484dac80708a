//! Whether a machine has room for its part of a job.

use std::time::Duration;

use shmem_node::settings::{HeapCommit, Settings};
use shmem_node::template::marker::StaticsRoom;

use super::JobError;
use crate::frame::InputTo;
use crate::limits::{self, Demand};
use crate::memory::{self, Need};
use crate::plan::Layout;

/// What PEs on one machine need of its memory.
fn need(pes: u32, nodes: u32, settings: &Settings, statics: StaticsRoom, heap_size: u64) -> Need {
    Need {
        pes: pes.into(),
        nodes: nodes.into(),
        heap_size,
        statics: statics.bytes,
        heap_commit: settings.heap_commit,
        heap_pages: settings.heap_pages,
    }
}

/// What the part of a job with this layout starts on its machine, if it is the whole job and has PMI.
pub(crate) fn demand(here: &Layout, degree: u32, input: InputTo) -> Demand {
    Demand {
        pes: here.n_pes(),
        nodes: here.n_nodes(),
        max_per_node: here.max_per_node(),
        children: degree,
        inputs: input.most(here.max_per_node()),
        several: here.n_nodes() > 1,
        pmix: false,
        shells: 0,
        launcher: 0,
    }
}

/// Whether the part of a job that runs on this machine fits there.
pub(crate) fn check_machine(
    demand: &Demand,
    settings: &Settings,
    statics: StaticsRoom,
    heap: u64,
) -> Result<(), JobError> {
    if let Some(machine) = memory::Machine::read() {
        let need = need(demand.pes, demand.nodes, settings, statics, heap);
        memory::check(need, machine)?;
    }
    limits::check(demand, &limits::read(demand.tasks()))?;
    Ok(())
}

/// How long an agent may take to make its node, during which it says nothing. Nearly always that takes no
/// time, but memory that is reserved takes a second for some GB, and many nodes of a machine wait for each other.
pub(super) fn preparation(settings: &Settings, layout: &Layout, one_machine: bool) -> Duration {
    const LEAST: Duration = Duration::from_secs(40);
    const NODE: Duration = Duration::from_millis(50);
    const BYTES_PER_MS: u64 = 256 << 10;
    let (pes, nodes) = match one_machine {
        true => (layout.n_pes(), layout.n_nodes()),
        false => (layout.max_per_node(), 1),
    };
    let reserved = match settings.heap_commit {
        HeapCommit::Lazy => 0,
        HeapCommit::Reserve => settings.symmetric_size.saturating_mul(pes.into()),
    };
    LEAST + NODE * nodes + Duration::from_millis(reserved / BYTES_PER_MS)
}
