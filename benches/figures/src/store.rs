//! A get from the store of a node, under locks and without, by the number of readers.

use std::io;

use super::chart::Kind;
use super::sitting::{Case, Launch, Sitting};
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "pmi-store",
    title: "A get from the store of a node, by the number of readers",
    of: &[(&works::PMIX_DATABASE, "Fig. 1")],
    rivals: None,
    measure,
};

/// As the setting has them, and what they are called here.
const STORES: [(&str, &str); 4] = [
    ("shared", "no lock"),
    ("2n", "2N lock"),
    ("rwlock", "one lock of the pthread kind"),
    ("message", "asked of the agent"),
];
const MEDIAN: &str = "median";
const P99: &str = "99th percentile";
const CPU: &str = "processor time";

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
    let sizes = sitting.sizes(&[1, 4, 16], &[1, 2, 4, 8, 16, 32, 64]);
    let rounds = sitting.by_time(3, 7);
    let cases = STORES.map(|(_, name)| Case::alone(name));
    for readers in sizes {
        sitting.turns(&cases, rounds, |sitting, case| {
            let store = STORES
                .iter()
                .find(|(_, name)| *name == case.name)
                .map_or("", |s| s.0);
            let milliseconds = sitting.by_time(60, 200);
            let launch = Launch {
                pes: readers,
                nodes: 1,
                program: "pmi_get",
                arguments: format!(
                    "--stores {store} --readers {readers} --milliseconds {milliseconds}"
                ),
            };
            let ran = sitting.run(case, &launch)?;
            samples(&ran.stdout).map_err(io::Error::other)
        })?;
    }
    Ok(shown(sitting))
}

/// Of what `pmi_get` prints, the runs without a writer.
fn samples(csv: &str) -> Result<Vec<(String, String, f64)>, String> {
    let mut found = Vec::new();
    for line in csv.lines().filter(|l| !l.starts_with("store,")) {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, readers, "0", _, median, p99, cpu, ..] = fields[..] else {
            continue;
        };
        for (quantity, ns) in [(MEDIAN, median), (P99, p99), (CPU, cpu)] {
            let ns: f64 = ns.parse().map_err(|_| format!("no number in {line:?}"))?;
            found.push((readers.to_owned(), quantity.to_owned(), ns / 1e9));
        }
    }
    match found.is_empty() {
        true => Err(format!("no samples in {csv:?}")),
        false => Ok(found),
    }
}

fn shown(sitting: &Sitting<'_>) -> Shown {
    let data = &sitting.data;
    let lines = |name, title, quantity| {
        data.chart(name, title, "readers", quantity, Unit::Seconds, Kind::Lines)
    };
    let charts = vec![
        lines("median", "A get, median", MEDIAN),
        lines("p99", "A get, 99th percentile", P99),
        lines("cpu", "Processor time of a get, the server's included", CPU),
    ];
    let last = data.places(MEDIAN).last().cloned().unwrap_or_default();
    let of = |(_, name): (&str, &str)| {
        Some(format!(
            "{name} {}",
            Unit::Seconds.show(data.median(name, &last, P99)?)
        ))
    };
    let all: Vec<String> = STORES.into_iter().filter_map(of).collect();
    let times = |a: (&str, &str), b: (&str, &str)| {
        let ratio = data.median(a.1, &last, CPU)? / data.median(b.1, &last, CPU)?;
        Some(format!(
            "{} times its processor time, with {last} readers",
            Unit::Count.show(ratio)
        ))
    };
    let cores = "readers share the cores of this machine, so that few hold a lock's word at a time";
    let claims = vec![
        Claim::new(
            "Fig. 1",
            "under one read-write lock a get takes up to 460 µs, with 160 readers on as many hardware threads",
            (!all.is_empty()).then(|| format!("99th percentile with {last}: {}", all.join(", "))),
            cores,
        ),
        Claim::new(
            "Fig. 1",
            "the 2N lock is like no lock",
            times(STORES[1], STORES[0]),
            cores,
        ),
    ];
    Shown { charts, claims }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_without_a_writer_are_read() {
        let csv = "store,readers,writer,gets,median_ns,p99_ns,cpu_ns,misses\n2n,4,0,100,50.0,75.0,51.0,0\n2n,4,1,9,1,1,1,0\n";
        let found = samples(csv).expect("samples");
        let found: Vec<_> = found.iter().map(|(p, q, v)| (&p[..], &q[..], *v)).collect();
        assert_eq!(
            found,
            [("4", MEDIAN, 5e-8), ("4", P99, 7.5e-8), ("4", CPU, 5.1e-8)]
        );
        assert!(samples("").is_err() && samples("2n,4,0,1,x,1,1,0").is_err());
    }
}
