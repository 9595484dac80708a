//! Benchmarks of PMI: processes inside real jobs.
//!
//! * [`member`]: one process of a real job, and its calls.
//! * [`rounds`]: what is measured there, and how all begin at the same time.

pub mod member;
pub mod rounds;
