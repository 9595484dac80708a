//! An XRC domain as the engine sees it.

#![forbid(unsafe_code)]

use shmem_verbs::{Access, Mr, Rkey, SrqNum, VerbsError};

/// Names a file: device and inode.
pub type FileId = (u64, u64);

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
    fn publish(&mut self, mr: &Mr, access: Access) -> Result<(), VerbsError>;

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
    pub need: Access,
}
