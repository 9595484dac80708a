//! SP: the implicit step by scalar penta-diagonal systems, which are in [`npb_kernels::sp`].
//!
//! All else is in [`adi`], for BT too.

pub use npb_kernels::sp::{params, solver::Sp};

use crate::adi;
use crate::error::Error;
use crate::options::Options;
use crate::report::Report;

/// Runs SP on all PEs.
///
/// # Errors
/// If it does not run on this number of PEs, or its data does not fit into memory, or its
/// landing slots not into the symmetric heap.
pub fn run(options: &Options) -> Result<Report, Error> {
    adi::run::<Sp>(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::norms::root_mean_square;
    use crate::adi::partition::Partition;
    use crate::adi::plan::{Plan, Reach};
    use crate::adi::scheme::Scheme;
    use crate::adi::solver::Solver;
    use crate::class::Class;
    use crate::cpu::Level;
    use crate::exchange::Partners;

    /// On a single PE nothing is sent.
    struct Nobody;

    impl Partners for Nobody {
        fn send(&mut self, _: usize, _: usize, _: &[f64]) {
            panic!("a message of a single PE");
        }

        fn take<R>(&mut self, _: usize, _: usize, _: impl FnOnce(&[f64]) -> R) -> R {
            panic!("a single PE waits for a message");
        }

        fn take_any<R>(&mut self, _: usize, _: impl FnOnce(&[f64]) -> R) -> R {
            panic!("a single PE waits for a message");
        }
    }

    #[test]
    fn class_s_verifies_at_every_level() {
        let params = Sp::params(Class::S);
        for level in Level::supported() {
            let partition = Partition::new(params.n, 1).unwrap();
            let plan = Plan::new::<Sp>(partition, Reach::Node);
            let mut solver = Solver::<Sp>::new(plan, 0, &params, level).unwrap();
            for _ in 0..params.iterations {
                solver.step(&mut Nobody);
            }
            let computed = [solver.residual(&mut Nobody), solver.error()];
            for (sums, norms) in computed.iter().zip([params.residual, params.error]) {
                for (sum, expected) in sums.iter().zip(norms) {
                    let norm = root_mean_square(*sum, params.n);
                    assert!(
                        (norm / expected - 1.0).abs() < 1e-8,
                        "{level}: {norm} {expected}"
                    );
                }
            }
        }
    }
}
