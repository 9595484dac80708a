//! A host channel adapter in software, which speaks RoCEv2 over an ordinary UDP socket.
//!
//! # Map
//! * `engine` with `rx` and `tx`: the whole HCA as a pure machine, generic over [`Memory`];
//!   `modify` moves queue pairs between states, `checks` refuses what a verb may not do.
//! * `requester` with its `answers`, `responder`: the two halves of a reliable connection; `pacing` decides when
//!   to repeat and how much to send at once, `burst` in which portions,
//!   `share`: how much each of many peers may send.
//! * `wqe`, `receive`: work requests as they lie in queues; `sge`: their buffer lists.
//! * `ud`: datagrams. `srq`: shared receive queues. `events`: asynchronous events.
//! * [`xrc`]: domains, in which the target of one process serves others; `target`: whose memory
//!   a request may touch.
//! * `channel`: which CQs announce what they have; `notify`: the descriptors of channels and
//!   events.
//! * `mr`, `cq`, `qp`: tables of memory regions, completion queues and queue pairs; `slots`: what
//!   tables have in common.
//! * `memory`: raw access to the memory of this process (unsafe).
//! * `socket`, `epoll`: system calls (unsafe); `hca`: the driver and its threads, `verbs`: what they
//!   call; `shmem_verbs::provider::sleep`: how they sleep; `outbox`: what the kernel takes, and does not; `faults`: packet
//!   loss on purpose.
//!
//! # What it models
//! Everything of [`shmem_verbs`] with the rules of hardware: state transitions, keys and
//! rights, queue depths, ordering, receives and their absence, error completions and flushes.
//! What it lacks: memory windows and automatic path migration.
//!
//! # Limits
//! Anyone who can send from the address and port of a peer can forge its packets: the ICRC is
//! a checksum and no signature. What stands against those who cannot is that a packet has to name a key (32
//! bits, as secret as the system's random numbers) and the next PSN (24 random bits). QPNs differ from
//! process to process, but are no secrets.

mod burst;
mod checks;
mod cq;
mod engine;
#[cfg(test)]
mod failing_tests;
mod faults;
mod hca;
#[cfg(test)]
mod interop_tests;
#[cfg(test)]
mod long_read_tests;
mod memory;
mod modify;
mod mr;
mod outbox;
mod pacing;
mod qp;
mod receive;
mod requester;
mod responder;
mod rx;
mod secrets;
mod sge;
mod share;
mod socket;
mod srq;
mod target;
mod tx;
mod ud;
#[cfg(test)]
mod unwilling;
mod vec_memory;
mod verbs;
pub mod wire;
mod wqe;
pub mod xrc;
#[cfg(test)]
mod xrc_tests;

pub use engine::{
    Doorbell, Engine, MAX_CQE, MAX_INLINE, MAX_MSG, MAX_QP_WR, MAX_RD_ATOMIC, MAX_SGE,
};
pub use faults::Faults;
pub use hca::{SoftConfig, SoftHca};
pub use memory::RawMemory;
pub use mr::Memory;
pub use tx::Transmit;
pub use vec_memory::VecMemory;

/// Finds out what is the same in every process of a program and slow to find out: which
/// instructions the processor has for the ICRC. A process that forks others calls it first.
pub fn warm_up() {
    std::hint::black_box(crc32fast::hash(&[0; 256]));
}
