//! An engine over a UDP socket: what the kernel and the threads of a program have to do with it.
//!
//! * `hca`: one engine, one socket, and the threads that share them; `verbs`: what these call; `domains`: XRC
//!   domains of files.
//! * `socket`: packets in trains, sleeping; `messages`: its system calls by hand (unsafe); `pages`: buffers
//!   (unsafe).
//! * `streams`: TCP, for what is long.
//! * `outbox`: what the kernel takes, and does not; `faults`: packet loss on purpose.

mod config;
mod cutting;
mod domains;
mod faults;
mod hca;
mod messages;
mod outbox;
mod pages;
mod socket;
mod streams;
mod verbs;

pub use config::SoftConfig;
pub use faults::Faults;
pub use hca::SoftHca;

#[cfg(test)]
#[path = "tests/failing.rs"]
mod failing_tests;
#[cfg(test)]
#[path = "tests/long_read.rs"]
mod long_read_tests;
#[cfg(test)]
#[path = "tests/marks.rs"]
mod marks_tests;
#[cfg(test)]
#[path = "tests/unwilling.rs"]
mod unwilling;
