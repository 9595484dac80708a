//! Exchanges under the caches of launch agents, in real jobs and in virtual time, and the memory that these take.

use std::io;

use shmem_pmi::server::CachePolicy;

use super::chart::Kind;
use super::sitting::{Case, Launch, Sitting};
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};
use shmem_benches::pmi::rounds;
use shmem_benches::stats::median;
use shmem_model::exchange::{self, Call, Costs, Scope, Shape};

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "pmi-caches",
    title: "Exchanges under four caches of launch agents",
    of: &[(&works::SCELA, "Fig. 3.3, 3.4, Table 3.1")],
    rivals: None,
    measure,
};

/// Memory of the LRU cache, in bytes.
const LRU: usize = 16 << 10;
const LENGTH: usize = 32;
const PER_NODE: u32 = 8;
const REAL: &str = "real jobs";
const VIRTUAL_1_2: &str = "1:2 in virtual time";
const VIRTUAL_1_P: &str = "1:p in virtual time";
const CACHE: &str = "largest cache of an agent";

fn policies() -> [CachePolicy; 4] {
    let lru = CachePolicy::HcmabLru { bytes: LRU };
    [CachePolicy::Hcs, CachePolicy::Hcma, CachePolicy::Hcmab, lru]
}

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
    let pes = sitting.sizes(&[32], &[64])[0];
    let nodes = (pes / PER_NODE as usize).max(2).min(pes);
    let size = LRU.to_string();
    let cases = policies().map(|policy| {
        Case::ours(
            policy.name(),
            &[
                ("SHMEM_PMI_CACHE", policy.name()),
                ("SHMEM_PMI_CACHE_SIZE", &size),
            ],
        )
    });
    let rounds = sitting.by_time(3, 7);
    for (exchange, gets) in [("1:2", 2), ("1:p", pes)] {
        sitting.turns(&cases, rounds, |sitting, case| {
            let launch = Launch {
                pes,
                nodes,
                program: "pmi_collectives",
                arguments: format!("--only fence+get --rounds 3 --length {LENGTH} --gets {gets}"),
            };
            let ran = sitting.run(case, &launch)?;
            let span = |line: &str| {
                rounds::field(line, "span_ns")?
                    .parse::<f64>()
                    .map_err(|e| e.to_string())
            };
            let spans: Result<Vec<f64>, String> = ran.stdout.lines().map(span).collect();
            let seconds = median(&spans.map_err(io::Error::other)?) / 1e9;
            Ok(vec![(exchange.to_owned(), REAL.to_owned(), seconds)])
        })?;
    }
    let sizes = sitting.sizes(&[64, 256], &[64, 128, 256, 512]);
    for pes in sizes {
        for cache in policies() {
            for (quantity, gets) in [(VIRTUAL_1_2, 2), (VIRTUAL_1_P, pes as u32)] {
                let outcome = in_virtual_time(pes as u32, cache, gets);
                sitting.keep(
                    cache.name(),
                    &pes.to_string(),
                    quantity,
                    0,
                    outcome.span / 1e9,
                )?;
                if quantity == VIRTUAL_1_P {
                    sitting.keep(
                        cache.name(),
                        &pes.to_string(),
                        CACHE,
                        0,
                        outcome.cache as f64,
                    )?;
                }
            }
        }
    }
    Ok(shown(sitting, &format!("{pes} processes on {nodes} nodes")))
}

/// Each puts, all fence, and each gets from those that follow.
fn in_virtual_time(processes: u32, cache: CachePolicy, gets: u32) -> exchange::Outcome {
    let shape = Shape {
        nodes: (processes / PER_NODE).max(1),
        per_node: PER_NODE,
        bytes: LENGTH,
        cache,
        scope: Scope::All,
    };
    let size = shape.nodes * shape.per_node;
    let exchange = |rank: u32| {
        let others = (1..=gets).map(|i| Call::Get((rank + i) % size));
        [Call::Put, Call::Fence].into_iter().chain(others).collect()
    };
    exchange::run(shape, Costs::default(), &exchange)
}

fn shown(sitting: &Sitting<'_>, layout: &str) -> Shown {
    let data = &sitting.data;
    let lines = |name, title, quantity, unit| {
        data.chart(name, title, "processes", quantity, unit, Kind::Lines)
    };
    let title =
        format!("One put and two gets (1:2), or as many as there are processes (1:p): {layout}");
    let charts = vec![
        data.chart("real", &title, "exchange", REAL, Unit::Seconds, Kind::Bars),
        lines(
            "1-2",
            "One put and two gets, in virtual time",
            VIRTUAL_1_2,
            Unit::Seconds,
        ),
        lines(
            "1-p",
            "One put and p gets, in virtual time",
            VIRTUAL_1_P,
            Unit::Seconds,
        ),
        lines(
            "memory",
            "Largest cache of an agent but the first, after p gets",
            CACHE,
            Unit::Bytes,
        ),
    ];
    let last = data.places(VIRTUAL_1_P).last().cloned().unwrap_or_default();
    let part = |place: &str, quantity: &str| {
        let part = data.median("hcmab", place, quantity)? / data.median("hcs", place, quantity)?;
        Some(Unit::Part.show(part))
    };
    let both = |real: &str, quantity: &str| {
        let (real, of_model) = (part(real, REAL)?, part(&last, quantity)?);
        Some(format!("{real}; {of_model} of {last} in virtual time"))
    };
    let memory = || {
        let of = |cache: &str| Some(Unit::Bytes.show(data.median(cache, &last, CACHE)?));
        Some(format!(
            "{} and {}, at {last}",
            of("hcmab")?,
            of("hcmab-lru")?
        ))
    };
    let shared = "with HCMAB gets are read from the node's memory here, and asked of the agent there; in virtual time asked of it, too";
    let claims = vec![
        Claim::new(
            "Fig. 3.3",
            "HCMAB and HCMAB-LRU take less than a third of HCS for 1:2",
            both("1:2", VIRTUAL_1_2),
            shared,
        ),
        Claim::new(
            "Fig. 3.4",
            "they take a tenth of HCS for 1:p",
            both("1:p", VIRTUAL_1_P),
            shared,
        ),
        Claim::new(
            "Table 3.1",
            "HCMAB takes memory by the pairs, HCMAB-LRU a bounded amount",
            memory(),
            "of one round of puts; the bound is 16 KiB, less than p pairs take, where the thesis keeps a round of them",
        ),
    ];
    Shown { charts, claims }
}
