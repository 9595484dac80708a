//! Reads what `p2p` and `collectives` print, in Rust or C, and puts libraries beside each other.

use std::fmt::Write;

use crate::stats::{median, min};

/// One run's figures of one operation, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Operation.
    pub name: String,
    /// Bytes that it moves.
    pub bytes: u64,
    /// Time in each batch.
    pub samples: Vec<f64>,
    /// CPU time of PE 0, and of the last PE.
    pub cpu: [f64; 2],
}

/// Reads one run.
///
/// # Errors
/// What is wrong with which line, or that there are no rows or one is incomplete.
pub fn read(csv: &str) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for line in csv.lines().filter(|l| !l.starts_with("row,")) {
        let fields: Vec<&str> = line.split(',').collect();
        let &[name, bytes, what, _ops, value] = &fields[..] else {
            return Err(format!("not a sample: {line:?}"));
        };
        let (Ok(bytes), Ok(value)) = (bytes.parse::<u64>(), value.parse::<f64>()) else {
            return Err(format!("not numbers: {line:?}"));
        };
        let known = rows
            .iter()
            .position(|r| r.name == name && r.bytes == bytes)
            .unwrap_or(rows.len());
        if known == rows.len() {
            rows.push(Row {
                name: name.to_owned(),
                bytes,
                samples: Vec::new(),
                cpu: [f64::NAN; 2],
            });
        }
        match what {
            "ns" => rows[known].samples.push(value),
            "cpu0_ns" => rows[known].cpu[0] = value,
            "cpu1_ns" => rows[known].cpu[1] = value,
            _ => return Err(format!("unknown kind of sample: {line:?}")),
        }
    }
    match rows
        .iter()
        .find(|r| r.samples.is_empty() || r.cpu.iter().any(|c| c.is_nan()))
    {
        Some(row) => Err(format!("{} of {} bytes is incomplete", row.name, row.bytes)),
        None if rows.is_empty() => Err("no samples".to_owned()),
        None => Ok(rows),
    }
}

/// What is compared with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Ours. The first one is what ratios are of.
    Ours,
    /// Another library.
    Rival,
    /// No library: what the machine can do.
    Limit,
}

/// A library and its runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Library {
    /// Name for the head of the table.
    pub name: String,
    /// What it is beside ours.
    pub part: Part,
    /// The rows of each run.
    pub runs: Vec<Vec<Row>>,
}

/// One operation of a library over all runs: medians over runs, and the best batch of all.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    median: f64,
    best: f64,
    cpu: [f64; 2],
}

impl Library {
    fn cell(&self, name: &str, bytes: u64) -> Option<Cell> {
        let rows: Vec<&Row> = self
            .runs
            .iter()
            .filter_map(|run| run.iter().find(|r| r.name == name && r.bytes == bytes))
            .collect();
        let over_runs =
            |figure: &dyn Fn(&Row) -> f64| rows.iter().map(|r| figure(r)).collect::<Vec<f64>>();
        (!rows.is_empty()).then(|| Cell {
            median: median(&over_runs(&|r| median(&r.samples))),
            best: min(&over_runs(&|r| min(&r.samples))),
            cpu: [0, 1].map(|pe| median(&over_runs(&|r| r.cpu[pe]))),
        })
    }
}

/// A table in markdown: medians, best batches, CPU time of the first and the last PE. Then come, for
/// each of ours, its median over that of the fastest rival, and over the limit.
pub fn table(libraries: &[Library]) -> String {
    let mut operations: Vec<(&str, u64)> = Vec::new();
    for row in libraries.iter().flat_map(|l| l.runs.iter().flatten()) {
        if !operations.contains(&(&row.name, row.bytes)) {
            operations.push((&row.name, row.bytes));
        }
    }
    let mut out = String::from(
        "Time per operation: median / best batch; CPU time of PE 0 + of the last PE\n\n\
         | operation | bytes |",
    );
    for library in libraries {
        let _ = write!(out, " {} |", library.name);
    }
    let of = |part| libraries.iter().filter(move |l| l.part == part);
    let others: Vec<Part> = [Part::Rival, Part::Limit]
        .into_iter()
        .filter(|&part| of(part).next().is_some())
        .collect();
    for ours in of(Part::Ours) {
        for other in &others {
            let what = match other {
                Part::Limit => "limit",
                _ => "best rival",
            };
            let _ = write!(out, " {} / {what} |", ours.name);
        }
    }
    out.push_str("\n|---|---:|");
    let columns = libraries.len() + of(Part::Ours).count() * others.len();
    out.push_str(&"---:|".repeat(columns));
    for (name, bytes) in operations {
        let cell = |library: &Library| library.cell(name, bytes);
        let _ = write!(out, "\n| {name} | {bytes} |");
        for library in libraries {
            match cell(library) {
                Some(c) => {
                    let (median, best, cpu) = (time(c.median), time(c.best), c.cpu.map(time));
                    let _ = write!(out, " {median} / {best}; {} + {} |", cpu[0], cpu[1]);
                }
                None => out.push_str(" – |"),
            }
        }
        for ours in of(Part::Ours) {
            for &other in &others {
                let medians = of(other).filter_map(cell).map(|c| c.median);
                match (cell(ours), medians.reduce(f64::min)) {
                    (Some(ours), Some(best)) => {
                        let _ = write!(out, " {:.2} |", ours.median / best);
                    }
                    _ => out.push_str(" – |"),
                }
            }
        }
    }
    out.push('\n');
    out
}

/// A time with three digits that count, and its unit.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        _ if ns >= 1e6 => (ns / 1e6, "ms"),
        _ if ns >= 1e3 => (ns / 1e3, "µs"),
        _ => (ns, "ns"),
    };
    let decimals = match value {
        _ if value >= 100.0 => 0,
        _ if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "row,bytes,what,ops,value\n\
        get,8,ns,4,3000\nget,8,ns,4,1000\nget,8,ns,4,2000\nget,8,cpu0_ns,12,900\nget,8,cpu1_ns,12,50\n\
        get,64,ns,4,12345\nget,64,cpu0_ns,4,0\nget,64,cpu1_ns,4,0\n";

    #[test]
    fn a_run_is_read() {
        let rows = read(RUN).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].samples, [3000.0, 1000.0, 2000.0]);
        assert_eq!(rows[0].cpu, [900.0, 50.0]);
        assert_eq!((rows[1].name.as_str(), rows[1].bytes), ("get", 64));
    }

    #[test]
    fn what_is_no_run_is_refused() {
        for (text, why) in [
            ("", "no samples"),
            ("get,8,ns,4", "not a sample"),
            ("get,8,ns,4,x", "not numbers"),
            ("get,8,watts,4,1", "unknown kind"),
            (
                "get,8,ns,4,1\nget,8,cpu0_ns,4,1",
                "get of 8 bytes is incomplete",
            ),
            ("get,8,cpu0_ns,4,1\nget,8,cpu1_ns,4,1", "incomplete"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn libraries_stand_beside_each_other() {
        let library = |name: &str, part: Part, factor: f64, runs: usize| Library {
            name: name.to_owned(),
            part,
            runs: (0..runs)
                .map(|run| {
                    let mut rows = read(RUN).unwrap();
                    for sample in rows.iter_mut().flat_map(|r| &mut r.samples) {
                        *sample *= factor * (run + 1) as f64;
                    }
                    rows
                })
                .collect(),
        };
        let text = table(&[
            library("A", Part::Ours, 1.0, 3),
            library("B", Part::Rival, 2.0, 1),
            library("C", Part::Rival, 8.0, 0),
            library("D", Part::Limit, 0.5, 1),
        ]);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines[0],
            "| operation | bytes | A | B | C | D | A / best rival | A / limit |"
        );
        // Medians of the runs: 2, 4 and 6 µs against one of 4 µs and one of 1 µs.
        assert_eq!(
            lines[2],
            "| get | 8 | 4.00 µs / 1.00 µs; 900 ns + 50.0 ns | 4.00 µs / 2.00 µs; 900 ns + 50.0 ns | \
             – | 1.00 µs / 500 ns; 900 ns + 50.0 ns | 1.00 | 4.00 |"
        );
        assert!(
            lines[3].starts_with("| get | 64 | 24.7 µs / 12.3 µs; "),
            "{}",
            lines[3]
        );
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[1].matches('|').count(), lines[2].matches('|').count());
        let alone = table(&[library("A", Part::Ours, 1.0, 1)]);
        assert!(alone.contains("| operation | bytes | A |\n"), "{alone}");
    }

    #[test]
    fn three_digits_count() {
        let texts = [1.234, 12.0, 1234.0, 12_345.0, 1_234_567.0].map(time);
        assert_eq!(
            texts,
            ["1.23 ns", "12.0 ns", "1.23 µs", "12.3 µs", "1.23 ms"]
        );
    }
}
