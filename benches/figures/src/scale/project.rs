//! What the model is asked: the jobs that were measured, and those that cannot be.

use std::io;

use shmem::plans;
use shmem_node::waiting::Collective;

use super::super::sitting::{ON_DEMAND, STATIC, Sitting};
use super::PER_NODE;
use super::jobs::{CONNECTIONS, HELLO, INIT, MEMORY, measured, place};
use shmem_model::scale::fit::Fit;
use shmem_model::scale::{Connect, Machine, Outcome, Scope, Shape, memory, run};

/// Cores of a node of the cluster of the model: one for each PE, as in the paper.
const CORES: usize = PER_NODE as usize;

pub(super) fn model_of(series: &str) -> String {
    format!("{series}, by the model")
}

/// Has the model do what was measured.
pub(super) fn check(
    sitting: &mut Sitting<'_>,
    fitted: &Fit,
    cores: usize,
    jobs: &[(u32, u32)],
) -> io::Result<()> {
    for &job in jobs {
        for series in [ON_DEMAND, STATIC] {
            let Some(measured) = measured(sitting, series, job) else {
                continue;
            };
            let shape = measured.shape(cores);
            let outcome = run(shape, fitted.costs);
            let each = outcome.connections_of_a_pe(&shape);
            let place = place(job.0, job.1);
            for (quantity, value) in [
                (HELLO, outcome.hello / 1e9),
                (INIT, outcome.init / 1e9),
                (MEMORY, memory::of_all_pes(&fitted.memory, &shape, each)),
                (CONNECTIONS, outcome.connections as f64),
            ] {
                sitting.keep(&model_of(series), &place, quantity, 0, value)?;
            }
        }
    }
    Ok(())
}

pub(super) const CLUSTER_INIT: &str = "init on a cluster, in virtual time";
pub(super) const CLUSTER_HELLO: &str = "hello on a cluster, in virtual time";
pub(super) const HERE_INIT: &str = "init on this machine, in virtual time";
pub(super) const HERE_HELLO: &str = "hello on this machine, in virtual time";
pub(super) const BY_DEGREE: &str = "hello on a cluster by the degree of the tree, in virtual time";
pub(super) const OF_A_PE: &str = "connections of a PE, mean, in the model";
pub(super) const PE_MEMORY: &str = "memory of a PE on a cluster, in the model";
pub(super) const NODE_MEMORY: &str = "memory of a node on a cluster, in the model";

/// Static connections where they take longest.
pub(super) const SLOW: &str = "static, slow queue pairs";

/// Nanoseconds that a queue pair takes there: KRCORE makes a connection in 10 µs, and calls that hundreds or thousands of
/// times faster than verbs, of which each side has half.
const SLOWEST: f64 = 10e6 / 2.0;

/// The largest job that is run in the model with static connections: a PE of a larger one has more queue pairs than a device
/// has for all of a node.
const MOST_STATIC: u32 = 65_536;

/// Has the model do what cannot be measured.
pub(super) fn project(sitting: &mut Sitting<'_>, fitted: &Fit) -> io::Result<()> {
    let quick = vec![1024, 8192, 65_536, 1_048_576];
    let full = vec![1024, 2048, 4096, 8192, 16_384, 65_536, 262_144, 1_048_576];
    let sizes: Vec<u32> = sitting.by_time(quick, full);
    let costs = fitted.costs.on_infiniband();
    let unit = memory::Unit {
        queue_pair: memory::DEVICE_QUEUE_PAIR,
        ..fitted.memory
    };
    let cluster = |pes: u32, connect, degree, costs| {
        let shape = Shape {
            nodes: pes / PER_NODE,
            per_node: PER_NODE,
            degree,
            connect,
            scope: Scope::Path,
            machine: Machine::Cluster(CORES),
        };
        (shape, run(shape, costs))
    };
    for &pes in &sizes {
        let place = pes.to_string();
        for (series, connect, costs) in [
            (STATIC, Connect::Static, costs),
            (SLOW, Connect::Static, costs.with_queue_pairs(SLOWEST)),
            (ON_DEMAND, Connect::OnDemand, costs),
        ] {
            let most = sitting.by_time(8192, MOST_STATIC);
            if connect == Connect::Static && pes > most {
                continue;
            }
            let (shape, outcome) = cluster(pes, connect, None, costs);
            let each = outcome.connections_of_a_pe(&shape);
            for (quantity, value) in [
                (CLUSTER_INIT, outcome.init / 1e9),
                (CLUSTER_HELLO, outcome.hello / 1e9),
                (OF_A_PE, each),
                (PE_MEMORY, memory::of_a_pe(&unit, each)),
                (NODE_MEMORY, memory::of_a_node(&unit, &shape, each)),
            ] {
                sitting.keep(series, &place, quantity, 0, value)?;
            }
        }
        for (program, each) in programs(pes) {
            sitting.keep(&program, &place, OF_A_PE, 0, each)?;
        }
        let quick: &[u32] = if pes > 65_536 { &[] } else { &[2, 64] };
        let degrees = sitting.by_time(quick, &[2, 16, 64, 256]);
        for &degree in degrees {
            let (_, outcome) = cluster(pes, Connect::OnDemand, Some(degree), costs);
            let series = format!("degree {degree}");
            sitting.keep(&series, &place, BY_DEGREE, 0, outcome.hello / 1e9)?;
        }
        if let Some(hello) = sitting.data.median(ON_DEMAND, &place, CLUSTER_HELLO) {
            sitting.keep("degree that shmrun chooses", &place, BY_DEGREE, 0, hello)?;
        }
    }
    // Static beyond what memory allows here.
    let cores = std::thread::available_parallelism()?.get();
    let here: &[u32] = sitting.by_time(&[8192], &[1024, 2048, 4096, 8192]);
    for &pes in here {
        for (series, connect) in [(STATIC, Connect::Static), (ON_DEMAND, Connect::OnDemand)] {
            let shape = Shape {
                nodes: pes / PER_NODE,
                per_node: PER_NODE,
                degree: None,
                connect,
                scope: Scope::All,
                machine: Machine::Emulating(cores),
            };
            let Outcome { init, hello, .. } = run(shape, fitted.costs);
            let place = pes.to_string();
            sitting.keep(series, &place, HERE_INIT, 0, init / 1e9)?;
            sitting.keep(series, &place, HERE_HELLO, 0, hello / 1e9)?;
        }
    }
    Ok(())
}

/// Connections of a PE of programs that use collectives, mean: by the plans that the runtime follows.
fn programs(pes: u32) -> Vec<(String, f64)> {
    let places = plans::Places {
        nodes: (pes / PER_NODE) as usize,
        per_node: PER_NODE as usize,
    };
    // All nodes are alike but for the ends of trees: some hundred tell the mean.
    let step = places.nodes.div_ceil(256).max(1) | 1;
    let mean = |calls: &[(Collective, usize)]| {
        let nodes: Vec<usize> = (0..places.nodes).step_by(step).collect();
        let partners = nodes.iter().map(|&node| {
            let all = calls
                .iter()
                .flat_map(|&(call, bytes)| plans::partners(call, bytes, places, node));
            all.collect::<std::collections::BTreeSet<_>>().len()
        });
        let sum: usize = partners.sum();
        sum as f64 / nodes.len() as f64 / f64::from(PER_NODE)
    };
    let calls = [
        (Collective::Barrier, 0),
        (Collective::Broadcast, 1 << 20),
        (Collective::Reduce, 8),
        (Collective::Reduce, 1 << 20),
        (Collective::Fcollect, 8),
    ];
    vec![("all collectives but alltoall".to_owned(), mean(&calls))]
}
