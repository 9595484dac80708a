//! What a process needs that becomes the same PE of the same job again: what its last life has left, that
//! all of its node have begun the next one, and memory as it was in the beginning.

use std::sync::atomic::Ordering;
use std::time::Duration;

use shmem_node::layout::INTERNAL_SIZE;
use shmem_node::pe_block::PeState;
use shmem_node::settings::{HeapCommit, HeapPages, Settings};
use shmem_node::sys;
use shmem_node::waiting::Wait;

use crate::attach::Attached;
use crate::error::Error;
use crate::heap::access;
use crate::naps::{LAST_NAP, cores, driven_mpi};
use crate::runtime::{Runtime, ThreadLevel};
use crate::statics::Statics;
use crate::wait_report::WaitReport;

/// What the lives of this process so far have left.
pub(super) struct Past {
    /// Outermost inits so far.
    pub(super) lives: u32,
    /// Handles may outlive the finalize of their runtime, so none is freed. A life that is to be as the
    /// last one takes that one's, so a program that asks for the same each time has one. Kept here, they
    /// are no leaks to those who look for some.
    runtimes: Vec<&'static Runtime>,
    /// What the last one was made with.
    pub(super) settings: Option<Settings>,
}

impl Past {
    /// That of a process that was no PE yet.
    pub(super) const NONE: Self = Self {
        lives: 0,
        runtimes: Vec::new(),
        settings: None,
    };

    /// Keeps a runtime for as long as the process lives, and gives it.
    pub(super) fn keep(&mut self, rt: Runtime) -> &'static Runtime {
        let rt: &'static Runtime = Box::leak(Box::new(rt));
        self.runtimes.push(rt);
        rt
    }

    /// The last life's.
    pub(super) fn last(&self) -> Option<&'static Runtime> {
        self.runtimes.last().copied()
    }

    /// The last life's, if it can be that of a life with these settings, too.
    pub(super) fn alike(
        &self,
        settings: &Settings,
        statics: Statics,
        level: ThreadLevel,
    ) -> Option<&'static Runtime> {
        let same = |rt: &&Runtime| rt.ranges.statics == statics && rt.threads.are_again(level);
        self.last()
            .filter(same)
            .filter(|_| self.settings.as_ref() == Some(settings))
    }
}

/// Shortest sleep of a PE that waits for its neighbours to initialise again.
const FIRST_NAP: Duration = Duration::from_micros(20);

/// Waits until all PEs of this node have begun their `life`th life, so that nobody is left in the one
/// before. Polls, because whoever ends instead rings nobody.
pub(super) fn begin_together(attached: &Attached, life: u32) -> Result<(), Error> {
    let mut turn = None;
    let mut nap = FIRST_NAP;
    for (local, &rank) in attached.node.ranks().iter().enumerate() {
        let block = attached.node.pe_block(local);
        // ORDERING(life): pairs with the store in `init`.
        let begun = || block.life.load(Ordering::Acquire) >= life;
        let mut report = None;
        while !begun() {
            report.get_or_insert_with(|| {
                let mine = attached.node.pe_block(attached.local);
                WaitReport::begin(mine, Wait::InitAgain { pe: rank })
            });
            if block.state() == PeState::Finalized && sys::has_ended(block.pid()) && !begun() {
                return Err(Error::Launch(format!(
                    "PE {} initialises again, but PE {rank} has ended after its finalize: all \
                     PEs must initialise equally often",
                    attached.me
                )));
            }
            // It may wait in MPI for this process.
            if let Some(mpi) = driven_mpi() {
                mpi.progress();
            }
            std::thread::sleep(nap);
            nap = match nap < LAST_NAP {
                true => nap * 2,
                false => {
                    let turns = || attached.node.turns().each(LAST_NAP / cores());
                    turn.get_or_insert_with(|| turns().take()).after(LAST_NAP)
                }
            };
        }
    }
    Ok(())
}

/// Makes this PE's segment as it was before the first life. The PEs of this node are out of the
/// last one ([`begin_together`]); those of others are, since they have said
/// goodbye, and do not know yet where it is. Gives the bytes of the heap that may not be zero.
pub(super) fn clear(attached: &Attached, last: &Runtime, settings: &Settings) -> usize {
    let dirty = last
        .heap
        .lock()
        .unwrap_or_else(|e| e.into_inner())
        .fresh_from();
    // Memory that was set aside is kept.
    let lazy = settings.heap_commit == HeapCommit::Lazy && settings.heap_pages != HeapPages::Huge;
    let wiped = |at, len| {
        // SAFETY: the range lies in this PE's segment, which nobody uses, as said above.
        lazy && unsafe { sys::give_back(last.own(at), len) }
    };
    if !wiped(0, INTERNAL_SIZE) {
        // SAFETY: as above.
        unsafe { access::zero(last.own(0), INTERNAL_SIZE) };
    }
    match wiped(attached.node.heap_start(), sys::page_up(dirty)) {
        true => 0,
        false => dirty,
    }
}
