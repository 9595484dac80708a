//! What a benchmark prints: the text of the reference programs, which scripts parse, or JSON.
//!
//! The text comes from three places. [`Console`](crate::console::Console) prints what the reference
//! prints before and in the timed region: the title (by itself), the size and the iterations
//! ([`opening`](crate::console::Console::opening), called first in a benchmark's `run`), lines such
//! as ` Time step   20` ([`say`](crate::console::Console::say)). A [`Report`] shows the rest when
//! `run` returns it: `results_text` if there is any (EP's sums and counts, MG's initialization
//! time), the [`Verification`], and the part that all benchmarks have in common. Which layout the
//! verification has depends on how it was made:
//!
//! | made by | for |
//! |---|---|
//! | [`Verification::of_norms`] | BT, SP, LU: " Comparison of RMS-norms of residual", numbered lines |
//! | [`Verification::of_value`] | MG, CG: " VERIFICATION SUCCESSFUL", " L2 Norm is", " Error is" |
//! | [`Verification::of_checksums`] | FT: " Result verification successful", after the lines of checksums |
//! | [`Verification::of_counts`] | IS: nothing, or what failed |
//! | [`Verification::new`] | EP and others: a line for each check |

use crate::class::Class;
use crate::verify::Verification;
use std::fmt::{self, Write as _};

/// The release of the reference programs whose definitions and constants are followed.
pub const VERSION: &str = "3.4.1";

/// Problem size, as reports show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// One number: keys, rows, random numbers.
    Count(u64),
    /// Points of a grid in each direction.
    Grid([u32; 3]),
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Grid([x, y, z]) => write!(f, "{x:>4}x{y:>4}x{z:>4}"),
        }
    }
}

/// The result of one run, the same on every PE.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The benchmark in capitals: `EP`.
    pub name: &'static str,
    /// The class that was run.
    pub class: Class,
    /// Its size.
    pub size: Size,
    /// Iterations of the timed region; 0 for a benchmark without.
    pub iterations: u32,
    /// Duration of the timed region on the slowest PE.
    pub seconds: f64,
    /// PEs of the job.
    pub processes: usize,
    /// PEs among them that had work.
    pub active: usize,
    /// Operations of the timed region, by the benchmark's own definition.
    pub operations: f64,
    /// What those operations are.
    pub operation_type: &'static str,
    /// Comparison with the reference values.
    pub verification: Verification,
    /// The benchmark's own results: name and value.
    pub results: Vec<(&'static str, Value)>,
    /// The same as the reference program would print it before the common part; may be empty.
    pub results_text: String,
}

/// A result that only one benchmark has.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count.
    Count(u64),
    /// Several counts.
    Counts(Vec<u64>),
    /// A number with a fraction.
    Real(f64),
    /// A name.
    Text(String),
}

impl Report {
    /// Millions of operations a second of all PEs together.
    #[must_use]
    pub fn mops(&self) -> f64 {
        // A time too short to measure would give what a report cannot show.
        if self.seconds > 0.0 {
            self.operations / self.seconds / 1e6
        } else {
            0.0
        }
    }

    /// Millions of operations a second and PE.
    #[must_use]
    pub fn mops_per_process(&self) -> f64 {
        self.mops() / self.processes.max(1) as f64
    }

    /// One JSON object on one line. Numbers that JSON can't hold (NaN) become `null`.
    #[must_use]
    pub fn json(&self) -> String {
        let mut out = format!(
            "{{\"name\":{},\"class\":\"{}\"",
            quoted(self.name),
            self.class
        );
        let _ = match self.size {
            Size::Count(count) => write!(out, ",\"size\":{count}"),
            Size::Grid([x, y, z]) => write!(out, ",\"size\":[{x},{y},{z}]"),
        };
        let _ = write!(
            out,
            ",\"iterations\":{},\"seconds\":{},\"processes\":{},\"active_processes\":{},\
             \"mops\":{},\"mops_per_process\":{},\"operation_type\":{},\"verified\":{},\
             \"version\":{},\"checks\":[",
            self.iterations,
            number(self.seconds),
            self.processes,
            self.active,
            number(self.mops()),
            number(self.mops_per_process()),
            quoted(self.operation_type),
            self.verification.successful(),
            quoted(VERSION),
        );
        for (i, (check, passed)) in self.verification.verdicts().enumerate() {
            let _ = write!(
                out,
                "{}{{\"name\":{},\"value\":{},\"reference\":{},\"tolerance\":{},\"passed\":{}}}",
                if i > 0 { "," } else { "" },
                quoted(check.name),
                number(check.value),
                number(check.reference),
                number(check.tolerance),
                passed,
            );
        }
        out.push_str("],\"results\":{");
        for (i, (name, value)) in self.results.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let _ = write!(out, "{comma}{}:", quoted(name));
            let _ = match value {
                Value::Count(count) => write!(out, "{count}"),
                // The debug form of integers is a JSON array.
                Value::Counts(counts) => write!(out, "{counts:?}"),
                Value::Real(value) => write!(out, "{}", number(*value)),
                Value::Text(text) => write!(out, "{}", quoted(text)),
            };
        }
        out.push_str("}}");
        out
    }
}

/// The report as text, in the layout of the reference programs.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.verification.successful() {
            "SUCCESSFUL"
        } else {
            "UNSUCCESSFUL"
        };
        if !self.results_text.is_empty() {
            writeln!(f, "{}", self.results_text)?;
        }
        writeln!(f, "{}", self.verification)?;
        writeln!(f, "\n {} Benchmark Completed.", self.name)?;
        writeln!(f, " Class           = {:>24}", self.class)?;
        writeln!(f, " Size            = {:>24}", self.size.to_string())?;
        writeln!(f, " Iterations      = {:>24}", self.iterations)?;
        writeln!(f, " Time in seconds = {:>24.2}", self.seconds)?;
        writeln!(f, " Total processes = {:>24}", self.processes)?;
        writeln!(f, " Active processes= {:>24}", self.active)?;
        writeln!(f, " Mop/s total     = {:>24.2}", self.mops())?;
        writeln!(f, " Mop/s/process   = {:>24.2}", self.mops_per_process())?;
        writeln!(f, " Operation type  = {:>24}", self.operation_type)?;
        writeln!(f, " Verification    = {verdict:>24}")?;
        writeln!(f, " Version         = {VERSION:>24}")
    }
}

fn number(value: f64) -> String {
    if value.is_finite() {
        format!("{value:?}")
    } else {
        "null".to_owned()
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Check;

    fn sample() -> Report {
        let check = Check {
            name: "norm",
            value: 1.5,
            reference: 1.5,
            tolerance: 1e-8,
        };
        Report {
            name: "XX",
            class: Class::W,
            size: Size::Grid([24, 24, 1020]),
            iterations: 200,
            seconds: 1.25,
            processes: 4,
            active: 3,
            operations: 5e9,
            operation_type: "floating point",
            verification: Verification::new(Class::W, vec![check]),
            results: vec![
                ("pairs", Value::Count(7)),
                ("counts", Value::Counts(vec![3, 4])),
                ("dt", Value::Real(1e-3)),
                ("simd", Value::Text("a\"b\\c\n".to_owned())),
            ],
            results_text: "XX Results".to_owned(),
        }
    }

    #[test]
    fn text_has_the_layout_of_the_reference() {
        let expected = "XX Results
 Verification being performed for class W
         norm           1.500000000000000E+00   1.500000000000000E+00    0.00E+00 <= 1E-08
 VERIFICATION SUCCESSFUL


 XX Benchmark Completed.
 Class           =                        W
 Size            =             24x  24x1020
 Iterations      =                      200
 Time in seconds =                     1.25
 Total processes =                        4
 Active processes=                        3
 Mop/s total     =                  4000.00
 Mop/s/process   =                  1000.00
 Operation type  =           floating point
 Verification    =               SUCCESSFUL
 Version         =                    3.4.1
";
        assert_eq!(sample().to_string(), expected);
    }

    #[test]
    fn the_rate_of_no_time_is_zero() {
        let report = Report {
            seconds: 0.0,
            ..sample()
        };
        assert_eq!(report.mops(), 0.0);
    }

    #[test]
    fn failure_is_in_both_places() {
        let mut report = sample();
        let check = Check {
            name: "norm",
            value: f64::NAN,
            reference: 1.5,
            tolerance: 1e-8,
        };
        report.verification = Verification::new(Class::W, vec![check]);
        let text = report.to_string();
        assert!(text.contains("\n Verification    =             UNSUCCESSFUL\n"));
        assert!(text.contains("\n VERIFICATION FAILED\n"));
        assert!(!text.contains(" SUCCESSFUL"));
        assert!(report.json().contains("\"verified\":false"));
        assert!(report.json().contains("\"value\":null"));
    }

    #[test]
    fn json_is_one_object() {
        assert_eq!(
            sample().json(),
            "{\"name\":\"XX\",\"class\":\"W\",\"size\":[24,24,1020],\"iterations\":200,\
             \"seconds\":1.25,\"processes\":4,\"active_processes\":3,\"mops\":4000.0,\
             \"mops_per_process\":1000.0,\"operation_type\":\"floating point\",\"verified\":true,\
             \"version\":\"3.4.1\",\"checks\":[{\"name\":\"norm\",\"value\":1.5,\"reference\":1.5,\
             \"tolerance\":1e-8,\"passed\":true}],\"results\":{\"pairs\":7,\"counts\":[3, 4],\
             \"dt\":0.001,\"simd\":\"a\\\"b\\\\c\\u000a\"}}"
        );
    }
}
