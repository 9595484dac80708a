//! Telling for what this PE waits, in its block of the node's memory.
//!
//! Whoever is about to sleep tells it, after the polls and yields that most waits end in; so nothing is
//! told, and nothing costs, where an operation stays on its fast path.

use shmem_ib::connect::endpoint::{Awaited, Watch};
use shmem_node::pe_block::PeBlock;
use shmem_node::sys::monotonic_tick_ns;
use shmem_node::waiting::{Remote, Wait};

use crate::runtime::Runtime;

/// A wait that was told; it is over when this is dropped.
pub(crate) struct Told {
    block: &'static PeBlock,
    note: Option<usize>,
}

impl Told {
    /// Tells that the PE of this block waits.
    #[cold]
    pub(crate) fn begin(block: &'static PeBlock, wait: Wait) -> Self {
        let note = block.waiting.begin(monotonic_tick_ns(), &wait.encode());
        Self { block, note }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(note) = self.note {
            self.block.waiting.end(note, monotonic_tick_ns());
        }
    }
}

impl Runtime {
    /// Tells that this PE waits, until the result is dropped.
    pub(crate) fn tell_wait(&self, wait: Wait) -> Told {
        Told::begin(self.block, wait)
    }
}

/// The same for waits in the endpoint.
pub(crate) struct OfEndpoint(pub(crate) &'static PeBlock);

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

impl Watch for OfEndpoint {
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
