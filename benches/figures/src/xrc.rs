//! Queue pairs and time of programs over XRC, whose connections lead to nodes, against RC, whose lead to PEs.

use std::io;

use super::chart::Kind;
use super::programs::{self, Program};
use super::sitting::{Case, Sitting};
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "xrc",
    title: "Queue pairs of whole programs, RC against XRC",
    of: &[(&works::SCELA, "Tables 4.1, 4.2")],
    rivals: None,
    measure,
};

const MEAN: &str = "queue pairs, mean of the PEs";
const MOST: &str = "queue pairs, most of a PE";
const WALL: &str = "the job";
const RC: &str = "RC";
const XRC: &str = "XRC";
const CONNECTED: &str = "all connected";

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
    let pes = sitting.sizes(&[16], &[64])[0];
    // Two PEs a node in a quick run, and 8 otherwise, as in the thesis.
    let nodes = sitting.by_time(pes / 2, pes / 8).max(2).min(pes);
    let rounds = sitting.by_time(1, 5);
    let transports = [(RC, "rc"), (XRC, "xrc")];
    let on_demand = transports.map(|(name, t)| Case::ours(name, &[("SHMEM_TRANSPORT", t)]));
    let connected = transports
        .map(|(name, t)| Case::ours(name, &[("SHMEM_TRANSPORT", t), ("SHMEM_CONNECT", "static")]));
    let mut all: Vec<(Program, &[Case])> = Vec::new();
    let mut hello = programs::built("examples/hello");
    CONNECTED.clone_into(&mut hello.name);
    all.push((hello, &connected));
    let small = [
        "examples/hello",
        "examples/ring",
        "heat2d",
        "examples/histogram",
    ];
    all.extend(
        small
            .map(programs::built)
            .into_iter()
            .chain(programs::kernels(false))
            .map(|p| (p, &on_demand[..])),
    );
    for (program, cases) in &all {
        sitting.turns(cases, rounds, |sitting, case| {
            let ran = programs::run(sitting, case, program, pes, nodes)?;
            let figure = ran.report.as_ref().and_then(|r| r.find("queue pairs"));
            let figure = figure.ok_or_else(|| io::Error::other("the report has no queue pairs"))?;
            let sample =
                |(quantity, value): (&str, f64)| (program.name.clone(), quantity.to_owned(), value);
            Ok([(MEAN, figure.mean), (MOST, figure.max), (WALL, ran.wall)]
                .map(sample)
                .into())
        })?;
    }

    let data = &sitting.data;
    let layout = format!("{pes} PEs on {nodes} nodes");
    let bars = |name, title: &str, quantity, unit| {
        data.chart(
            name,
            &format!("{title}, {layout}"),
            "program",
            quantity,
            unit,
            Kind::Bars,
        )
    };
    let charts = vec![
        bars("mean", "Queue pairs, mean of the PEs", MEAN, Unit::Count),
        bars("most", "Queue pairs, most of a PE", MOST, Unit::Count),
        bars("wall", "Time of the whole job", WALL, Unit::Seconds),
    ];
    let both = |program: &str| {
        let of = |series| Some(Unit::Count.show(data.median(series, program, MEAN)?));
        Some(format!("RC {}, XRC {}, on {layout}", of(RC)?, of(XRC)?))
    };
    let in_general = "an XRC queue pair of ours serves one direction, so that a peer that is written to and read from counts two";
    let mut claims = vec![Claim::new(
        "Table 4.1",
        "fully connected, on n nodes of c cores: RC n c − 1, XRC n",
        both(CONNECTED),
        "PEs of one node share memory, and need no queue pair",
    )];
    claims.extend(TABLE.map(|(program, rc, xrc)| {
        let paper = format!("{program}, class B on 64: RC {rc}, XRC {xrc}");
        Claim::new("Table 4.2", &paper, both(program), in_general)
    }));
    Ok(Shown { charts, claims })
}

/// Average queue pairs of a process, Table 4.2.
const TABLE: [(&str, f64, f64); 8] = [
    ("BT", 6.06, 4.06),
    ("CG", 3.84, 3.5),
    ("EP", 3.0, 3.0),
    ("FT", 55.91, 6.95),
    ("IS", 53.16, 6.98),
    ("LU", 3.81, 3.81),
    ("MG", 4.98, 4.0),
    ("SP", 6.06, 3.73),
];
