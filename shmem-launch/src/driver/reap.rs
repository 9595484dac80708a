//! The last thing that launcher and agents do: end and reap every descendant that is left.

use std::time::Duration;

use super::pmix;
use crate::sys::{self, Waited, monotonic_ns};

/// Pauses between two looks, at first and at most.
const PAUSE_FIRST: u64 = 200_000;
const PAUSE_LAST: u64 = 10_000_000;

/// All children are ended and reaped, but for one that is kept. Children of children that die become ours,
/// so it takes some looks.
#[derive(Debug)]
pub(super) struct Reaping {
    /// When those that are spared are killed, too.
    late: u64,
    /// When what is left cannot be killed.
    end: u64,
    again: u64,
    pause: u64,
    keep: Option<i32>,
}

impl Reaping {
    /// Protected children (agents that are exiting on their own, and PMIx servers) lose their protection after `patience`;
    /// all of it takes `limit` at most.
    pub(super) fn new(patience: Duration, limit: Duration, now: u64) -> Self {
        Self {
            keep: None,
            late: now + patience.as_nanos() as u64,
            end: now + limit.as_nanos() as u64,
            again: now,
            pause: PAUSE_FIRST,
        }
    }

    /// Leaves this child alone.
    pub(super) fn keeping(self, keep: Option<i32>) -> Self {
        Self { keep, ..self }
    }

    /// When to look again at the latest.
    pub(super) fn again(&self) -> u64 {
        self.again
    }

    /// Reaps, and kills whom `spare` does not protect. Whether that was all.
    pub(super) fn look(&mut self, spare: impl Fn(i32) -> bool, now: u64) -> bool {
        loop {
            match sys::wait(-1) {
                Waited::NoChild => return true,
                Waited::Child(..) => {}
                Waited::NotYet => break,
            }
        }
        let mut children = sys::children();
        children.retain(|&child| Some(child) != self.keep);
        if children.is_empty() && self.keep.is_some() {
            return true;
        }
        for child in children {
            if now >= self.late || !(spare(child) || pmix::is_server(child)) {
                sys::kill(child, libc::SIGKILL);
            }
        }
        self.again = now + self.pause;
        self.pause = (2 * self.pause).min(PAUSE_LAST);
        now >= self.end
    }
}

/// A whole [`Reaping`].
pub(super) fn reap_all(spare: impl Fn(i32) -> bool, patience: Duration, limit: Duration) {
    reap_all_but(None, spare, patience, limit);
}

/// One that keeps a child.
pub(super) fn reap_all_but(
    keep: Option<i32>,
    spare: impl Fn(i32) -> bool,
    patience: Duration,
    limit: Duration,
) {
    let mut now = monotonic_ns();
    let mut reaping = Reaping::new(patience, limit, now).keeping(keep);
    while !reaping.look(&spare, now) {
        std::thread::sleep(Duration::from_nanos(reaping.again - now));
        now = monotonic_ns();
    }
}
