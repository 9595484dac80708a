//! With how many others a PE talks, and how many endpoints it has for that: counts of whole programs, each PE on a node
//! of its own, beside a model of them and all connected.

use std::io;

use npb_ports::kernels::KERNELS;

use super::chart::Kind;
use super::programs;
use super::sitting::{Case, Sitting};
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "peers",
    title: "Peers and endpoints of a PE, by program",
    of: &[(&works::ON_DEMAND, "Table I, Fig. 9")],
    rivals: None,
    measure,
};

const PEERS: &str = "peers";
const ENDPOINTS: &str = "endpoints";
const MODEL: &str = "model";
const MEASURED: &str = "on demand";
const PAPER: &str = "the paper";

/// Average number of peers, Table I: program, PEs, peers.
const TABLE: [(&str, usize, f64); 10] = [
    ("BT", 64, 8.7),
    ("BT", 1024, 10.6),
    ("EP", 64, 3.0),
    ("EP", 1024, 5.01),
    ("MG", 64, 9.46),
    ("MG", 1024, 11.9),
    ("SP", 64, 8.75),
    ("SP", 1024, 10.7),
    ("heat2d", 64, 5.28),
    ("heat2d", 1024, 5.40),
];

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
    let sizes = sitting.sizes(&[16], &[16, 64]);
    let mut programs = programs::kernels(false);
    programs.push(programs::built("heat2d"));
    for &pes in &sizes {
        for program in &programs {
            let place = place(&program.name, pes);
            let cases = [Case::fully_connected(), Case::ours(MEASURED, &[])];
            sitting.once(&cases, |sitting, case| {
                let ran = programs::run(sitting, case, program, pes, pes)?;
                let figure = |name| {
                    ran.mean(name)
                        .ok_or_else(|| io::Error::other(format!("no figure {name}")))
                };
                let mut samples =
                    vec![(place.clone(), ENDPOINTS.to_owned(), figure("queue pairs")?)];
                if case.name == MEASURED {
                    samples.push((place.clone(), PEERS.to_owned(), figure("connections")?));
                }
                Ok(samples)
            })?;
        }
    }
    // What the model says of larger jobs, up to those of the paper's projection.
    let modelled = sizes.iter().copied().chain([64, 256, 1024, 4096]);
    let mut modelled: Vec<usize> = modelled.collect();
    modelled.sort_unstable();
    modelled.dedup();
    for pes in modelled.into_iter().filter(|&n| is_power_of_four(n)) {
        for kernel in KERNELS {
            let mean = kernel.peers(pes, pes).mean();
            sitting.keep(MODEL, &place(kernel.name, pes), PEERS, 0, mean)?;
            let (series, part) = (kernel.name, 1.0 - mean / (pes - 1).max(1) as f64);
            sitting.keep(series, &pes.to_string(), SPARED, 0, part)?;
        }
    }
    for (program, pes, peers) in TABLE {
        sitting.keep(PAPER, &place(program, pes), PEERS, 0, peers)?;
    }
    Ok(shown(sitting))
}

const SPARED: &str = "endpoints that nobody needs";

fn place(program: &str, pes: usize) -> String {
    format!("{program}, {pes}")
}

fn is_power_of_four(n: usize) -> bool {
    n.is_power_of_two() && n.trailing_zeros().is_multiple_of(2)
}

fn shown(sitting: &Sitting<'_>) -> Shown {
    let data = &sitting.data;
    let mut charts = vec![
        data.chart(
            "mean",
            "Peers of a PE, mean",
            "program, PEs",
            PEERS,
            Unit::Count,
            Kind::Bars,
        ),
        data.chart(
            "spared",
            "Endpoints of a fully connected PE that its program does not need, by the model",
            "PEs",
            SPARED,
            Unit::Part,
            Kind::Lines,
        ),
        data.chart(
            "endpoints",
            "Endpoints of a PE, mean",
            "program, PEs",
            ENDPOINTS,
            Unit::Count,
            Kind::Bars,
        ),
    ];
    for series in &mut charts[0].series {
        series.name = match &series.name[..] {
            PAPER => "the paper (MVAPICH2-X 2.1rc1)".to_owned(),
            MODEL => "model of the program and its collectives".to_owned(),
            other => other.to_owned(),
        };
    }
    let of_table = |&(program, pes, peers): &(&str, usize, f64)| {
        let at = place(program, pes);
        let of = |series| data.median(series, &at, PEERS).map(|n| Unit::Count.show(n));
        let model = || of(MODEL).map(|peers| format!("{peers} by the model"));
        let paper = format!("{program} on {pes} has {} peers", Unit::Count.show(peers));
        let differs =
            "every PE has a node of its own, so that each peer is a connection; other collectives";
        Claim::new("Table I", &paper, of(MEASURED).or_else(model), differs)
    };
    let mut claims: Vec<Claim> = TABLE.iter().map(of_table).collect();
    let spared = KERNELS.iter().filter_map(|k| {
        let part = data.median(k.name, "1024", SPARED)?;
        Some(format!("{} {}", k.name, Unit::Part.show(part)))
    });
    let spared: Vec<String> = spared.collect();
    claims.push(Claim::new(
        "Fig. 9",
        "more than 90 % fewer endpoints than static at 1,024, for 2D heat, EP, BT, MG and SP",
        (!spared.is_empty()).then(|| format!("{}, by the model", spared.join(", "))),
        "FT and IS, which the paper has not, talk to everybody",
    ));
    Shown { charts, claims }
}
