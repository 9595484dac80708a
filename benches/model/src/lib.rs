//! Models of jobs in virtual time, for sizes that no machine at hand has.
//!
//! * [`exchange`]: PMI's exchanges; clients and servers are the real ones.
//! * [`scale`]: whole jobs; launcher, agents and connections are the real ones.
//! * [`agenda`]: what happens next, for both.
//!
//! `shmem-figures` draws what they show, and `tests/apps` compares them with real jobs. Nothing else is built with them.

pub mod agenda;
pub mod exchange;
pub mod scale;
