//! A host channel adapter in software, which speaks RoCEv2 over an ordinary UDP socket.
//!
//! # By itself
//! This crate and `shmem-verbs` are a RoCEv2 endpoint for any program; `examples/rocev2.rs` shows one that
//! writes into the memory of another. Open a [`SoftHca`], make a CQ and queue pairs, exchange addresses,
//! QPNs and PSNs by means of your own, connect ([`RcStart`](shmem_verbs::RcStart)), register memory, post,
//! poll. Whoever is written to while nobody polls keeps a thread in [`wait`](shmem_verbs::Hca::wait).
//! [`SoftConfig::interop`] is for peers that are devices of other makes.
//!
//! # Map
//! Whatever stands below knows nothing of what stands above.
//!
//! * `driver`: the engine over a UDP socket, and the threads that share it ([`SoftHca`]); TCP sockets for what is long
//!   ([`SoftConfig::stream`]).
//! * [`Engine`]: the whole HCA as a pure machine, generic over [`Memory`].
//! * `timers`: when which queue pair wants to be looked at; `qp`: what a queue pair holds.
//! * `rc`: the two halves of a reliable connection. **Where a packet is sent again** is
//!   `rc::requester::retransmission`; how much is in flight, and in which portions, is beside it.
//! * `queues`: requests and completions. `memory`: regions, their keys, raw access (unsafe).
//! * [`xrc`]: domains, in which the target of one process serves others.
//! * [`wire`] has the packets.
//!
//! # What it models
//! Everything of [`shmem_verbs`] with the rules of hardware: state transitions, keys and
//! rights, queue depths, ordering, receives and their absence, error completions and flushes.
//! What it lacks: memory windows, SEND with invalidate (whose packets are dropped), completion channels
//! and asynchronous events ([`Hca::wait`](shmem_verbs::Hca::wait) and
//! [`Hca::failure`](shmem_verbs::Hca::failure) stand for them), limits of shared receive queues,
//! draining (SQD), and automatic path migration.
//!
//! # Limits
//! The ICRC is a checksum and no signature: anyone who can read the packets of a peer can forge others. A process that
//! can only send from the peer's address and port lacks 32 bits of the ICRC, if both ends have a key
//! ([`Engine::set_key`]). Without a key, a packet has to name an rkey (32 bits, as secret as the system's random
//! numbers) and the next PSN (24 random bits). QPNs differ from process to process, but are no secrets.

mod driver;
mod engine;
mod limits;
mod memory;
mod proof;
mod qp;
mod queues;
mod rc;
mod secrets;
mod sync;
mod timers;
pub mod wire;
pub mod xrc;

pub use driver::{Faults, SoftConfig, SoftHca};
pub use engine::{Doorbell, Engine, Lent, Place, Transmit, stream};
pub use limits::{MAX_CQE, MAX_INLINE, MAX_MSG, MAX_QP_WR, MAX_RD_ATOMIC, MAX_SGE};
pub use memory::{Memory, RawMemory, VecMemory};

/// Finds out what is the same in every process of a program and slow to find out: which
/// instructions the processor has for the ICRC. A process that forks others calls it first.
pub fn warm_up() {
    std::hint::black_box(crc32fast::hash(&[0; 256]));
}
