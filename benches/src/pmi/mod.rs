//! Benchmarks of PMI: processes inside real jobs, and jobs in virtual time.
//!
//! * [`member`]: one process of a real job, and its calls.
//! * [`rounds`]: what is measured there, and how all begin at the same time.
//! * [`model`]: jobs of real clients and servers whose time is made of costs.

pub mod member;
pub mod model;
pub mod rounds;
