//! PMI's exchanges in real jobs: fence against allgather, blocking against not, and what of them hides.

use std::io;

use super::chart::{Chart, Kind};
use super::data::Data;
use super::sitting::{Case, Launch, Sitting};
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};
use shmem_benches::pmi::rounds;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "pmi-exchange",
    title: "PMI's exchanges, blocking against not, in real jobs",
    of: &[(&works::NON_BLOCKING_PMI, "Fig. 9, 11, 12")],
    rivals: None,
    measure,
};

const SPAN: &str = "from the first start to the last end";
const VISIBLE: &str = "in calls of PMI, mean of the processes";
const CPU: &str = "processor time of all processes and agents";
const OVERLAP: &str = "what of a blocking exchange is hidden";

/// Those of the paper.
const OPERATIONS: &str =
    "fence,allgather,ifence,iallgather,ifence/sleep,iallgather/sleep,ifence/spin,iallgather/spin";

/// Which are hidden behind something, and what they stand for.
const HIDDEN: [(&str, &str); 4] = [
    ("ifence/sleep", "fence"),
    ("iallgather/sleep", "allgather"),
    ("ifence/spin", "fence"),
    ("iallgather/spin", "allgather"),
];

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
    // With 2, each has a core, and may compute.
    let sizes = sitting.sizes(
        &[2, 16, 32, 64],
        &[2, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
    );
    let rounds = sitting.options.rounds.unwrap_or(sitting.by_time(5, 20));
    sitting.rounds = rounds;
    for &pes in &sizes {
        // All rounds are of one job, in which operations take turns.
        let launch = Launch {
            pes,
            nodes: (pes / 16).max(1),
            program: "pmi_collectives",
            arguments: format!("--length 32 --rounds {rounds} --gets 4 --only {OPERATIONS}"),
        };
        let ran = sitting.run(&Case::ours("shmrun", &[]), &launch)?;
        let place = pes.to_string();
        for line in ran.stdout.lines() {
            let text = |name| rounds::field(line, name).map_err(io::Error::other);
            let number = |name| text(name)?.parse::<f64>().map_err(io::Error::other);
            let (operation, round) = (text("operation")?, number("round")? as usize);
            for (quantity, ns) in [
                (SPAN, number("span_ns")?),
                (VISIBLE, number("visible_mean_ns")?),
                (CPU, number("cpu_ns")? + number("agents_cpu_ns")?),
            ] {
                sitting.keep(operation, &place, quantity, round, ns / 1e9)?;
            }
        }
        for (operation, blocking) in HIDDEN {
            let of = |series| sitting.data.median(series, &place, VISIBLE);
            if let (Some(seen), Some(whole)) = (of(operation), of(blocking)) {
                sitting.keep(operation, &place, OVERLAP, 0, (1.0 - seen / whole).max(0.0))?;
            }
        }
    }
    Ok(Shown {
        charts: charts(&sitting.data),
        claims: claims(&sitting.data),
    })
}

fn charts(data: &Data) -> Vec<Chart> {
    let lines = |name, title, quantity, unit| {
        data.chart(name, title, "processes", quantity, unit, Kind::Lines)
    };
    let mut charts = vec![
        lines(
            "span",
            "Exchanges, from the first start to the last end",
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
            "cpu",
            "Processor time of all processes and agents",
            CPU,
            Unit::Seconds,
        ),
        lines(
            "overlap",
            "What of a blocking exchange is hidden by one that does not block",
            OVERLAP,
            Unit::Part,
        ),
    ];
    for chart in &mut charts[..3] {
        // What is only there to hide behind has no time of its own.
        chart.series.retain(|s| {
            !s.name.ends_with("/spin") && (chart.name == "visible" || !s.name.ends_with("/sleep"))
        });
    }
    charts
}

fn claims(data: &Data) -> Vec<Claim> {
    let last = data.places(SPAN).last().cloned().unwrap_or_default();
    let less = |a: &str, b: &str, quantity: &str| {
        let part = data.median(a, &last, quantity)? / data.median(b, &last, quantity)?;
        Some(format!("{} of the time, at {last}", Unit::Part.show(part)))
    };
    let overlap = |names: [&str; 2]| {
        let each = names.into_iter().filter_map(|name| {
            let at = data.places(OVERLAP);
            let at = at
                .iter()
                .rfind(|place| data.median(name, place, OVERLAP).is_some())?;
            Some(format!(
                "{name} {} at {at}",
                Unit::Part.show(data.median(name, at, OVERLAP)?)
            ))
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| each.join(", "))
    };
    let cores = "processes outnumber cores, so that most of the span is waiting for a core";
    vec![
        Claim::new(
            "Fig. 9",
            "allgather takes 62 % of the time of a fence, at 16,384",
            less("allgather", "fence", SPAN),
            cores,
        ),
        Claim::new(
            "Section VI-B",
            "a non-blocking exchange that is waited for at once takes as long as the blocking one",
            less("ifence", "fence", SPAN)
                .zip(less("iallgather", "allgather", SPAN))
                .map(|(f, a)| format!("fence {f}; allgather {a}")),
            cores,
        ),
        Claim::new(
            "Fig. 11, sleep",
            "all is hidden, at every scale",
            overlap(["ifence/sleep", "iallgather/sleep"]),
            "",
        ),
        Claim::new(
            "Fig. 11, computation",
            "the more the larger the job, 89 % at 16,384",
            overlap(["ifence/spin", "iallgather/spin"]),
            "only where each process has a core: of two processes on two cores the agent has none, and must share",
        ),
        Claim::new(
            "Fig. 12",
            "perfect overlap takes 1.7 times less computation with iallgather than with ifence, at 16,384",
            data.median("fence", &last, SPAN)
                .zip(data.median("allgather", &last, SPAN))
                .map(|(f, a)| format!("{} times, at {last}", Unit::Count.show(f / a))),
            "the spans of the blocking ones, which are what has to be hidden",
        ),
    ]
}
