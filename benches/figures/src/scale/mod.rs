//! Start-up of jobs up to a million PEs, in virtual time: a model of whole jobs whose costs come from a few small jobs of
//! this machine, held against jobs that they do not come from.

mod claims;
mod jobs;
mod project;

use std::io;

use super::chart::Kind;
use super::sitting::Sitting;
use super::unit::Unit;
use super::{Figure, Shown, works};
use jobs::{CONNECTIONS, HELLO, INIT, MEMORY};
use project::{
    BY_DEGREE, CLUSTER_HELLO, CLUSTER_INIT, HERE_HELLO, HERE_INIT, NODE_MEMORY, OF_A_PE, PE_MEMORY,
};
use shmem_model::scale::fit::Fit;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "scale",
    title: "Init, hello, memory and connections of up to a million PEs, by a model in virtual time",
    of: &[
        (&works::ON_DEMAND, "Fig. 1, 5(a), 9"),
        (&works::SCELA, "Fig. 2.5"),
    ],
    rivals: None,
    measure,
};

/// PEs of a node, as in the paper.
const PER_NODE: u32 = 16;

/// What is measured and modelled, with the file of its chart, its title and its unit.
const COMPARED: [(&str, &str, &str, Unit); 4] = [
    (HELLO, "check-hello", "hello", Unit::Seconds),
    (INIT, "check-init", "init", Unit::Seconds),
    (MEMORY, "check-memory", "memory", Unit::Bytes),
    (CONNECTIONS, "check-connections", "connections", Unit::Count),
];

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
    let jobs = jobs::run_all(sitting)?;
    let cores = std::thread::available_parallelism()?.get();
    let fitted = jobs::fitted(sitting, cores)?;
    project::check(sitting, &fitted, cores, &jobs)?;
    project::project(sitting, &fitted)?;
    Ok(shown(sitting, &fitted))
}

fn shown(sitting: &Sitting<'_>, fitted: &Fit) -> Shown {
    let data = &sitting.data;
    let lines = |name, title: &str, quantity, unit| {
        data.chart(name, title, "PEs", quantity, unit, Kind::Lines)
    };
    let mut charts: Vec<_> = COMPARED
        .into_iter()
        .map(|(quantity, name, what, unit)| {
            let title =
                format!("On this machine: {what} as measured, and by the model in virtual time");
            data.chart(name, &title, "PEs", quantity, unit, Kind::Bars)
        })
        .collect();
    charts.extend([
        lines(
            "init",
            "Init on a cluster, 16 PEs a node: virtual time",
            CLUSTER_INIT,
            Unit::Seconds,
        ),
        lines(
            "hello",
            "Hello on a cluster, 16 PEs a node: virtual time",
            CLUSTER_HELLO,
            Unit::Seconds,
        ),
        lines(
            "degree",
            "Hello on a cluster by the degree of the launch tree: virtual time",
            BY_DEGREE,
            Unit::Seconds,
        ),
        lines(
            "connections",
            "Connections of a PE, mean: counted in the model",
            OF_A_PE,
            Unit::Count,
        ),
        lines(
            "memory-pe",
            "Memory of a PE on a cluster, by the model",
            PE_MEMORY,
            Unit::Bytes,
        ),
        lines(
            "memory-node",
            "Memory of a node on a cluster, by the model",
            NODE_MEMORY,
            Unit::Bytes,
        ),
        lines(
            "here-init",
            "Init on this machine, which emulates all nodes: virtual time",
            HERE_INIT,
            Unit::Seconds,
        ),
        lines(
            "here-hello",
            "Hello on this machine, which emulates all nodes: virtual time",
            HERE_HELLO,
            Unit::Seconds,
        ),
    ]);
    Shown {
        claims: claims::claims(sitting, fitted),
        charts,
    }
}
