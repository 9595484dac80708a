//! Verbs, a software HCA that speaks RoCEv2, and on-demand connections.
//!
//! # Map
//! * [`atomic`]: atomics on words by the processor.
//! * [`verbs`]: the least of InfiniBand verbs that this project uses, as `trait Hca` and
//!   plain types. Code that runs against it is legal on hardware: queue pair transitions
//!   are checked against a table ([`verbs::qp_table`]).
//! * [`wire`]: the packets of RoCEv2, encoded and decoded without allocation, and their
//!   invariant CRC.
//! * [`soft`]: the software HCA. [`soft::Engine`] is a pure machine (no socket, no clock);
//!   [`soft::SoftHca`] drives it over a UDP socket with no privileges.
//! * [`device`]: what a process uses, of whatever kind, and how it is found and chosen.
//! * [`sim`]: the same engine in a seeded virtual-time network with loss, duplication,
//!   reordering and delay.
//! * `sys` (feature `verbs`): RDMA devices through libibverbs.
//! * [`connect`]: how two processes come to share a connected queue pair at first contact.
//! * [`conformance`]: one suite of checks that every `Hca` has to pass.
//!
//! # Terms
//! * **PE**: processing element, one process of a job.
//! * **QP**: queue pair. *RC* is reliable and connected to one peer QP; *UD* is an unreliable
//!   datagram QP which may send to any UD QP whose `Q_Key` it knows.
//! * **MR**: a registered memory region, named locally by an *lkey* and by peers with an *rkey*.
//! * **CQ**: completion queue. **WR**: work request. **SGE**: the local buffer of a WR.
//! * **PSN**: 24-bit packet sequence number. **requester** and **responder** are the two halves
//!   of an RC queue pair: who sends requests, and who executes and acknowledges them.
//! * **AV**: address vector, says where the port of a queue pair is.
//!
//! # Invariants
//! * An RC operation whose completion was successful has been executed exactly once at the
//!   target, in posting order with respect to the other operations of that queue pair.
//! * All protocol code takes the time as `u64` nanoseconds from an arbitrary origin and its
//!   randomness from a seed: the same inputs give the same outputs.
//! * Unsafe code is confined to `soft::memory` (raw copies), `atomic`, `soft::socket`, `soft::epoll`
//!   and `soft::xrc::map` (system calls and mappings), to `sys` (libibverbs) and to the post functions,
//!   whose contract is the one of verbs: buffers stay valid until their completion.

pub mod atomic;
pub mod conformance;
pub mod connect;
pub mod device;
pub mod patience;
mod rest;
pub mod rng;
mod secrets;
pub mod sim;
pub mod soft;
mod sync;
#[cfg(feature = "verbs")]
pub mod sys;
pub mod verbs;
pub mod wire;

/// Finds out what is the same in every process of a program and slow to find out: which
/// instructions the processor has for the ICRC. A process that forks others calls it first.
pub fn warm_up() {
    std::hint::black_box(crc32fast::hash(&[0; 256]));
}
