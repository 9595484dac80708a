//! The whole software HCA as one pure machine: no socket, no clock, no thread.
//!
//! # Contract
//! Four families of methods:
//! * verbs (`create_qp`, `post_send`, ...), as in [`shmem_verbs::Hca`];
//! * inputs: [`Engine::handle_datagram`], [`Engine::handle_timeout`];
//! * outputs: [`Engine::poll_transmit`], to be called until it gives nothing after any input
//!   or post, and [`Engine::poll_cq`];
//! * [`Engine::next_timeout`]: when `handle_timeout` wants to be called at the latest.
//!
//! `now` is in nanoseconds and never goes back.

//!
//! # Map
//! `machine`: the state, its timers, how queue pairs fail. `objects`: verbs that make and destroy;
//! `states`: queue pairs from one state to another; `post`: requests. `tx`, `rx`: packets; `placing`: long ones; `ud`:
//! datagrams. `stream`: what goes by TCP instead.

#![forbid(unsafe_code)]

mod machine;
mod objects;
mod placing;
mod post;
mod rx;
mod states;
pub mod stream;
mod tx;
mod ud;

pub use machine::Engine;
pub use placing::Place;
pub use post::Doorbell;
pub use tx::{Lent, Transmit};

#[cfg(test)]
#[path = "tests/holding.rs"]
mod holding_tests;
#[cfg(test)]
#[path = "tests/interop.rs"]
mod interop_tests;
#[cfg(test)]
#[path = "tests/pair.rs"]
mod pair_tests;
#[cfg(test)]
#[path = "tests/placing.rs"]
mod placing_tests;
#[cfg(test)]
#[path = "tests/strangers.rs"]
mod stranger_tests;
#[cfg(test)]
#[path = "tests/xrc.rs"]
mod xrc_tests;
