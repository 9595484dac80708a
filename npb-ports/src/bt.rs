//! BT: five coupled equations, solved implicitly line by line, by the kernels in [`npb_kernels::bt`].
//!
//! All else is in [`adi`], for SP too.

pub use npb_kernels::bt::{Bt, params};

use crate::adi;
use crate::error::Error;
use crate::options::Options;
use crate::report::Report;

/// Runs the benchmark on all PEs.
///
/// # Errors
/// If it does not run on this number of PEs, or its data does not fit into memory, or its
/// landing slots not into the symmetric heap.
pub fn run(options: &Options) -> Result<Report, Error> {
    adi::run::<Bt>(options)
}
