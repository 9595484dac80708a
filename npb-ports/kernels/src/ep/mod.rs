//! EP's kernel: Gaussian deviates from uniform random numbers, counted.

pub mod kernel;
pub mod params;
