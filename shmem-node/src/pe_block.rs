//! The page that each PE has in its node's memory: how far it is, where to ring, what it counted.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::address::Address;
use crate::doorbell::Doorbell;
use crate::stats::StatsRecord;
use crate::sys;
use crate::waiting::Record;

/// How far a PE has come. The NLA reads it to tell a PE that ended in order from one that left
/// its peers waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum PeState {
    /// Has not called init: perhaps not an OpenSHMEM program at all.
    Fresh = 0,
    /// Is in init.
    Starting = 1,
    /// Init has returned.
    Running = 2,
    /// Is in finalize.
    Finalizing = 3,
    /// Finalize has returned.
    Finalized = 4,
}

/// One PE's block. Zeroed memory is a fresh block.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct PeBlock {
    state: AtomicU32,
    /// Process id, for messages of other PEs.
    pid: AtomicU32,
    /// How often the PE has begun to be one: before it does anything else in an init, it counts.
    pub life: AtomicU32,
    /// The thread that called init, for those who ask what the PE does while it waits for nobody. 0 before init and after
    /// finalize. The kernel may give the id of a thread that has ended to another one.
    thread: AtomicU32,
    /// The layout of this PE's static data, once that lies in its segment; else 0.
    pub statics: AtomicU64,
    /// Whether the PE compares what it calls with others (`SHMEM_CHECK`), from its init on.
    pub checks: AtomicU32,
    /// The UD address of this PE, until it has been handed to the agent.
    pub address: Address,
    /// Where others wake this PE.
    pub doorbell: Doorbell,
    /// For `shmrun --report`.
    pub stats: StatsRecord,
    /// How many collectives of the world team the PE has begun, for those who ask what it waits for. Nobody else
    /// looks at lines near it: it is written in each of them, and who rings looks at the doorbell.
    pub begun: AtomicU32,
    /// What the PE waits for.
    pub waiting: Record,
}

const _: () = {
    /// Bytes that processors pass to each other at a time, two lines of a cache.
    const LINE: usize = 128;
    assert!(
        offset_of!(PeBlock, begun) / LINE
            > (offset_of!(PeBlock, doorbell) + size_of::<Doorbell>() - 1) / LINE,
        "what is written often lies apart from what others read"
    );
};

impl PeBlock {
    /// Announces progress through the PE's life.
    pub fn set_state(&self, state: PeState) {
        if state == PeState::Starting {
            self.pid.store(std::process::id(), Ordering::Relaxed);
            self.thread.store(sys::thread_id(), Ordering::Relaxed);
        }
        if state == PeState::Finalized {
            self.thread.store(0, Ordering::Relaxed);
        }
        self.state.store(state as u32, Ordering::Release);
    }

    /// How far the PE has come.
    pub fn state(&self) -> PeState {
        match self.state.load(Ordering::Acquire) {
            0 => PeState::Fresh,
            1 => PeState::Starting,
            2 => PeState::Running,
            3 => PeState::Finalizing,
            _ => PeState::Finalized,
        }
    }

    /// Process id once init was called, else 0.
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Id of the thread that called init, 0 before that and after finalize.
    pub fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }
}
