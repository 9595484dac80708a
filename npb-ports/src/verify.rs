//! Comparison of results with the published reference values.

use crate::class::Class;
use crate::report::scientific;
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

/// All checks of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    class: Class,
    checks: Vec<Check>,
}

impl Verification {
    /// Collects the checks of a run of `class`.
    #[must_use]
    pub fn new(class: Class, checks: Vec<Check>) -> Self {
        Self { class, checks }
    }

    /// The checks, in the order of the report.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Whether there was a check and all of them pass.
    #[must_use]
    pub fn successful(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(Check::passes)
    }
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        let verdict = if self.successful() {
            "SUCCESSFUL"
        } else {
            "FAILED"
        };
        writeln!(f, " VERIFICATION {verdict}")
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
}
