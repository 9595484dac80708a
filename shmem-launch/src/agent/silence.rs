//! A template that does not answer: the user is told once what the job waits for.
//!
//! It may be at work, so it is left alone: how long a program may take before it starts is not for an agent to
//! say.

use super::{Agent, Phase};
use crate::frame::Frame;

/// How long an answer may take before the user is told.
const LONG_NS: u64 = 30_000_000_000;

/// Since when an answer is awaited.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When it has taken long, and how many PEs ran when that was set.
    overdue: Option<(u64, u32)>,
    reported: bool,
}

impl Silence {
    /// Notes that an answer is awaited while so many PEs run, or that none is. Says once that it has taken
    /// long.
    fn look(&mut self, awaited: bool, started: u32, now: u64) -> bool {
        if !awaited || self.reported {
            self.overdue = None;
            return false;
        }
        match self.overdue {
            Some((at, then)) if then == started => {
                self.reported = now >= at;
                if self.reported {
                    self.overdue = None;
                }
            }
            _ => self.overdue = Some((now.saturating_add(LONG_NS), started)),
        }
        self.reported
    }

    /// When to look again at the latest.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.overdue.map(|(at, _)| at)
    }
}

impl Agent {
    /// Tells once when an answer of the template takes long.
    pub(super) fn look_for_silence(&mut self, now: u64) {
        let going_on = !self.life.stopping && self.life.stopped.is_none();
        let awaited = self.life.phase == Phase::Starting && going_on && !self.pes.all_answered();
        let started = self.pes.started();
        if self.startup.silence.look(awaited, started, now) {
            let (node, n) = (self.setup.node, self.setup.n_local);
            let rank = self.setup.first_rank + started;
            self.parent.out.send(&Frame::Print(format!(
                "node {node} has waited {} s for PE {rank} to be started ({started} of {n} run): the program \
                 takes long before its main, where SHMEM_SPAWN=exec may help, or the machine does",
                LONG_NS / 1_000_000_000
            )));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_that_does_not_answer_is_told_of_once() {
        let mut silence = Silence::default();
        assert!(!silence.look(true, 0, 5));
        assert_eq!(silence.deadline(), Some(5 + LONG_NS));
        assert!(!silence.look(true, 0, 4 + LONG_NS));
        // It has answered, and another answer is awaited.
        assert!(!silence.look(true, 8, 6 + LONG_NS));
        assert_eq!(silence.deadline(), Some(6 + 2 * LONG_NS));
        assert!(silence.look(true, 8, 6 + 2 * LONG_NS));
        assert_eq!(silence.deadline(), None);
        assert!(!silence.look(true, 8, 7 + 3 * LONG_NS));
    }

    #[test]
    fn nothing_is_told_when_no_answer_is_awaited() {
        let mut silence = Silence::default();
        assert!(!silence.look(true, 0, 5));
        assert!(!silence.look(false, 0, 6));
        assert_eq!(silence.deadline(), None);
        assert!(!silence.look(true, 0, 9 + LONG_NS));
    }
}
