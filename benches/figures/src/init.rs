//! Init and hello: all connections made in init against connections on demand, by the number of PEs.

use std::io;

use super::chart::{Chart, Kind};
use super::data::Data;
use super::sitting::{Case, Launch, ON_DEMAND, STATIC, Sample, Sitting};
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "init",
    title: "Init and hello, static against on demand",
    of: &[
        (&works::ON_DEMAND, "Fig. 1, 5(a), 5(b)"),
        (&works::NON_BLOCKING_PMI, "Fig. 1, 10"),
    ],
    rivals: Some("start {n} processes of any program, such as {program}, which says hello"),
    measure,
};

/// PEs of a node, as in the paper.
const PER_NODE: usize = 16;

/// Parts of init: figures of the report, and what they are called here.
const PARTS: [(&str, &str); 6] = [
    ("init: map segment wall", "memory"),
    ("init: UD endpoint wall", "endpoint"),
    ("init: start allgather wall", "PMI"),
    ("init: register heap wall", "registration"),
    ("init: static connections wall", "connections"),
    ("init: node barrier wall", "barrier of the node"),
];
const OTHER: &str = "other";

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
    let cases = sitting.with_rivals([Case::fully_connected(), Case::on_demand()]);
    let sizes = sitting.sizes(
        &[32, 64, 128],
        &[32, 64, 128, 256, 512, 1024, 2048, 4096, 8192],
    );
    let rounds = sitting.by_time(3, 7);
    for (i, &pes) in sizes.iter().enumerate() {
        sitting.turns(&cases, rounds, |sitting, case| samples(sitting, case, pes))?;
        let place = pes.to_string();
        let of = |quantity| sitting.data.median(STATIC, &place, quantity);
        if let (Some(next), Some(memory), Some(wall)) = (sizes.get(i + 1), of(MEMORY), of(WALL)) {
            sitting.mind_the_square(memory, wall, *next as f64 / pes as f64);
        }
    }
    Ok(Shown {
        charts: charts(&sitting.data),
        claims: claims(&sitting.data),
    })
}

const INIT: &str = "init, mean of the PEs";
const CPU: &str = "processor time of a PE in init, mean";
const WALL: &str = "hello, from the start of the launcher to its end";
const MEMORY: &str = "memory of all PEs at the end";

fn samples(sitting: &Sitting<'_>, case: &Case, pes: usize) -> io::Result<Vec<Sample>> {
    let ran = sitting.run(
        case,
        &Launch {
            pes,
            nodes: (pes / PER_NODE).max(2).min(pes),
            program: "examples/hello",
            arguments: String::new(),
        },
    )?;
    let mut all = vec![(WALL, ran.wall)];
    if let (Some(init), Some(cpu)) = (ran.seconds("init wall"), ran.seconds("init CPU")) {
        all.extend([(INIT, init), (CPU, cpu)]);
        let parts: Vec<_> = PARTS
            .iter()
            .map(|(name, _)| (*name, ran.seconds(name).unwrap_or(0.0)))
            .collect();
        let told: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
        all.extend(parts);
        all.push((OTHER, (init - told).max(0.0)));
    }
    let memory = ran
        .report
        .as_ref()
        .and_then(|r| r.find("proportional memory"));
    all.extend(memory.map(|memory| (MEMORY, memory.sum)));
    let sample = |(quantity, value): (&str, f64)| (pes.to_string(), quantity.to_owned(), value);
    Ok(all.into_iter().map(sample).collect())
}

fn charts(data: &Data) -> Vec<Chart> {
    let parts: Vec<_> = PARTS.into_iter().chain([(OTHER, "other")]).collect();
    let lines =
        |name, title, quantity, unit| data.chart(name, title, "PEs", quantity, unit, Kind::Lines);
    vec![
        lines(
            "wall",
            "Init, mean of the PEs, 16 PEs a node",
            INIT,
            Unit::Seconds,
        ),
        lines(
            "cpu",
            "Processor time of a PE in init, mean",
            CPU,
            Unit::Seconds,
        ),
        lines("hello", "Hello world: the whole job", WALL, Unit::Seconds),
        lines(
            "memory",
            "Proportional memory of all PEs",
            MEMORY,
            Unit::Bytes,
        ),
        data.stacks(
            "parts-static",
            "What init is made of: static",
            "PEs",
            STATIC,
            &parts,
        ),
        data.stacks(
            "parts-on-demand",
            "What init is made of: on demand",
            "PEs",
            ON_DEMAND,
            &parts,
        ),
    ]
}

fn claims(data: &Data) -> Vec<Claim> {
    let both = data.places(INIT);
    let both: Vec<&String> = both
        .iter()
        .filter(|p| data.median(STATIC, p, INIT).is_some())
        .collect();
    let ratio = |quantity: &str| {
        let place = both.last()?;
        let ratio =
            data.median(STATIC, place, quantity)? / data.median(ON_DEMAND, place, quantity)?;
        Some(format!("{} times, at {place}", Unit::Count.show(ratio)))
    };
    let part = |series: &str, place: Option<&String>, of: &[&str]| {
        let place = place?;
        let told: Option<f64> = of.iter().map(|part| data.median(series, place, part)).sum();
        let share = told? / data.median(series, place, INIT)?;
        Some(format!("{} of init, at {place}", Unit::Part.show(share)))
    };
    let places = data.places(INIT);
    let growth = || {
        let (first, last) = (places.first()?, places.last()?);
        let of = |place| Some(Unit::Seconds.show(data.median(ON_DEMAND, place, CPU)?));
        Some(format!(
            "{} of processor time at {first} PEs, {} at {last}",
            of(first)?,
            of(last)?
        ))
    };
    vec![
        Claim::new(
            "Fig. 5(a), init",
            "static takes nearly 30 times as long, at 8,192",
            ratio(INIT),
            "PEs outnumber cores, so that a PE's wall time has others' in it",
        ),
        Claim::new(
            "Fig. 5(a), init",
            "on demand takes about the same time at any number of PEs",
            growth(),
            "processor time, for the same reason",
        ),
        Claim::new(
            "Fig. 5(a), hello",
            "static takes 8.3 times as long, at 8,192",
            ratio(WALL),
            "the launcher's agents, and all nodes, share the cores",
        ),
        Claim::new(
            "Fig. 1",
            "connections dominate static init at scale",
            part(STATIC, both.last().copied(), &[PARTS[4].0]),
            "",
        ),
        Claim::new(
            "Fig. 5(b)",
            "PMI and connections are negligible on demand",
            part(ON_DEMAND, places.last(), &[PARTS[2].0, PARTS[4].0]),
            "",
        ),
    ]
}
