//! What a figure shows: values of several series at the same places, with their spread. A chart is drawn as a plot
//! ([`super::plot`]) and written as a table in Markdown, both of the same values.

use std::fmt::Write as _;

use super::unit::Unit;
use shmem_benches::stats::Spread;

/// How it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Lines over a logarithmic axis of numbers.
    Lines,
    /// Groups of bars, one beside each name.
    Bars,
    /// A bar beside each name, made of what the series have there.
    Stacks,
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// For its file.
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    /// What the places are.
    pub places: &'static str,
    /// Where the series have values: numbers, for lines.
    pub at: Vec<String>,
    /// What the values are.
    pub unit: Unit,
    /// How it is drawn.
    pub kind: Kind,
    /// What is compared; ratios are of the first.
    pub series: Vec<Series>,
}

/// A series.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What has been measured.
    pub name: String,
    /// At each place, if it was measured there.
    pub values: Vec<Option<Spread>>,
}

impl Chart {
    /// The number that a place is.
    pub fn number(&self, at: usize) -> f64 {
        self.at[at].parse().unwrap_or(f64::NAN)
    }

    /// A place as it is written.
    pub fn place(&self, at: usize) -> String {
        match self.at[at].parse::<f64>() {
            Ok(bytes) if self.places == "bytes" && bytes >= 1024.0 => Unit::Bytes.show(bytes),
            _ => self.at[at].clone(),
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.series
            .iter()
            .all(|s| s.values.iter().all(Option::is_none))
    }

    /// The values as a table: medians, with quartiles where they differ from them.
    pub fn table(&self) -> String {
        let mut out = format!("| {} |", cell(self.places));
        // Beside the ratio of two or three, what else would be a ratio is a matter for the reader.
        let ratios = self.kind != Kind::Stacks && (2..=4).contains(&self.series.len());
        for series in &self.series {
            let _ = write!(out, " {} |", cell(&series.name));
        }
        for series in self.series[1.min(self.series.len())..]
            .iter()
            .filter(|_| ratios)
        {
            let _ = write!(
                out,
                " {} / {} |",
                cell(&self.series[0].name),
                cell(&series.name)
            );
        }
        let columns = out.matches(" |").count();
        out.push_str(&format!("\n|---|{}\n", "---:|".repeat(columns - 1)));
        for at in 0..self.at.len() {
            let values = || self.series.iter().map(|s| s.values[at]);
            if values().all(|v| v.is_none()) {
                continue;
            }
            let _ = write!(out, "| {} |", cell(&self.place(at)));
            for value in values() {
                let _ = write!(out, " {} |", self.spread(value));
            }
            let first = values().next().flatten();
            for value in values().skip(1).filter(|_| ratios) {
                let ratio = first.zip(value).map(|(a, b)| a.median / b.median);
                let ratio = ratio.filter(|r| r.is_finite());
                let _ = match ratio {
                    Some(ratio) => write!(out, " {} |", Unit::Count.show(rounded(ratio))),
                    None => write!(out, " – |"),
                };
            }
            out.push('\n');
        }
        out
    }

    fn spread(&self, value: Option<Spread>) -> String {
        let Some(Spread { low, median, high }) = value else {
            return "–".to_owned();
        };
        let [low, median, high] = [low, median, high].map(|v| self.unit.show(v));
        match low == median && median == high {
            true => median,
            false => format!("{median} ({low} to {high})"),
        }
    }
}

/// A ratio is no count, although it may be whole.
fn rounded(ratio: f64) -> f64 {
    (ratio * 10_000.0).round() / 10_000.0
}

/// A text that may stand in a cell.
pub fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A chart of two series, the second of which has not everything.
    pub(crate) fn sample(kind: Kind) -> Chart {
        let spread = |median: f64| {
            Some(Spread {
                low: median * 0.75,
                median,
                high: median * 1.5,
            })
        };
        Chart {
            name: "sample",
            title: "Time of <init> & hello".into(),
            places: "PEs",
            at: ["16", "32", "8192"].map(str::to_owned).into(),
            unit: Unit::Seconds,
            kind,
            series: vec![
                Series {
                    name: "static".into(),
                    values: vec![spread(0.02), spread(0.08), None],
                },
                Series {
                    name: "on demand".into(),
                    values: vec![spread(0.01), spread(0.01), spread(0.016)],
                },
            ],
        }
    }

    #[test]
    fn tables_have_medians_quartiles_and_ratios() {
        let table = sample(Kind::Lines).table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[0],
            "| PEs | static | on demand | static / on demand |"
        );
        assert_eq!(lines[1], "|---|---:|---:|---:|");
        assert_eq!(
            lines[3],
            "| 32 | 80 ms (60 ms to 120 ms) | 10 ms (7.5 ms to 15 ms) | 8 |"
        );
        assert_eq!(lines[4], "| 8192 | – | 16 ms (12 ms to 24 ms) | – |");
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn counts_that_do_not_differ_have_no_spread() {
        let mut chart = sample(Kind::Stacks);
        chart.unit = Unit::Count;
        chart.at = vec!["EP | S".into()];
        for series in &mut chart.series {
            series.values = vec![Spread::of(&[63.0, 63.0])];
        }
        assert!(
            chart.table().ends_with("\n| EP \\| S | 63 | 63 |\n"),
            "{}",
            chart.table()
        );
    }

    #[test]
    fn bytes_are_written_as_such() {
        let mut chart = sample(Kind::Lines);
        chart.places = "bytes";
        assert_eq!([chart.place(0), chart.place(2)], ["16", "8 KiB"]);
    }
}
