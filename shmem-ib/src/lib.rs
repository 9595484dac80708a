//! Verbs, a software HCA that speaks RoCEv2, RDMA devices, and on-demand connections.
//!
//! # Map
//! Each room is a crate in a folder of its own. An arrow means "knows of":
//!
//! ```text
//! connect ──────────────┐       on-demand connections, over whatever HCA
//! device ──> soft ──> verbs     which HCA: an RDMA device, or the software HCA
//! ```
//! * [`verbs`]: the least of InfiniBand verbs that this project uses, as `trait Hca` and
//!   plain types. Code that runs against it is legal on hardware: queue pair transitions
//!   are checked against a table ([`verbs::transitions`]).
//! * [`soft`]: the software HCA. [`soft::Engine`] is a pure machine (no socket, no clock);
//!   [`soft::SoftHca`] drives it over a UDP socket with no privileges. [`soft::wire`]: its packets.
//! * [`device`]: what a process uses, of whatever kind, and how it is found and chosen. RDMA
//!   devices are used through libibverbs, which is loaded where there is one.
//! * [`connect`]: how two processes come to share a connected queue pair at first contact.
//!
//! `kit`, which only tests use, has one suite of checks that every `Hca` has to pass, and HCAs in a
//! seeded virtual-time network with loss, duplication, reordering and delay.
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
//! * Unsafe code is confined to raw copies (`verbs::memory`, `soft::memory::raw`), atomics on words (`connect::atomic`), system
//!   calls and mappings (`soft::driver::{messages, pages, streams::bytes}`, `soft::xrc::map`), libibverbs (`device::ibv`), and to the post
//!   functions, whose contract is the one of verbs: buffers stay valid until their completion.

pub use shmem_connect as connect;
pub use shmem_device as device;
pub use shmem_soft as soft;
pub use shmem_verbs as verbs;

pub use shmem_connect::{atomic, spin};
pub use shmem_soft::{warm_up, wire};
pub use shmem_verbs::rng;
