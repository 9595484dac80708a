//! MG's kernels: the operators of a V-cycle on one PE's blocks, and the right-hand side.
//!
//! | module | what it holds |
//! |---|---|
//! | [`params`] | sizes, smoothers and reference norms |
//! | [`grid`] | how a block lies in memory |
//! | [`stencil`] | operators that stay on a level |
//! | [`transfer`] | operators between a level and the one below it |
//! | [`operators`] | all of them, on planes and on fields |
//! | [`charges`] | the cells of the right-hand side |

pub mod charges;
pub mod grid;
pub mod operators;
pub mod params;
pub mod stencil;
pub mod transfer;

#[cfg(test)]
mod tests;
