//! FT's kernels: transforms of lines and planes.
//!
//! | module | what it holds |
//! |---|---|
//! | [`params`], [`checksums`] | sizes, and the published results |
//! | [`slab`] | which points a PE has, and where they are in memory and in messages |
//! | [`lanes`] | eight complex numbers side by side |
//! | [`mod@fft`] | the transform of eight lines |
//! | [`plane`] | initial state, transforms along x and y |
//! | [`line`](mod@line) | transforms along z, with the decay |
//! | [`decay`] | what the time does |
//! | [`checksum`] | the points of the checksum |
//! | [`mod@reference`] | the transform by definition, for tests |

pub mod checksum;
pub mod checksums;
pub mod decay;
pub mod fft;
pub mod lanes;
pub mod line;
pub mod params;
pub mod plane;
pub mod reference;
pub mod slab;
#[cfg(test)]
mod tests;
