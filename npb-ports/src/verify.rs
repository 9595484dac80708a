//! Comparison of results with the published reference values.

use crate::class::Class;
use crate::numbers::{fortran, scientific};
use std::fmt;

/// One quantity, what it should be and how far it may be off.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What is compared, for the report.
    pub name: &'static str,
    /// The computed value.
    pub value: f64,
    /// The published value; not 0.
    pub reference: f64,
    /// The largest relative error that passes.
    pub tolerance: f64,
}

impl Check {
    /// |(value - reference) / reference|.
    #[must_use]
    pub fn relative_error(&self) -> f64 {
        ((self.value - self.reference) / self.reference).abs()
    }

    /// Whether the error is within the tolerance. A result that is not a number fails.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.relative_error() <= self.tolerance
    }
}

/// RMS norms or other values of one kind, compared with as many published ones.
#[derive(Clone, Copy, Debug)]
pub struct Norms<'a> {
    /// What they are, as the reference programs call it: "RMS-norms of residual".
    pub kind: &'static str,
    /// The computed values, one or more.
    pub values: &'a [f64],
    /// The published ones, as many.
    pub references: &'a [f64],
}

/// All checks of one run, and how the reference program of the benchmark shows them.
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    class: Class,
    checks: Vec<Check>,
    layout: Layout,
}

/// How checks are shown as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// A line for each, then the verdict.
    List,
    /// The verdict, then value and error of each.
    Values,
    /// Numbered under the name of each kind, then the verdict.
    Norms,
    /// The verdict alone. Checks are pairs: the real and the imaginary part of a number.
    Checksums,
    /// Nothing but what failed.
    Counts,
}

impl Verification {
    /// Checks that the reference program does not show (EP): a line for each, with its name, then
    /// the verdict.
    #[must_use]
    pub fn new(class: Class, checks: Vec<Check>) -> Self {
        Self {
            class,
            checks,
            layout: Layout::List,
        }
    }

    /// The verdict first, then "NAME is VALUE" and "Error is ...", as the reference shows the norm
    /// of MG and the zeta of CG.
    #[must_use]
    pub fn of_value(class: Class, check: Check) -> Self {
        Self {
            class,
            checks: vec![check],
            layout: Layout::Values,
        }
    }

    /// Norms of several components under a heading for each kind, as the reference shows them for
    /// BT, SP and LU. `tolerance` is the largest relative error that passes.
    ///
    /// # Panics
    /// If there are more or fewer references of a kind than values.
    #[must_use]
    pub fn of_norms(class: Class, tolerance: f64, norms: &[Norms<'_>]) -> Self {
        let of_kind = |norms: &Norms<'_>| {
            assert_eq!(norms.values.len(), norms.references.len(), "{}", norms.kind);
            let (name, pairs) = (norms.kind, norms.values.iter().zip(norms.references));
            pairs
                .map(|(&value, &reference)| Check {
                    name,
                    value,
                    reference,
                    tolerance,
                })
                .collect::<Vec<_>>()
        };
        Self {
            class,
            checks: norms.iter().flat_map(of_kind).collect(),
            layout: Layout::Norms,
        }
    }

    /// Complex numbers, real part first, as the reference of FT shows them: it prints each as soon as it has it, so the
    /// verdict alone is left. `tolerance` is for the difference relative to the published number, as complex numbers; a check for
    /// each part has the verdict of both.
    ///
    /// # Panics
    /// If there are more or fewer references than values.
    #[must_use]
    pub fn of_checksums(
        class: Class,
        tolerance: f64,
        values: &[[f64; 2]],
        references: &[[f64; 2]],
    ) -> Self {
        assert_eq!(values.len(), references.len(), "checksums");
        let part = |name, value, reference| Check {
            name,
            value,
            reference,
            tolerance,
        };
        let parts = |(value, reference): (&[f64; 2], &[f64; 2])| {
            [
                part("checksum, real part", value[0], reference[0]),
                part("checksum, imaginary part", value[1], reference[1]),
            ]
        };
        Self {
            class,
            checks: values.iter().zip(references).flat_map(parts).collect(),
            layout: Layout::Checksums,
        }
    }

    /// Things that were right, by kind: its name, how many were right and how many there are. The reference shows none
    /// of IS's, unless some are wrong.
    #[must_use]
    pub fn of_counts(class: Class, counts: &[(&'static str, u64, u64)]) -> Self {
        let of_kind = |&(name, right, all): &(_, u64, u64)| Check {
            name,
            value: right as f64,
            reference: all as f64,
            tolerance: 0.0,
        };
        Self {
            class,
            checks: counts.iter().map(of_kind).collect(),
            layout: Layout::Counts,
        }
    }

    /// The checks, in the order of the report. Norms of one kind follow each other and have its
    /// name.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// The checks, and whether each passes.
    pub fn verdicts(&self) -> impl Iterator<Item = (&Check, bool)> {
        let together = match self.layout {
            Layout::Checksums => 2,
            Layout::List | Layout::Values | Layout::Norms | Layout::Counts => 1,
        };
        self.checks.chunks(together).flat_map(|parts| {
            let passes = match parts {
                [re, im] => complex_passes(re, im),
                _ => parts.iter().all(Check::passes),
            };
            parts.iter().map(move |check| (check, passes))
        })
    }

    /// Whether there was a check and all of them pass.
    #[must_use]
    pub fn successful(&self) -> bool {
        !self.checks.is_empty() && self.verdicts().all(|(_, passes)| passes)
    }

    fn list(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, " Verification being performed for class {}", self.class)?;
        for check in &self.checks {
            writeln!(
                f,
                " {} {:<12}{:>24}{:>24}{:>12} <= {}",
                if check.passes() { "       " } else { "FAILURE" },
                check.name,
                scientific(check.value, 15),
                scientific(check.reference, 15),
                scientific(check.relative_error(), 2),
                scientific(check.tolerance, 0),
            )?;
        }
        writeln!(f, " VERIFICATION {}", self.verdict())
    }

    fn values(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n Benchmark completed")?;
        writeln!(f, " VERIFICATION {}", self.verdict())?;
        for check in &self.checks {
            let name = check.name;
            let value = fortran(check.value, 13);
            writeln!(f, " {name} is {value:>20}")?;
            if check.passes() {
                let error = fortran(check.relative_error(), 13);
                writeln!(f, " Error is   {error:>20}")?;
            } else {
                let reference = fortran(check.reference, 13);
                writeln!(f, " The correct {name} is {reference:>20}")?;
            }
        }
        Ok(())
    }

    fn norms(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, " Verification being performed for class {}", self.class)?;
        if let Some(check) = self.checks.first() {
            let tolerance = fortran(check.tolerance, 13);
            writeln!(f, " accuracy setting for epsilon = {tolerance:>20}")?;
        }
        for kind in self.checks.chunk_by(|a, b| a.name == b.name) {
            writeln!(f, " Comparison of {}", kind[0].name)?;
            for (i, check) in kind.iter().enumerate() {
                let verdict = if check.passes() { "" } else { "FAILURE: " };
                let number = match kind.len() {
                    1 => String::new(),
                    _ => (i + 1).to_string(),
                };
                writeln!(
                    f,
                    " {verdict:9}{number:>2}{:>20}{:>20}{:>20}",
                    fortran(check.value, 13),
                    fortran(check.reference, 13),
                    fortran(check.relative_error(), 13),
                )?;
            }
        }
        let verdict = if self.successful() {
            "Successful"
        } else {
            "failed"
        };
        writeln!(f, " Verification {verdict}")
    }

    fn checksums(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.successful() {
            "successful"
        } else {
            "failed"
        };
        writeln!(f, " Result verification {verdict}")?;
        writeln!(f, " class = {}", self.class)
    }

    fn counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in self.checks.iter().filter(|check| !check.passes()) {
            let Check {
                name,
                value,
                reference,
                ..
            } = check;
            writeln!(
                f,
                " Failed verification: {name}: {value} of {reference} right"
            )?;
        }
        Ok(())
    }

    fn verdict(&self) -> &'static str {
        if self.successful() {
            "SUCCESSFUL"
        } else {
            "FAILED"
        }
    }
}

/// Whether a complex number is within the tolerance of the published one, given its parts. What is not a number fails.
fn complex_passes(re: &Check, im: &Check) -> bool {
    let error = f64::hypot(re.value - re.reference, im.value - im.reference);
    error / f64::hypot(re.reference, im.reference) <= re.tolerance
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layout {
            Layout::List => self.list(f),
            Layout::Values => self.values(f),
            Layout::Norms => self.norms(f),
            Layout::Checksums => self.checksums(f),
            Layout::Counts => self.counts(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: f64, reference: f64) -> Check {
        Check {
            name: "sum",
            value,
            reference,
            tolerance: 1e-8,
        }
    }

    #[test]
    fn tolerance_is_relative_and_inclusive_of_both_signs() {
        assert!(check(-2e5 * (1.0 + 0.9e-8), -2e5).passes());
        assert!(check(-2e5 * (1.0 - 0.9e-8), -2e5).passes());
        assert!(!check(-2e5 * (1.0 + 1.1e-8), -2e5).passes());
        assert!(!check(2e5, -2e5).passes());
        assert!(check(1.5e-20, 1.5e-20).passes());
        assert!(!check(1.6e-20, 1.5e-20).passes());
    }

    #[test]
    fn what_is_no_number_fails() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(!check(bad, 1.0).passes());
            let all = Verification::new(Class::S, vec![check(1.0, 1.0), check(bad, 1.0)]);
            assert!(!all.successful());
            assert!(all.to_string().ends_with(" VERIFICATION FAILED\n"));
        }
    }

    #[test]
    fn nothing_checked_is_not_a_success() {
        assert!(!Verification::new(Class::S, Vec::new()).successful());
    }

    #[test]
    fn text_shows_each_check_and_the_verdict() {
        let text = Verification::new(Class::A, vec![check(1.0, 1.0), check(3.0, 2.0)]).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], " Verification being performed for class A");
        assert!(
            lines[1].starts_with("         sum ") && lines[1].contains("1.000000000000000E+00")
        );
        assert!(lines[2].starts_with(" FAILURE sum ") && lines[2].ends_with("5.00E-01 <= 1E-08"));
        assert_eq!(lines[3], " VERIFICATION FAILED");
        let good = Verification::new(Class::A, vec![check(1.0, 1.0)]).to_string();
        assert!(good.ends_with(" VERIFICATION SUCCESSFUL\n"));
    }

    #[test]
    fn norms_stand_under_their_kinds() {
        let norms = |values: &[f64]| {
            let references = [0.1703428370954131, 2.0];
            let kinds = [
                Norms {
                    kind: "RMS-norms of residual",
                    values,
                    references: &references,
                },
                Norms {
                    kind: "surface integral",
                    values: &[4.0],
                    references: &[4.0],
                },
            ];
            Verification::of_norms(Class::S, 1e-8, &kinds).to_string()
        };
        assert_eq!(
            norms(&[0.1703428370954131, 2.0]),
            " Verification being performed for class S
 accuracy setting for epsilon =  0.1000000000000E-07
 Comparison of RMS-norms of residual
           1 0.1703428370954E+00 0.1703428370954E+00 0.0000000000000E+00
           2 0.2000000000000E+01 0.2000000000000E+01 0.0000000000000E+00
 Comparison of surface integral
             0.4000000000000E+01 0.4000000000000E+01 0.0000000000000E+00
 Verification Successful
"
        );
        let failed = norms(&[f64::NAN, 2.0]);
        let line = failed.lines().nth(3).unwrap();
        assert!(
            line.starts_with(" FAILURE:  1                 NaN 0.17034"),
            "{line}"
        );
        assert!(failed.ends_with("\n Verification failed\n"));
    }

    #[test]
    fn checksums_are_compared_as_complex_numbers() {
        let references = [[3.0, 4.0], [500.0, 0.25]];
        let verification = |off: [f64; 2]| {
            let mut values = references;
            for (value, off) in values[1].iter_mut().zip(off) {
                *value += off;
            }
            Verification::of_checksums(Class::A, 1e-3, &values, &references)
        };
        // Far off for a part of 0.25, but not for a number of 500.
        let good = verification([0.0, 0.4]);
        assert!(good.successful() && !good.checks()[3].passes());
        assert!(good.verdicts().all(|(_, passes)| passes));
        let text = " Result verification successful\n class = A\n";
        assert_eq!(good.to_string(), text);
        // Each part might pass, both together do not.
        for off in [[0.4, 0.4], [f64::NAN, 0.0], [0.0, f64::INFINITY]] {
            let bad = verification(off);
            let verdicts: Vec<_> = bad.verdicts().map(|(_, passes)| passes).collect();
            assert_eq!(verdicts, [true, true, false, false]);
            assert!(bad.to_string().starts_with(" Result verification failed\n"));
        }
    }

    #[test]
    fn counts_are_shown_if_something_is_wrong() {
        let counts =
            |right| Verification::of_counts(Class::S, &[("ranks", right, 50), ("parts", 2, 2)]);
        assert!(counts(50).successful());
        assert_eq!(counts(50).to_string(), "");
        for wrong in [0, 49, 51] {
            assert!(!counts(wrong).successful());
            let expected = format!(" Failed verification: ranks: {wrong} of 50 right\n");
            assert_eq!(counts(wrong).to_string(), expected);
        }
    }

    #[test]
    fn a_value_stands_below_the_verdict() {
        let norm = |value| {
            let reference = 0.530_770_700_573_4e-4;
            Verification::of_value(
                Class::S,
                Check {
                    name: "L2 Norm",
                    value,
                    reference,
                    tolerance: 1e-8,
                },
            )
            .to_string()
        };
        assert_eq!(
            norm(0.5307707005734e-4),
            "
 Benchmark completed
 VERIFICATION SUCCESSFUL
 L2 Norm is  0.5307707005734E-04
 Error is    0.0000000000000E+00
"
        );
        assert_eq!(
            norm(0.5e-4),
            "
 Benchmark completed
 VERIFICATION FAILED
 L2 Norm is  0.5000000000000E-04
 The correct L2 Norm is  0.5307707005734E-04
"
        );
    }
}
