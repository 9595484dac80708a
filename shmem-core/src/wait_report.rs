//! Reports of what this PE waits for, in its block of the node's memory.
//!
//! A thread that is about to sleep reports its wait, after the polls and yields that most waits end in. So an
//! operation that stays on its fast path reports nothing, and pays nothing.

use shmem_ib::connect::endpoint::{Awaited, Watch};
use shmem_node::pe_block::PeBlock;
use shmem_node::sys::monotonic_tick_ns;
use shmem_node::waiting::{Remote, Wait};

/// A wait that was reported; it is over when this is dropped.
pub(crate) struct WaitReport {
    block: &'static PeBlock,
    note: Option<usize>,
}

impl WaitReport {
    /// Reports that the PE of this block waits.
    #[cold]
    pub(crate) fn begin(block: &'static PeBlock, wait: Wait) -> Self {
        let note = block.waiting.begin(monotonic_tick_ns(), &wait.encode());
        Self { block, note }
    }
}

impl Drop for WaitReport {
    fn drop(&mut self) {
        if let Some(note) = self.note {
            self.block.waiting.end(note, monotonic_tick_ns());
        }
    }
}

/// Reports the waits of an endpoint in the block of its PE.
pub(crate) struct EndpointWaits(pub(crate) &'static PeBlock);

/// A wait for the address of `pe`.
pub(crate) fn address_of(pe: u32) -> Wait {
    remote(Awaited::Address(pe))
}

fn remote(what: Awaited) -> Wait {
    let (what, pe, operations, more) = match what {
        Awaited::Address(pe) => (Remote::Address, pe, 0, 0),
        Awaited::Connection(pe) => (Remote::Connection, pe, 0, 0),
        Awaited::Memory(pe) => (Remote::Memory, pe, 0, 0),
        Awaited::Operation(pe) => (Remote::Operation, pe, 1, 0),
        Awaited::Room => (Remote::Operation, Wait::NOBODY, 0, 0),
        Awaited::Quiet {
            pe,
            operations,
            more,
        } => (Remote::Quiet, pe, operations, more),
        Awaited::Close => (Remote::Quiet, Wait::NOBODY, 0, 0),
        Awaited::Leave => (Remote::Leave, Wait::NOBODY, 0, 0),
    };
    Wait::Remote {
        what,
        pe,
        operations,
        more,
    }
}

impl Watch for EndpointWaits {
    fn begins(&self, what: Awaited) -> Option<usize> {
        let words = remote(what).encode();
        self.0.waiting.begin(monotonic_tick_ns(), &words)
    }

    fn goes_on(&self, wait: usize, what: Awaited) {
        self.0.waiting.change(wait, &remote(what).encode());
    }

    fn ends(&self, wait: usize) {
        self.0.waiting.end(wait, monotonic_tick_ns());
    }
}
