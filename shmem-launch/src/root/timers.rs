//! What the launcher does at some time, if nothing happens before.

use super::event::{Action, Setup};
use super::{Root, SIGCONT};
use crate::exit;
use crate::stdio::Turns;

/// How long agents may take to answer a `Stop` beyond the grace period, and the time in which they notice
/// that another one is silent.
pub(super) const PATIENCE_NS: u64 = 10_000_000_000;

/// When something is to be done. All of it is put off while the job is stopped.
#[derive(Debug)]
pub(super) struct Times {
    /// When the time limit is over.
    pub(super) deadline: Option<u64>,
    /// When agents are asked to end their PEs.
    pub(super) stop_at: Option<u64>,
    /// When agents that do not end are left to themselves.
    pub(super) give_up_at: Option<u64>,
    /// How often the user has interrupted the job, and so wants less patience.
    pub(super) interrupts: u32,
}

impl Times {
    pub(super) fn of(setup: &Setup) -> Self {
        let limit = |s: u64| setup.began.saturating_add(s.saturating_mul(1_000_000_000));
        Self {
            deadline: setup.options.timeout_s.map(limit),
            stop_at: None,
            give_up_at: None,
            interrupts: 0,
        }
    }

    /// The job was stopped for so long.
    fn postpone(&mut self, by: u64) {
        let times = [&mut self.deadline, &mut self.stop_at, &mut self.give_up_at];
        for at in times.into_iter().flatten() {
            *at = at.saturating_add(by);
        }
    }
}

impl Root {
    /// When [`Event::Timer`](super::Event::Timer) is due at the latest.
    pub fn next_timeout(&self) -> Option<u64> {
        if self.is_over() {
            return None;
        }
        let deadline = self.times.deadline.filter(|_| !self.outcome.decided);
        let of_pes = [deadline, self.times.stop_at, self.times.give_up_at];
        let of_pes = of_pes
            .into_iter()
            .filter(|_| self.clock(u64::MAX) == u64::MAX);
        let turns = self.output.turns.iter().filter_map(Turns::deadline).min();
        let look = self.rhythm.deadline().filter(|_| !self.outcome.finished);
        let others = [
            self.agent.deadline(),
            turns,
            look,
            self.output.progress.due(self.setup.began),
            self.answer_deadline(),
            self.watch_deadline(),
        ];
        of_pes.chain(others).flatten().min()
    }

    /// The job goes on after it was stopped. All that was to be done at some time is to be done so
    /// much later.
    pub(super) fn go_on(&mut self, by: u64) {
        self.pass_on(SIGCONT);
        self.times.postpone(by);
        self.agent.postpone(by);
    }

    pub(super) fn timers(&mut self, now: u64) {
        let clock = self.clock(now);
        let due = |at: Option<u64>| at.is_some_and(|at| at <= clock);
        if due(self.times.deadline) && self.end_with(exit::TIMEOUT) {
            self.print(&format!(
                "the time limit of {} s (--timeout) is over; ending the job",
                self.setup.options.timeout_s.unwrap_or(0)
            ));
            self.stop_with_waits(now);
        }
        self.look_for_stuck(now);
        if due(self.times.stop_at) {
            self.stop(self.grace_ns(), now);
        }
        if due(self.times.give_up_at) && !self.is_over() {
            // Text that waits for a slow reader shows that the agents are not to blame.
            if self.is_reader_slow(now) && self.times.interrupts < 3 {
                self.times.give_up_at = Some(clock.saturating_add(PATIENCE_NS));
            } else {
                self.print("the agents did not end in time; leaving their processes to the kernel");
                self.jobs.give_up();
                self.finish(now);
            }
        }
        if self.outcome.finished {
            return self.look_for_answer(now);
        }
        let mut failure = self.agent.look(now);
        if failure.is_none() && self.rhythm.is_due(now) {
            failure = self.agent.look_for_life(&self.rhythm, now);
        }
        if let Some(failure) = failure {
            self.agent_failed(&failure, now);
        }
        self.look_for_answer(now);
        if !self.outcome.decided && self.agent.is_due(now) {
            self.agent.begin(now);
            self.jobs.actions.push_back(Action::StartAgent);
        }
    }
}
