//! Start-up of jobs up to a million PEs, in virtual time: a model of whole jobs whose costs come from a few small jobs of
//! this machine, held against jobs that they do not come from.

use std::io;

use npb_ports::kernels::KERNELS;
use shmem::plans;
use shmem_node::waiting::Collective;

use super::chart::Kind;
use super::sitting::{Case, Launch, ON_DEMAND, STATIC, Sample, Sitting};
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};
use crate::cpu::machine_busy;
use crate::scale::costs::INFINIBAND;
use crate::scale::fit::{Fit, Measured, fit};
use crate::scale::{Connect, Machine, Outcome, Scope, Shape, memory, run};

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "scale",
    title: "Init, hello, memory and connections of up to a million PEs, by a model in virtual time",
    of: &[(&works::ON_DEMAND, "Fig. 1, 5(a), 9"), (&works::SCELA, "Fig. 2.5")],
    rivals: None,
    measure,
};

const PER_NODE: u32 = 16;

/// Cores of a node of the cluster of the model: one for each PE, as in the paper.
const CORES: usize = PER_NODE as usize;

/// Jobs that costs are fitted to: PEs, nodes.
const FITTED: [(u32, u32); 6] = [
    (64, 4),
    (64, 16),
    (128, 8),
    (256, 16),
    (256, 64),
    (1024, 64),
];

/// Those of them that they are fitted to with static connections, too.
const FITTED_STATIC: [(u32, u32); 2] = [(128, 8), (256, 16)];

/// Whether costs are fitted to a job.
fn is_fitted(series: &str, job: (u32, u32)) -> bool {
    match series {
        STATIC => FITTED_STATIC.contains(&job),
        _ => FITTED.contains(&job),
    }
}

const WALL: &str = "hello, from the start of the launcher to its end, as it was";
const OTHERS: &str = "processor time that other processes had meanwhile";
const HELLO: &str = "hello, less what other processes had of the cores";
const INIT: &str = "init, mean of the PEs, likewise";
const MEMORY: &str = "proportional memory of all PEs at the end";
const CONNECTIONS: &str = "connections of all PEs";

/// What is measured and modelled, with the file of its chart, its title and its unit.
const COMPARED: [(&str, &str, &str, Unit); 4] = [
    (HELLO, "check-hello", "hello", Unit::Seconds),
    (INIT, "check-init", "init", Unit::Seconds),
    (MEMORY, "check-memory", "memory", Unit::Bytes),
    (CONNECTIONS, "check-connections", "connections", Unit::Count),
];

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

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
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
        sitting.turns(&cases[..1], rounds, |sitting, case| {
            samples(sitting, case, pes, nodes)
        })?;
        if let [_, fully] = &cases[..] {
            let rounds = if pes > 128 { 1 } else { rounds };
            sitting.turns(std::slice::from_ref(fully), rounds, |sitting, case| {
                samples(sitting, case, pes, nodes)
            })?;
        }
        for case in &cases {
            keep_quickest(sitting, &case.name, &place(pes, nodes))?;
        }
        if let Some(next) = statics.iter().find(|&&next| next > pes) {
            mind_memory(sitting, (pes, nodes), *next);
        }
    }
    let cores = std::thread::available_parallelism()?.get();
    let fitted = fitted(sitting, cores)?;
    check(sitting, &fitted, cores, &jobs)?;
    project(sitting, &fitted)?;
    Ok(shown(sitting, &fitted))
}

/// Where a job is found among the samples.
fn place(pes: u32, nodes: u32) -> String {
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

fn quickest(series: &str) -> String {
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

fn measured(sitting: &Sitting<'_>, series: &str, (pes, nodes): (u32, u32)) -> Option<Measured> {
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
fn fitted(sitting: &mut Sitting<'_>, cores: usize) -> io::Result<Fit> {
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
    sitting.keep("fitted", "pace", "wall time for processor time", 0, fitted.pace)?;
    for published in INFINIBAND {
        let (name, value) = (published.name, published.value);
        sitting.keep("published", name, "cost in nanoseconds", 0, value)?;
    }
    Ok(fitted)
}

fn model_of(series: &str) -> String {
    format!("{series}, by the model")
}

/// Has the model do what was measured.
fn check(
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

const CLUSTER_INIT: &str = "init on a cluster, in virtual time";
const CLUSTER_HELLO: &str = "hello on a cluster, in virtual time";
const HERE_INIT: &str = "init on this machine, in virtual time";
const HERE_HELLO: &str = "hello on this machine, in virtual time";
const BY_DEGREE: &str = "hello on a cluster by the degree of the tree, in virtual time";
const OF_A_PE: &str = "connections of a PE, mean, in the model";
const PE_MEMORY: &str = "memory of a PE on a cluster, in the model";
const NODE_MEMORY: &str = "memory of a node on a cluster, in the model";

/// Static connections where they take longest.
const SLOW: &str = "static, slow queue pairs";

/// Nanoseconds that a queue pair takes there: KRCORE makes a connection in 10 µs, and calls that hundreds or thousands of
/// times faster than verbs, of which each side has half.
const SLOWEST: f64 = 10e6 / 2.0;

/// The largest job that is run in the model with static connections: a PE of a larger one has more queue pairs than a device
/// has for all of a node.
const MOST_STATIC: u32 = 65_536;

/// Has the model do what cannot be measured.
fn project(sitting: &mut Sitting<'_>, fitted: &Fit) -> io::Result<()> {
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
            if connect == Connect::Static && pes > MOST_STATIC {
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
        let degrees: &[u32] = sitting.by_time(&[2, 64], &[2, 16, 64, 256]);
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
        one_machine: false,
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
        claims: claims(sitting, fitted),
        charts,
    }
}

/// How far the model is off at each size that costs were not fitted to, and how far at most.
fn errors(sitting: &Sitting<'_>, series: &str, quantity: &str) -> Option<String> {
    let data = &sitting.data;
    let fitted = FITTED.iter().filter(|&&job| is_fitted(series, job));
    let fitted: Vec<String> = fitted.map(|&(pes, nodes)| place(pes, nodes)).collect();
    let mut worst: f64 = 0.0;
    let each: Vec<String> = data
        .places(quantity)
        .iter()
        .filter(|place| !fitted.contains(place))
        .filter_map(|place| {
            let measured = data.median(&quickest(series), place, quantity)?;
            let model = data.median(&model_of(series), place, quantity)?;
            let off = model / measured - 1.0;
            worst = worst.max(off.abs());
            Some(format!("{place}: {:+.1} %", off * 100.0))
        })
        .collect();
    let most = Unit::Part.show(worst);
    (!each.is_empty()).then(|| format!("{}; at most {most}", each.join(", ")))
}

/// Between what the rounds of the largest job were, if they differ.
fn range(sitting: &Sitting<'_>, series: &str, quantity: &str, unit: Unit) -> Option<String> {
    let data = &sitting.data;
    let samples = |place: &String| data.samples(series, place, quantity).to_vec();
    let places = data.places(quantity);
    let place = places.iter().rev().find(|place| samples(place).len() > 1)?;
    let all = samples(place);
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(0.0, f64::max);
    let [from, to] = [low, high].map(|value| unit.show(value));
    (from != to).then(|| format!("rounds of {place} were {from} to {to}"))
}

fn claims(sitting: &Sitting<'_>, fitted: &Fit) -> Vec<Claim> {
    let data = &sitting.data;
    let mut claims = Vec::new();
    let from = FITTED.map(|(pes, nodes)| format!("{pes} on {nodes}"));
    let from = format!(
        "costs come from other jobs, of {} nodes; pace {}",
        from.join(", "),
        Unit::Count.show(fitted.pace)
    );
    for series in [ON_DEMAND, STATIC] {
        for (quantity, _, what, unit) in COMPARED {
            let differs = match range(sitting, series, quantity, unit) {
                Some(range) => format!("{from}; {range}"),
                None => from.clone(),
            };
            claims.push(Claim::new(
                "–",
                &format!("{what}, {series}: the model is within 25 % of what is measured"),
                errors(sitting, series, quantity),
                &differs,
            ));
        }
    }
    let ratio = |quantity: &str| {
        let of = |series| data.median(series, "8192", quantity);
        of(STATIC).zip(of(ON_DEMAND)).map(|(a, b)| a / b)
    };
    let both = |here: &str, there: &str| {
        let slow = data.median(SLOW, "8192", there)? / data.median(ON_DEMAND, "8192", there)?;
        let [here, there, slow] =
            [ratio(here)?, ratio(there)?, slow].map(|r| Unit::Count.show(r));
        Some(format!(
            "{here} times on this machine; on a cluster {there} times, and {slow} times with slow queue pairs"
        ))
    };
    let virtual_time = "virtual time; costs of queue pairs and network on a cluster are published ones";
    let spared = |series: &str| {
        let each = data.median(series, "1024", OF_A_PE)?;
        let all = data.median(STATIC, "1024", OF_A_PE)?;
        Some(Unit::Part.show(1.0 - each / all))
    };
    let kernels = KERNELS.iter().filter(|k| k.name != "FT" && k.name != "IS");
    let kernels: Vec<String> = kernels
        .map(|kernel| {
            let part = 1.0 - kernel.peers(1024, 1024).mean() / 1023.0;
            format!("{} {}", kernel.name, Unit::Part.show(part))
        })
        .collect();
    let fewer = || {
        Some(format!(
            "hello {}, all collectives but alltoall {}; each PE on a node of its own: {}",
            spared(ON_DEMAND)?,
            spared("all collectives but alltoall")?,
            kernels.join(", ")
        ))
    };
    claims.extend([
        Claim::new(
            "Fig. 5(a), init",
            "static takes nearly 30 times as long, at 8,192",
            both(HERE_INIT, CLUSTER_INIT),
            virtual_time,
        ),
        Claim::new(
            "Fig. 5(a), hello",
            "static takes 8.3 times as long, at 8,192",
            both(HERE_HELLO, CLUSTER_HELLO),
            virtual_time,
        ),
        Claim::new(
            "Fig. 9",
            "more than 90 % fewer endpoints than static at 1,024",
            fewer(),
            "counts: of the model, of the runtime's plans, and of the model of the benchmarks",
        ),
    ]);
    claims
}
