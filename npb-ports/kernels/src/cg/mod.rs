//! CG's kernels: the matrix, its product with a vector, and passes over vectors between products.
//!
//! | module | what it holds |
//! |---|---|
//! | [`params`] | sizes, iterations and reference results |
//! | [`region`] | which entries of the matrix a PE has |
//! | [`vectors`] | the random vectors that the matrix is made of |
//! | `tile` | some columns of all of its rows, as they lie in memory |
//! | `draft` | how the entries of a region are made of them |
//! | [`share`] | the entries of a region, and the product |
//! | [`vector_kernels`] | what is done between products |

mod draft;
pub mod params;
pub mod region;
pub mod share;
mod tile;
pub mod vector_kernels;
pub mod vectors;
