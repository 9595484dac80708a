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
//! What happens from the first use of a peer to the first RDMA, by the path:
//! 1. `endpoint/connecting/contact.rs`: an operation finds no connection, and asks the manager for one.
//! 2. [`manager`]: finds or makes the machine of that peer (`peers.rs`), and the queue pair that it may
//!    have (`room.rs`); keeps all deadlines (`timers.rs`).
//! 3. [`handshake`]: the machine towards one peer. `on_call.rs` sends the OFFER (`send.rs`), and
//!    `on_message.rs` says for each state what each message does. With XRC [`xrc`] is in its place, where
//!    one connection reaches all PEs of a node.
//! 4. [`interface`]: what the machines ask for; [`retry`]: when something is said again.
//! 5. [`message`]: the datagrams, drawn bit by bit, and their authenticated codec; `admission.rs`: which
//!    are let in.
//! 6. [`endpoint`]: drives these over an [`Hca`](shmem_verbs::Hca): `connecting/act.rs` makes and links
//!    queue pairs, and `operations/post.rs` posts to where the machine's [`Route`] leads.
//!
//! Everything but [`endpoint`] is pure: no socket, clock, thread or unsafe code.
//!
//! # Terms
//! * **generation**: counts the queue pairs that a process has made towards one peer, and so names one
//!   for good, while QPNs recur.
//! * **echo**: the generation of the receiver for which the sender's queue pair is ready.
//! * **answered**: the peer may use the connection. **open**: we may use it, too.
//! * **drain**: to let a connection become idle in both directions, so that its queue pairs can
//!   go without an operation being lost or executed twice.
//! * **ticket**: place in the line of those who want a queue pair.
//!
//! # Invariants
//! * Per pair of PEs there is at most one queue pair on each side at any time.
//! * A side sends RC packets only after the peer has proved, by an echo, that its queue pair is
//!   ready for exactly this queue pair; hence no packet runs into a retry timeout because it came
//!   too early.
//! * A queue pair that was open is never linked to anything else.
//! * Messages without the job's key, of another job, for another PE or of an earlier generation
//!   change nothing and, unless authentic, are not answered.
//! * A PE never has more queue pairs than it was allowed, and none is closed to make room while an
//!   operation is under way on it in either direction.
//! * After the network has become kind, every wanted connection opens, however few queue pairs
//!   there are.
//!
//! `tests/handshake` checks these: exhaustively for two and three endpoints within small
//! budgets of losses and repetitions, and for more in random networks.

mod address;
pub mod admission;
pub mod atomic;
pub mod endpoint;
pub mod handshake;
pub mod interface;
pub mod manager;
pub mod message;
pub mod retry;
mod route;
pub mod spin;
mod stats;
mod sync;
pub mod xrc;

pub use address::{AddressError, Published, UdAddress};
pub use route::Route;
pub use stats::{ConnectStats, Latency, XrcStats};

/// Jobs for tests that look inside of endpoints: the file of the kit, which calls this crate by its name.
#[cfg(test)]
#[path = "../../kit/src/job.rs"]
pub mod job;
#[cfg(test)]
extern crate self as shmem_connect;
