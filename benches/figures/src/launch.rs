//! Time, processor time and memory of whole jobs: launched by `shmrun`, by a loop of `posix_spawn`, and by rivals.

use std::io;

use super::chart::{Chart, Kind};
use super::data::Data;
use super::sitting::{Case, Launch, Ran, Sample, Sitting};
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};
use shmem_benches::memory::taken_by;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "launch",
    title: "Launching jobs, by processes, by nodes and by processes of a node",
    of: &[(&works::SCELA, "Fig. 2.5, 2.7"), (&works::PMI, "Fig. 5")],
    rivals: Some("start {n} processes of any program, such as {program}, which says hello"),
    measure,
};

const WALL: &str = "time of the job";
const CPU: &str = "processor time of the job";
const MEMORY: &str = "memory that the machine has less meanwhile";
const OF_A_NODE: &str = "by processes of a node";
const LOOP: &str = "posix_spawn of /bin/true";
const ONE_NODE: &str = "shmrun, one node";
const NODES: &str = "shmrun, 16 PEs a node";

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
    let spawn_loop = shmem_testkit::job::built("spawn-loop")?;
    let spawn_loop = format!("'{}' {{n}} /bin/true", spawn_loop.display());
    let ours = [
        Case::command(LOOP, &spawn_loop),
        Case::ours(ONE_NODE, &[]),
        Case::ours(NODES, &[]),
    ];
    let cases = sitting.with_rivals(ours);
    let sizes = sitting.sizes(&[32, 128, 512], &[16, 64, 256, 1024, 2048, 4096, 8192]);
    let rounds = sitting.by_time(3, 5);
    for pes in sizes {
        sitting.turns(&cases, rounds, |sitting, case| {
            let nodes = if case.name == NODES {
                (pes / 16).max(1)
            } else {
                1
            };
            let run = || hello(sitting, case, pes, nodes);
            // Memory takes seconds to settle before and after.
            let (ran, memory) = match sitting.options.quick {
                true => (run()?, None),
                false => {
                    let (ran, kib) = taken_by(run);
                    (ran?, Some((MEMORY, kib as f64 * 1024.0)))
                }
            };
            let all = [(WALL, ran.wall), (CPU, ran.cpu)].into_iter().chain(memory);
            let sample =
                |(quantity, value): (&str, f64)| (pes.to_string(), quantity.to_owned(), value);
            Ok(all.map(sample).collect::<Vec<Sample>>())
        })?;
    }
    let node_counts: &[usize] = sitting.by_time(&[4, 16], &[4, 16, 64]);
    for &nodes in node_counts {
        for per_node in [1, 2, 4, 8] {
            let pes = nodes * per_node;
            if pes > sitting.options.most.unwrap_or(usize::MAX) {
                continue;
            }
            let case = Case::ours(&format!("{nodes} nodes"), &[]);
            sitting.turns(&[case], rounds, |sitting, case| {
                let ran = hello(sitting, case, pes, nodes)?;
                Ok(vec![(per_node.to_string(), OF_A_NODE.to_owned(), ran.wall)])
            })?;
        }
    }
    let charts = charts(&sitting.data);
    let claims = claims(sitting, &charts);
    Ok(Shown { charts, claims })
}

fn hello(sitting: &Sitting<'_>, case: &Case, pes: usize, nodes: usize) -> io::Result<Ran> {
    let launch = Launch {
        pes,
        nodes,
        program: "examples/hello",
        arguments: String::new(),
    };
    sitting.run(case, &launch)
}

fn charts(data: &Data) -> Vec<Chart> {
    let lines = |name, title, places, quantity, unit| {
        data.chart(name, title, places, quantity, unit, Kind::Lines)
    };
    vec![
        lines(
            "wall",
            "Hello world, the whole job",
            "processes",
            WALL,
            Unit::Seconds,
        ),
        lines(
            "cpu",
            "Processor time of all its processes",
            "processes",
            CPU,
            Unit::Seconds,
        ),
        lines(
            "memory",
            "Memory that the machine has less meanwhile",
            "processes",
            MEMORY,
            Unit::Bytes,
        ),
        lines(
            "per-node",
            "Hello world, by processes of a node",
            "processes of a node",
            OF_A_NODE,
            Unit::Seconds,
        ),
    ]
}

fn claims(sitting: &Sitting<'_>, charts: &[Chart]) -> Vec<Claim> {
    let data = &sitting.data;
    let growth = || {
        let series = charts[3].series.last()?;
        let (first, last) = (
            series.values.first()?.as_ref()?,
            series.values.last()?.as_ref()?,
        );
        let [one, eight] = [first, last].map(|v| Unit::Seconds.show(v.median));
        Some(format!(
            "{}: {one} with one process a node, {eight} with eight",
            series.name
        ))
    };
    let last = data.places(WALL).last().cloned().unwrap_or_default();
    let rivals = || {
        let ours = data.median(ONE_NODE, &last, WALL)?;
        let each = sitting.rivals().filter_map(|rival| {
            let ratio = data.median(&rival.name, &last, WALL)? / ours;
            Some(format!(
                "{} takes {} times as long, at {last}",
                rival.name,
                Unit::Count.show(ratio)
            ))
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| each.join("; "))
    };
    vec![
        Claim::new(
            "Fig. 2.5(d)",
            "spawning takes about 0.5 s with agents for 1 to 8 processes a node on 64 nodes, and 1 s to 6.7 s without",
            growth(),
            "whole jobs, of which spawning is a part; more processes have no more cores here",
        ),
        Claim::new(
            "Fig. 2.7",
            "hello on 10,240 cores: 25 s with agents, 185 s without",
            data.median(NODES, &last, WALL)
                .map(|wall| format!("{} for {last} processes", Unit::Seconds.show(wall))),
            "all on one machine, without a remote shell",
        ),
        Claim::new(
            "Fig. 5",
            "Hydra's PMI-2 launches slightly faster than Open MPI's ORTE, up to 796 cores",
            rivals(),
            "launchers that `--vs` names, beside ours on one node; none were given if there is a dash",
        ),
    ]
}
