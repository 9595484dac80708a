//! The jobs of this machine that the model is fitted to, or held against: what is measured of them, and what of that is
//! used.

use std::io;

use super::super::sitting::{Case, Launch, ON_DEMAND, STATIC, Sample, Sitting};
use super::PER_NODE;
use shmem_benches::cpu::machine_busy;
use shmem_model::scale::Connect;
use shmem_model::scale::costs::INFINIBAND;
use shmem_model::scale::fit::{Fit, Measured, fit};

/// Jobs that costs are fitted to: PEs, nodes.
pub(super) const FITTED: [(u32, u32); 6] = [
    (64, 4),
    (64, 16),
    (128, 8),
    (256, 16),
    (256, 64),
    (1024, 64),
];

/// Those of them that they are fitted to with static connections, too.
pub(super) const FITTED_STATIC: [(u32, u32); 2] = [(128, 8), (256, 16)];

/// Whether costs are fitted to a job.
pub(super) fn is_fitted(series: &str, job: (u32, u32)) -> bool {
    match series {
        STATIC => FITTED_STATIC.contains(&job),
        _ => FITTED.contains(&job),
    }
}

pub(super) const WALL: &str = "hello, from the start of the launcher to its end, as it was";
pub(super) const OTHERS: &str = "processor time that other processes had meanwhile";
pub(super) const HELLO: &str = "hello, less what other processes had of the cores";
pub(super) const INIT: &str = "init, mean of the PEs, likewise";
pub(super) const MEMORY: &str = "proportional memory of all PEs at the end";
pub(super) const CONNECTIONS: &str = "connections of all PEs";

/// Figures of processor time and the like that only the fit needs.
const CPU: &str = "processor time of all processes";
const AGENTS: &str = "processor time of all agents";
const OF_PES: &str = "processor time of all PEs";
const IN_INIT: &str = "processor time of a PE in init, mean";
const ENDPOINT: &str = "processor time of a PE in init until it has its endpoint, mean";
const MESSAGES: &str = "messages of handshakes, of all PEs";
const IN_FINALIZE: &str = "processor time of a PE in finalize, mean";

/// All that is measured.
const QUANTITIES: [&str; 13] = [
    HELLO,
    INIT,
    MEMORY,
    CONNECTIONS,
    CPU,
    AGENTS,
    OF_PES,
    IN_INIT,
    ENDPOINT,
    IN_FINALIZE,
    MESSAGES,
    WALL,
    OTHERS,
];

/// Runs the jobs; gives which.
///
/// # Errors
/// As for [`Sitting::turns`].
pub(super) fn run_all(sitting: &mut Sitting<'_>) -> io::Result<Vec<(u32, u32)>> {
    let sizes: Vec<u32> = sitting
        .sizes(
            &[64, 128, 256, 512],
            &[64, 128, 256, 512, 1024, 2048, 4096, 8192],
        )
        .into_iter()
        .map(|pes| pes as u32)
        .collect();
    let statics: &[u32] = sitting.by_time(&[64, 128, 256], &[64, 128, 256, 512, 1024]);
    let mut jobs: Vec<(u32, u32)> = FITTED.to_vec();
    jobs.extend(sizes.iter().map(|&pes| (pes, pes / PER_NODE)));
    jobs.retain(|&(pes, _)| pes as usize <= sitting.options.most.unwrap_or(usize::MAX));
    jobs.sort_unstable();
    jobs.dedup();
    for &(pes, nodes) in &jobs {
        let mut cases = vec![Case::on_demand()];
        if nodes == pes / PER_NODE && statics.contains(&pes) {
            cases.push(Case::fully_connected());
        }
        // Large ones take long, and differ less.
        let rounds = match pes {
            0..=256 => sitting.by_time(5, 9),
            257..=1024 => sitting.by_time(3, 5),
            _ => 3,
        };
        let one = |sitting: &Sitting<'_>, case: &Case| samples(sitting, case, pes, nodes);
        sitting.turns(&cases[..1], rounds, one)?;
        match &cases[1..] {
            [] => {}
            fully if pes <= 128 => sitting.turns(fully, rounds, one)?,
            // These take a minute each, and are not warmer for it.
            fully => {
                for _ in 0..sitting.by_time(1, 2) {
                    sitting.once(fully, one)?;
                }
            }
        }
        for case in &cases {
            keep_quickest(sitting, &case.name, &place(pes, nodes))?;
        }
        if let Some(next) = statics.iter().find(|&&next| next > pes) {
            mind_memory(sitting, (pes, nodes), *next);
        }
    }
    Ok(jobs)
}

/// Where a job is found among the samples.
pub(super) fn place(pes: u32, nodes: u32) -> String {
    match nodes == pes / PER_NODE {
        true => pes.to_string(),
        false => format!("{pes} on {nodes} nodes"),
    }
}

fn samples(sitting: &Sitting<'_>, case: &Case, pes: u32, nodes: u32) -> io::Result<Vec<Sample>> {
    let launch = Launch {
        pes: pes as usize,
        nodes: nodes as usize,
        program: "examples/hello",
        arguments: String::new(),
    };
    let before = machine_busy()?;
    let ran = sitting.run(case, &launch)?;
    // Cores that others had were none of the job's.
    let others = (machine_busy()? - before).as_secs_f64() - ran.cpu;
    let cores = std::thread::available_parallelism()?.get() as f64;
    let hello = (ran.wall - others.max(0.0) / cores).max(ran.cpu / cores);
    let missing = || io::Error::other("a job without a report");
    let report = ran.report.as_ref().ok_or_else(missing)?;
    let find = |name: &str| report.find(name).ok_or_else(missing);
    let seconds = |name: &str| Ok::<_, io::Error>(find(name)?.mean / 1e9);
    let own = |ns: Option<f64>| ns.map(|ns| ns / 1e9).ok_or_else(missing);
    let endpoint = [
        "init: map segment CPU",
        "init: UD endpoint CPU",
        "init: start allgather CPU",
    ];
    let endpoint = endpoint.into_iter().map(seconds).sum::<io::Result<f64>>()?;
    let all = [
        (HELLO, hello),
        (INIT, seconds("init wall")? * hello / ran.wall),
        (MEMORY, find("proportional memory")?.sum),
        // Both ends count it.
        (CONNECTIONS, find("connections")?.sum / 2.0),
        (CPU, ran.cpu),
        (AGENTS, own(report.agents_cpu())?),
        (OF_PES, own(report.processes_cpu())?),
        (IN_INIT, seconds("init CPU")?),
        (ENDPOINT, endpoint),
        (IN_FINALIZE, seconds("finalize CPU")?),
        (MESSAGES, find("connection messages sent")?.sum),
        (WALL, ran.wall),
        (OTHERS, others),
    ];
    let place = place(pes, nodes);
    let sample = |(quantity, value): (&str, f64)| (place.clone(), quantity.to_owned(), value);
    Ok(all.into_iter().map(sample).collect())
}

/// Keeps what the round has shown that was disturbed least, and so was quickest: others use the machine, too, and the model
/// knows nothing of them.
fn keep_quickest(sitting: &mut Sitting<'_>, series: &str, place: &str) -> io::Result<()> {
    let walls = sitting.data.samples(series, place, WALL);
    let by_time = (0..walls.len()).min_by(|&a, &b| walls[a].total_cmp(&walls[b]));
    let Some(round) = by_time else { return Ok(()) };
    for quantity in QUANTITIES {
        let samples = sitting.data.samples(series, place, quantity);
        if let Some(&value) = samples.get(round) {
            sitting.keep(&quickest(series), place, quantity, round, value)?;
        }
    }
    Ok(())
}

pub(super) fn quickest(series: &str) -> String {
    format!("{series}, quickest round")
}

/// Leaves out static jobs for which there is no memory, or no time.
fn mind_memory(sitting: &mut Sitting<'_>, (pes, nodes): (u32, u32), next: u32) {
    let place = place(pes, nodes);
    let of = |quantity| sitting.data.median(STATIC, &place, quantity);
    if let (Some(memory), Some(wall)) = (of(MEMORY), of(HELLO)) {
        sitting.mind_the_square(memory, wall, f64::from(next) / f64::from(pes));
    }
}

pub(super) fn measured(
    sitting: &Sitting<'_>,
    series: &str,
    (pes, nodes): (u32, u32),
) -> Option<Measured> {
    let place = place(pes, nodes);
    let of = |quantity| sitting.data.median(&quickest(series), &place, quantity);
    let ns = |quantity| of(quantity).map(|seconds| seconds * 1e9);
    Some(Measured {
        pes,
        nodes,
        connect: match series {
            STATIC => Connect::Static,
            _ => Connect::OnDemand,
        },
        hello: ns(HELLO)?,
        init: ns(INIT)?,
        cpu: ns(CPU)?,
        agents: ns(AGENTS)?,
        of_pes: ns(OF_PES)?,
        endpoint: ns(ENDPOINT)?,
        in_init: ns(IN_INIT)?,
        in_finalize: ns(IN_FINALIZE)?,
        memory: of(MEMORY)?,
        messages: of(MESSAGES)?,
    })
}

/// Fits costs, and keeps them with the samples that they come from.
pub(super) fn fitted(sitting: &mut Sitting<'_>, cores: usize) -> io::Result<Fit> {
    let jobs: Vec<Measured> = [ON_DEMAND, STATIC]
        .into_iter()
        .flat_map(|series| FITTED.map(|job| (series, job)))
        .filter(|&(series, job)| is_fitted(series, job))
        .filter_map(|(series, job)| measured(sitting, series, job))
        .collect();
    let fitted = fit(&jobs, cores).map_err(io::Error::other)?;
    let costs: Vec<_> = fitted.costs.named().collect();
    for (name, value) in costs {
        sitting.keep("fitted", name, "cost in nanoseconds", 0, value)?;
    }
    for (name, value) in [
        ("program", fitted.memory.program),
        ("PE", fitted.memory.pe),
        ("queue pair", fitted.memory.queue_pair),
    ] {
        sitting.keep("fitted", name, "memory in bytes", 0, value)?;
    }
    sitting.keep(
        "fitted",
        "pace",
        "wall time for processor time",
        0,
        fitted.pace,
    )?;
    for published in INFINIBAND {
        let (name, value) = (published.name, published.value);
        sitting.keep("published", name, "cost in nanoseconds", 0, value)?;
    }
    Ok(fitted)
}
