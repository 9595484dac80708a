//! XRC domains: how a target queue pair in one process reaches shared receive queues and memory of
//! another process on its node.
//!
//! On a node with a real HCA all processes use one device, which knows every registration. Here each
//! process has a device of its own. So the processes of a domain share a table in which each lists
//! the numbers of its XRC receive queues, and those of its memory regions that lie in memory which
//! all of them map (the *window*: for instance the heaps of a node). A target that gets a packet for
//! a receive queue of another process looks up the region there and accesses it through its own
//! mapping.
//!
//! # Map
//! * `table`: layout and protocol, on words of shared memory; no system calls, no clock.
//! * `domains`: the domains that an HCA has open.
//! * `member`: one process in a domain, as the engine sees it ([`Domain`]).
//! * `map`: maps a domain's file (unsafe); `open`: from a descriptor to a domain.
//!
//! # Limits
//! RDMA writes, reads and atomics reach every process of the domain. A SEND, or a write with
//! immediate data, reaches receive queues of the process that owns the target queue pair only: a
//! receive is a thing between one process and its device. For others it is refused as invalid.
//!
//! Processes of a domain trust each other, as they do with any memory they share.

mod domains;
mod map;
mod member;
mod open;
mod table;

pub(crate) use domains::DomainTable;
pub use map::{FILE_LEN, FileId, SharedWindow, file_id};
pub use member::{Member, Private};
pub(crate) use open::open;
pub use table::Anonymous;

use shmem_verbs::{Mr, Rkey, SrqNum, VerbsError};

/// Who owns a receive queue that a packet names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SrqOwner {
    /// This process.
    Here,
    /// Another process of the domain.
    Elsewhere,
    /// Nobody: it was destroyed, or never existed.
    Nobody,
}

/// An XRC domain as the engine sees it.
pub trait Domain: Send + std::fmt::Debug {
    /// A number for a new receive queue of this process.
    ///
    /// # Errors
    /// The domain has no more.
    fn add_srq(&mut self) -> Result<SrqNum, VerbsError>;

    /// Takes a number back. Packets that still have it are refused.
    fn remove_srq(&mut self, srqn: SrqNum);

    /// Who owns a receive queue.
    fn owner(&self, srqn: SrqNum) -> SrqOwner;

    /// Lists a region, if it lies in the window.
    ///
    /// # Errors
    /// This process has listed as many regions as it can.
    fn publish(&mut self, mr: &Mr, access: shmem_verbs::Access) -> Result<(), VerbsError>;

    /// Takes a region off the list. When this returns, no other process is accessing it, and none
    /// will.
    fn withdraw(&mut self, rkey: Rkey);

    /// Begins accesses to memory of other processes; they end with [`Domain::exit`].
    fn enter(&self);

    /// Ends accesses to memory of other processes.
    fn exit(&self);

    /// Where this process finds `len` bytes at address `va` of the owner of `srqn`, if a region
    /// listed there under `rkey` covers them with all rights of `need`. The answer is good until
    /// [`Domain::exit`].
    fn resolve(&self, srqn: SrqNum, reach: &Reach) -> Option<u64>;
}

/// What a packet wants to touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach {
    /// Region.
    pub rkey: Rkey,
    /// First byte, as the owner of the region numbers it.
    pub va: u64,
    /// Bytes.
    pub len: u64,
    /// Rights that it takes.
    pub need: shmem_verbs::Access,
}
