//! On-demand connections: how two PEs come to share a connected queue pair at first contact.
//!
//! A job of N PEs that connected everybody with everybody would make N(N-1) queue pairs before
//! the first line of the program runs, most of which no program ever uses. Here a PE starts
//! with one UD queue pair. When it uses another PE for the first time, the two exchange one
//! datagram each; these carry the numbers of a fresh RC queue pair on either side and the
//! <address, size, rkey> of the memory that may be accessed. From then on there are only
//! RDMA operations.
//!
//! # Map
//! * [`message`]: the datagrams, drawn bit by bit, and their authenticated codec.
//! * [`handshake`]: the state machine towards one peer, with its tables of states: connecting,
//!   making room (`drain.rs`), telling of changed memory (`segments.rs`), leaving (`leave.rs`).
//! * [`manager`]: the machines of all peers, timers, routing, counters, and who gets a queue pair
//!   if there may be only so many (`slots.rs`).
//! * [`xrc`]: the same for XRC, where one connection reaches all PEs of a node.
//! * [`endpoint`]: drives these over an [`Hca`](shmem_verbs::Hca), and offers one-sided
//!   operations that connect at first use.
//!
//! Everything but [`endpoint`] is pure: no socket, clock, thread or unsafe code.
//!
//! # Terms
//! * **incarnation**: a number that tells a process from its predecessor with the same PE
//!   number; later processes have larger ones.
//! * **generation**: counts the queue pairs that a process has made towards one peer.
//! * **epoch**: incarnation and generation; names one queue pair for good, while QPNs recur.
//! * **echo**: the epoch of the receiver for which the sender's queue pair is ready.
//! * **answered**: the peer may use the connection. **open**: we may use it, too.
//! * **drain**: to let a connection become idle in both directions, so that its queue pairs can
//!   go without an operation being lost or executed twice.
//! * **ticket**: place in the line of those who want a queue pair.
//! * **revision**: counts the changes of the memory that a PE offers.
//!
//! # Invariants
//! * Per pair of PEs there is at most one queue pair on each side at any time.
//! * A side sends RC packets only after the peer has proved, by an echo, that its queue pair is
//!   ready for exactly this queue pair; hence no packet runs into a retry timeout because it came
//!   too early.
//! * A queue pair that was open is never linked to anything else.
//! * Messages without the job's key, of another job, for another PE or of an earlier epoch change
//!   nothing and, unless authentic, are not answered.
//! * A PE never has more queue pairs than it was allowed, and none is closed to make room while an
//!   operation is under way on it in either direction.
//! * After the network has become kind, every wanted connection opens, however few queue pairs
//!   there are.
//!
//! `tests/handshake_sim` checks these: exhaustively for two and three endpoints within small
//! budgets of losses, repetitions and restarts, and for more in random networks.

mod address;
mod admission;
pub mod atomic;
pub mod endpoint;
pub mod handshake;
pub mod manager;
pub mod message;
pub mod spin;

mod stats;
mod sync;
mod way;
pub mod xrc;

pub use address::{AddressError, Published, UdAddress};
pub use stats::{ConnectStats, Latency, XrcStats};
pub use way::Way;

/// Jobs for tests that look inside of endpoints: the file of the kit, which calls this crate by its name.
#[cfg(test)]
#[path = "../../kit/src/job.rs"]
pub mod job;
#[cfg(test)]
extern crate self as shmem_connect;
