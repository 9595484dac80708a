//! Waiting for memory that other PEs write.
//!
//! * This file: how a PE waits for anything: it polls, then sleeps.
//! * [`words`]: one word or many that compare as asked; over addresses, for every interface.
//! * [`typed`]: the same for symmetric arrays.

pub(crate) mod typed;
pub(crate) mod words;

use std::time::Duration;

use shmem_ib::spin;
use shmem_mpi::Mpi;
use shmem_node::doorbell::Pace;
use shmem_node::recording::Routine;
use shmem_node::stats::Stat;
use shmem_node::sys;
use shmem_node::waiting::Wait;

use crate::fault;
use crate::naps::{FIRST_NAP, LAST_NAP, driven_mpi};
use crate::recording::RecordedCall;
use crate::runtime::Runtime;
use crate::wait_report::WaitReport;

/// How often a PE that cannot be told of a change offers its core to others before it naps: a
/// device that is driven by the kernel may need it.
const YIELDS: u32 = 64;
/// A store of a program's own, by a thread of the PE that waits or through a pointer to another PE's
/// memory, rings no bell: how often a PE that waits for memory of the program looks for one, unless so
/// many PEs of the node wait that its turn comes later.
const FOR_SILENT_STORES: Pace = Pace {
    first: Duration::from_millis(1),
    last: Duration::from_millis(32),
};

/// After how many events of a PE that polls MPI has its turn.
const EVENTS: u32 = 64;

impl Runtime {
    /// Reports that this PE waits, until the result is dropped.
    pub(crate) fn report_wait(&self, wait: Wait) -> WaitReport {
        WaitReport::begin(self.block, wait)
    }

    /// Returns when `ready()` holds, which depends on memory of the program. As [`wait_for`], but sees
    /// changes that were made without the library, too, if late.
    ///
    /// [`wait_for`]: Self::wait_for
    pub(crate) fn wait_for_memory(&self, what: impl Fn() -> Wait, ready: impl FnMut() -> bool) {
        let begun = self.call_begins();
        self.wait_at(FOR_SILENT_STORES, &what, ready);
        self.call_ends(begun, || match what() {
            Wait::Memory { word, .. } => RecordedCall {
                at: word.at as usize,
                ..RecordedCall::of(word.form.into())
            },
            _ => RecordedCall::of(Routine::WaitUntil),
        });
    }

    /// Returns when `ready()` holds. Polls while cores are to spare, then sleeps; memory written
    /// by other PEs, of this node or of others, wakes it, and it polls again. `ready` may be asked
    /// again after it held; the last time it did. `what` tells what that is, when the PE goes to sleep.
    pub(crate) fn wait_for(&self, what: impl Fn() -> Wait, ready: impl FnMut() -> bool) {
        self.wait_at(Pace::RUNG, what, ready);
    }

    fn wait_at(&self, pace: Pace, what: impl Fn() -> Wait, mut ready: impl FnMut() -> bool) {
        if !self.spin_until(&mut ready) {
            self.sleep_at(pace, what, ready);
        }
    }

    #[cold]
    #[inline(never)]
    fn sleep_at(&self, pace: Pace, what: impl Fn() -> Wait, mut ready: impl FnMut() -> bool) {
        if sys::was_forked() {
            fault::is_no_pe();
        }
        let _report = self.report_wait(what());
        let mpi = driven_mpi();
        loop {
            if self.waits.notices_inbound && mpi.is_none() {
                let looks = self
                    .block
                    .doorbell
                    .sleep(self.waits.turns, pace, &mut ready);
                if looks > 0 {
                    self.block.stats.add(Stat::Looks, looks);
                }
            } else {
                self.look_again(mpi, &mut ready);
            }
            if self.spin_until(&mut ready) {
                return;
            }
        }
    }

    /// Returns when `ready()` holds or something has happened that may be the beginning of it. Other
    /// nodes may write this PE's memory without anybody noticing, so it looks now and then, the less
    /// often the longer it waits; and the PE that is to write it may wait in MPI for this process. What happens on this
    /// node still wakes it.
    #[cold]
    fn look_again(&self, mpi: Option<&Mpi>, mut ready: impl FnMut() -> bool) {
        // Before the rest, which others may cut short again and again.
        if let Some(mpi) = mpi {
            mpi.progress();
        }
        for _ in 0..YIELDS {
            std::thread::yield_now();
            if ready() || self.progress() {
                return;
            }
        }
        let turn = self.waits.turns.take();
        let mut nap = FIRST_NAP;
        while self.block.doorbell.nap(nap, &mut ready) && !ready() && !self.progress() {
            if let Some(mpi) = mpi {
                mpi.progress();
            }
            nap = match nap < LAST_NAP {
                true => nap * 2,
                false => turn.after(LAST_NAP),
            };
        }
    }

    /// Polls memory, and the network if there is one, until `ready()` holds or nothing has
    /// happened for the job's number of polls. Returns whether it holds. Whatever comes in counts:
    /// a PE that others use answers them at once for as long as they go on.
    pub(crate) fn spin_until(&self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        let (mut spin, mut events) = (self.waits.polls.spin(), 0u32);
        loop {
            if !self.waits.polls.again(&mut spin) {
                if spin.is_exhausted() {
                    spin::offer_core();
                }
                return ready();
            }
            if ready() {
                spin.succeeded();
                return true;
            }
            if self.progress() {
                spin.renew();
                events = events.wrapping_add(1);
                // Who asks again and again may wait for somebody who waits in MPI for this process.
                if events.is_multiple_of(EVENTS)
                    && let Some(mpi) = driven_mpi()
                {
                    mpi.progress();
                }
            } else if self.network.is_none() {
                // A poll of the network is a pause by itself.
                std::hint::spin_loop();
            }
        }
    }
}
