//! What BT and SP share: everything but the solution of the line systems. What one PE computes
//! of the flow, LU's too, is in [`npb_kernels::adi`]: coefficients, fields, exact solution, right-hand side, sweeps
//! through a cell, faces, norms. This module adds the messages.
//!
//! | module | what it holds |
//! |---|---|
//! | [`pipeline`] | the order of a sweep: batches of lines, and their landing slots |
//! | [`plan`] | how large the batches are, what all PEs agree on |
//! | [`solver`] | the time step of a PE and its messages |
//! | [`mod@run`] | the benchmark |

pub mod pipeline;
pub mod plan;
pub mod run;
pub mod solver;
#[cfg(test)]
pub(crate) mod tests;

pub use npb_kernels::adi::{
    constants, directions, exact, faces, field, initialize, norms, partition, reference, rhs,
    scheme, sweep,
};
pub use run::run;
