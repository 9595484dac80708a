//! PMI's exchanges of jobs beyond the size of a machine: the real clients and servers in virtual time. Nothing is
//! measured twice: the model is exact.

use std::io;

use shmem_pmi::server::CachePolicy;

use super::chart::Kind;
use super::sitting::Sitting;
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};
use shmem_model::exchange::{Call, Costs, Outcome, Scope, Shape, run};

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "pmi-virtual",
    title: "PMI's exchanges of up to a million processes, in virtual time",
    of: &[(&works::NON_BLOCKING_PMI, "Tables I, II, Fig. 9, 11, 12")],
    rivals: None,
    measure,
};

const PER_NODE: u32 = 16;
const SPAN: &str = "from the first start to the last end";
const VISIBLE: &str = "in calls of PMI, mean of the processes";
const BYTES: &str = "bytes between agents";

fn fence(_: u32) -> Vec<Call> {
    vec![Call::Put, Call::Fence]
}

fn allgather(_: u32) -> Vec<Call> {
    vec![Call::Iallgather, Call::WaitGather]
}

fn exchange(
    processes: u32,
    bytes: usize,
    scope: Scope,
    calls: &dyn Fn(u32) -> Vec<Call>,
) -> Outcome {
    let shape = Shape {
        nodes: (processes / PER_NODE).max(1),
        per_node: PER_NODE,
        bytes,
        cache: CachePolicy::Hcmab,
        scope,
    };
    run(shape, Costs::default(), calls)
}

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
    let quick = [1024, 4096, 16_384, 65_536];
    let full = [
        1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576,
    ];
    sitting.rounds = 1;
    let paths = sitting.sizes(&quick, &full);
    for pes in paths {
        let place = pes.to_string();
        let go = |calls: &dyn Fn(u32) -> Vec<Call>| exchange(pes as u32, 32, Scope::Path, calls);
        let (fenced, gathered) = (go(&fence), go(&allgather));
        let ifenced = go(&|_| {
            vec![
                Call::Put,
                Call::Ifence,
                Call::Compute(fenced.span),
                Call::WaitFence,
            ]
        });
        let igathered = go(&|_| {
            vec![
                Call::Iallgather,
                Call::Compute(gathered.span),
                Call::WaitGather,
            ]
        });
        for (series, outcome) in [("fence", fenced), ("allgather", gathered)] {
            sitting.keep(series, &place, SPAN, 0, outcome.span / 1e9)?;
        }
        for (series, outcome) in [
            ("fence", fenced),
            ("allgather", gathered),
            ("ifence and computation", ifenced),
            ("iallgather and computation", igathered),
        ] {
            sitting.keep(series, &place, VISIBLE, 0, outcome.visible / 1e9)?;
        }
    }
    // The volume takes every agent. Values are as long as in the tables.
    let all = sitting.sizes(&[1024], &[1024, 4096, 8192]);
    for pes in all {
        for (series, calls) in [
            ("fence", fence as fn(u32) -> Vec<Call>),
            ("allgather", allgather),
        ] {
            let bytes = exchange(pes as u32, 18, Scope::All, &calls).bytes;
            sitting.keep(series, &pes.to_string(), BYTES, 0, bytes as f64)?;
        }
    }
    Ok(shown(sitting))
}

fn shown(sitting: &Sitting<'_>) -> Shown {
    let data = &sitting.data;
    let lines = |name, title, quantity, unit| {
        data.chart(name, title, "processes", quantity, unit, Kind::Lines)
    };
    let charts = vec![
        lines(
            "span",
            "Exchanges, from the first start to the last end, 16 processes a node",
            SPAN,
            Unit::Seconds,
        ),
        lines(
            "visible",
            "Time that a process spends in PMI's calls",
            VISIBLE,
            Unit::Seconds,
        ),
        lines(
            "bytes",
            "All bytes between agents, values of 18 bytes",
            BYTES,
            Unit::Bytes,
        ),
    ];
    let at = |place: &str, quantity: &str, [a, b]: [&str; 2]| {
        Some(data.median(a, place, quantity)? / data.median(b, place, quantity)?)
    };
    let large = "16384";
    let model = "virtual time, with costs of a 10 Gbit/s link and of agents of ours";
    let hidden = |series, of| {
        at(large, VISIBLE, [series, of])
            .map(|seen| format!("{} is hidden", Unit::Part.show(1.0 - seen)))
    };
    let volume = data.places(BYTES).last().cloned().unwrap_or_default();
    let claims = vec![
        Claim::new(
            "Tables I, II",
            "at 8,192, a fence broadcasts 286 KB and an allgather 208 KB: 1.38 times as much",
            at(&volume, BYTES, ["fence", "allgather"])
                .map(|r| format!("{} times, at {volume}", Unit::Count.show(r))),
            "all messages between agents, both ways",
        ),
        Claim::new(
            "Tables I, II",
            "at 8,192, a fence takes 685 ms and an allgather 471 ms: 1.45 times as long",
            at("8192", SPAN, ["fence", "allgather"])
                .map(|r| format!("{} times", Unit::Count.show(r))),
            model,
        ),
        Claim::new(
            "Fig. 9",
            "allgather takes 62 % of the time of a fence, at 16,384",
            at(large, SPAN, ["allgather", "fence"]).map(|r| Unit::Part.show(r)),
            model,
        ),
        Claim::new(
            "Fig. 11",
            "89 % is hidden behind computation at 16,384",
            hidden("ifence and computation", "fence")
                .zip(hidden("iallgather and computation", "allgather"))
                .map(|(f, a)| format!("fence: {f}; allgather: {a}")),
            "every process and every agent has a core of its own there",
        ),
        Claim::new(
            "Fig. 12",
            "perfect overlap takes 1.7 times less computation with iallgather than with ifence, at 16,384",
            at(large, SPAN, ["fence", "allgather"])
                .map(|r| format!("{} times", Unit::Count.show(r))),
            model,
        ),
    ];
    Shown { charts, claims }
}
