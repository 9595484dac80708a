//! One-sided operations between two PEs: between nodes, connected statically and on demand; and on one node.

use std::io;

use super::chart::{Chart, Kind};
use super::sitting::{Case, Launch, ON_DEMAND, STATIC, Sample, Sitting};
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};
use shmem_benches::rows;
use shmem_benches::stats::{Spread, median};

/// Between nodes.
pub(super) const BETWEEN_NODES: Figure = Figure {
    name: "p2p",
    title: "One-sided operations between two nodes, static against on demand",
    of: &[(&works::ON_DEMAND, "Fig. 6")],
    rivals: Some(
        "print the rows of `p2p` of {n} PEs, as benches/rivals/p2p.c does with {arguments}",
    ),
    measure: |sitting| {
        let cases = sitting.with_rivals([Case::fully_connected(), Case::on_demand()]);
        measure(sitting, &cases, 2)?;
        Ok(Shown {
            charts: charts(sitting),
            claims: vec![Claim::new(
                "Fig. 6",
                "less than 3 % between static and on demand, for put, get and atomics of all sizes",
                difference(sitting),
                "",
            )],
        })
    },
};

/// On one node.
pub(super) const ON_ONE_NODE: Figure = Figure {
    name: "p2p-node",
    title: "One-sided operations on one node",
    of: &[],
    rivals: BETWEEN_NODES.rivals,
    measure: |sitting| {
        let cases = sitting.with_rivals([Case::ours("shmem", &[("BENCH_BIND", "1")])]);
        measure(sitting, &cases, 1)?;
        Ok(Shown {
            charts: charts(sitting),
            claims: Vec::new(),
        })
    },
};

/// What a row takes of each size has a chart of its own; the others share one.
const BY_BYTES: [(&str, &str); 4] = [
    ("put", "put, until the source may be used again"),
    ("put+quiet", "put and quiet"),
    ("get", "get"),
    (
        "put_nbi_x64",
        "one of 64 non-blocking puts, with its share of the quiet",
    ),
];
const WORDS: &str = "operations of one word";

fn measure(sitting: &mut Sitting<'_>, cases: &[Case], nodes: usize) -> io::Result<()> {
    let rounds = sitting.by_time(3, 7);
    sitting.turns(cases, rounds, |sitting, case| {
        let launch = Launch {
            pes: 2,
            nodes,
            program: "p2p",
            // Milliseconds for each row.
            arguments: sitting.by_time("2", "30").to_owned(),
        };
        let ran = sitting.run(case, &launch)?;
        samples(&ran.stdout)
    })
}

fn samples(csv: &str) -> io::Result<Vec<Sample>> {
    let rows = rows::read(csv).map_err(io::Error::other)?;
    let known = |name: &str| BY_BYTES.iter().any(|(row, _)| *row == name);
    let sample = |row: rows::Row| {
        let seconds = median(&row.samples) / 1e9;
        match known(&row.name) {
            true => Some((row.bytes.to_string(), row.name, seconds)),
            false if row.bytes == 8 => Some((row.name, WORDS.to_owned(), seconds)),
            false => None,
        }
    };
    Ok(rows.into_iter().filter_map(sample).collect())
}

fn charts(sitting: &Sitting<'_>) -> Vec<Chart> {
    let data = &sitting.data;
    let of_row = |&(row, title): &(&'static str, &str)| {
        data.chart(row, title, "bytes", row, Unit::Seconds, Kind::Lines)
    };
    let words = data.chart(
        "words",
        "Operations of one word",
        "operation",
        WORDS,
        Unit::Seconds,
        Kind::Bars,
    );
    BY_BYTES.iter().map(of_row).chain([words]).collect()
}

/// What on demand takes of static, over all rows and sizes.
fn difference(sitting: &Sitting<'_>) -> Option<String> {
    let data = &sitting.data;
    let mut all: Vec<f64> = Vec::new();
    for quantity in BY_BYTES.iter().map(|(row, _)| *row).chain([WORDS]) {
        for place in data.places(quantity) {
            let of = |series| data.median(series, &place, quantity);
            all.extend(of(ON_DEMAND).zip(of(STATIC)).map(|(a, b)| a / b));
        }
    }
    let spread = Spread::of(&all)?;
    let [low, middle, high] =
        [spread.low, spread.median, spread.high].map(|part| Unit::Part.show(part));
    Some(format!(
        "on demand takes {middle} of static in the median row, {low} to {high} in half of them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_to_charts_by_bytes_or_among_the_words() {
        let csv = "row,bytes,what,ops,value\nget,64,ns,4,3000\nget,64,ns,4,1000\nget,64,ns,4,2000\nget,64,cpu0_ns,1,1\n\
            fetch_add,8,ns,1,500\nput_private,64,ns,1,7\n";
        let expected = [("64", "get", 2e-6), ("fetch_add", WORDS, 5e-7)];
        let found = samples(csv).expect("rows");
        let found: Vec<_> = found.iter().map(|(p, q, v)| (&p[..], &q[..], *v)).collect();
        assert_eq!(found, expected);
        assert!(samples("x").is_err());
    }
}
