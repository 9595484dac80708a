//! The software HCA over sockets of the loopback.
//!
//! - [`conformance`]: the checks that every HCA has to pass
//! - [`driver`]: how it sleeps and wakes, and who moves the wire
//! - [`strangers`]: who sends from a peer's address without the key of the job
//! - [`streams`]: long transfers over TCP
//! - [`endpoint`]: endpoints with threads as PEs, from connections on demand to errors
//! - [`xrc_processes`]: an XRC domain that several processes share

mod conformance;
mod driver;
mod endpoint;
mod strangers;
mod streams;
mod xrc_processes;
