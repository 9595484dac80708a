//! Causes before consequences: the failure of one of the launcher's own processes counts more than those of PEs
//! that it causes, in whatever order an agent hears of them.
//!
//! # The node's PMIx server
//! PEs see its connections close, and fail. An agent therefore holds the failure of a PE back until the server
//! has answered a `Ping` that was sent later. If the server ends instead, that is what the agent reports. To look
//! whether its process has ended would not do: the kernel closes the connections of a process before its parent
//! can wait for it, and a busy machine may run others in between.
//!
//! # Agents below
//! PEs of other nodes fail when those of a dead agent are killed, and their failure may reach the launcher first.
//! The job ends then, with `Stop`, which each agent answers with `Stopping`. A child that is lost and has not
//! answered was lost before it knew of the end. That goes up as `Cause`, and the launcher corrects its status.
//! The node's PMIx server answers a `Ping` for the same purpose.

use std::collections::VecDeque;

use super::event::Action;
use super::{Agent, Phase};
use crate::child::Failure;
use crate::exit::{Cause, Fault, Loss};
use crate::frame::{Frame, ToServer};

/// How long the PMIx server may take to answer before the failure of a PE is reported nevertheless.
const ANSWER_NS: u64 = 5_000_000_000;

/// A PE's failure, as it is to be reported.
#[derive(Debug)]
pub(super) enum Report {
    /// It ends the job.
    Fault(Fault),
    /// The other PEs go on.
    Failed(Loss),
}

/// Questions for the PMIx server whether it works, and what waits for the answers.
#[derive(Debug, Default)]
pub(super) struct Pings {
    /// Number of the last `Ping`, and of the last one that was answered.
    sent: u64,
    answered: u64,
    /// Number of the last one that somebody waits for. It may have to be sent yet: one is on its way at a time.
    wanted: u64,
    /// The number that answers whether the server has outlived `Stop`.
    of_stop: Option<u64>,
    /// Failures of PEs, and the number that each waits for.
    held: VecDeque<(u64, Report)>,
    /// When they are not held back any longer.
    until: Option<u64>,
    /// The server has ended, or does not answer: nothing is held back.
    useless: bool,
}

/// What is reported of failures, and when.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Whether the PMIx server works, and what waits for the answer.
    pub(super) pings: Pings,
    /// Whether a fault has gone up: the job ends with it, and what follows is a consequence.
    pub(super) fault_sent: bool,
    /// Whether a cause of it that an agent heard of later has gone up.
    cause_sent: bool,
}

impl Pings {
    /// Whether a PE's failure still has to be reported.
    pub(super) fn hold_something(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether the server has outlived `Stop`.
    fn outlived_stop(&self) -> bool {
        self.of_stop.is_some_and(|of| self.answered >= of)
    }

    /// Whether an answer decides what is reported, so that the end of the PEs has to wait for it.
    pub(super) fn are_awaited(&self) -> bool {
        let of_stop = self.of_stop.is_some() && !self.outlived_stop();
        self.hold_something() || (of_stop && !self.useless)
    }

    /// Sets the end of patience, `from` which time somebody has waited.
    fn set_deadline(&mut self, from: u64) {
        self.until = self.are_awaited().then(|| from.saturating_add(ANSWER_NS));
    }

    /// When failures are reported without an answer.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.until
    }

    /// The number of a `Ping` that is sent from now on.
    fn want(&mut self) -> u64 {
        self.wanted = self.sent + 1;
        self.wanted
    }

    /// The next `Ping` to send.
    fn next(&mut self) -> Option<u64> {
        let due = self.wanted > self.sent && self.sent == self.answered && !self.useless;
        self.sent += u64::from(due);
        due.then_some(self.sent)
    }
}

impl Agent {
    /// Reports the failure of a PE of this node, when it is known that its PMIx server has not failed before.
    pub(super) fn report_pe(&mut self, report: Report, now: u64) {
        let hold = self.pmix.is_some() && !self.failures.pings.useless && !self.life.stopping;
        if !hold {
            return self.pass_report(report);
        }
        let number = self.failures.pings.want();
        self.failures.pings.held.push_back((number, report));
        if self.failures.pings.until.is_none() {
            self.failures.pings.set_deadline(now);
        }
        self.send_ping();
    }

    fn pass_report(&mut self, report: Report) {
        match report {
            Report::Fault(fault) => self.pass_fault(fault),
            Report::Failed(loss) => self.parent.out.send(&Frame::Failed(loss)),
        }
    }

    fn send_ping(&mut self) {
        if let Some(number) = self.failures.pings.next() {
            let mut bytes = Vec::new();
            ToServer::Ping(number).encode(&mut bytes);
            self.actions.push_back(Action::ToPmix(bytes));
        }
    }

    /// The server works: what failed before the question has failed by itself.
    pub(super) fn pong(&mut self, number: u64, now: u64) {
        let pings = &mut self.failures.pings;
        pings.answered = pings.answered.max(number.min(pings.sent));
        pings.useless = false;
        let ready = |(of, _): &(u64, Report)| *of <= pings.answered;
        let n = pings.held.iter().take_while(|held| ready(held)).count();
        let reports: Vec<_> = pings.held.drain(..n).collect();
        pings.set_deadline(now);
        for (_, report) in reports {
            self.pass_report(report);
        }
        self.send_ping();
    }

    /// Reports what the server does not answer for.
    pub(super) fn end_patience_with_server(&mut self, now: u64) {
        if self.failures.pings.until.is_some_and(|at| at <= now) {
            self.failures.pings.until = None;
            self.failures.pings.useless = true;
            for (_, report) in std::mem::take(&mut self.failures.pings.held) {
                self.pass_report(report);
            }
        }
    }

    /// The node's PMIx server has failed. PEs whose failure is held back have failed of it.
    pub(super) fn pmix_failed(&mut self, what: String) {
        let pings = &mut self.failures.pings;
        pings.useless = true;
        pings.until = None;
        pings.held.clear();
        let outlived = pings.outlived_stop() || self.life.phase >= Phase::Exited;
        let fault = Fault {
            node: self.setup.node,
            pid: 0,
            cause: Cause::Node { what },
        };
        self.pass_own_fault(fault, outlived);
    }

    /// `Stop` has come: what is lost from now on did not make the job fail.
    pub(super) fn note_end(&mut self, now: u64) {
        self.parent.out.send(&Frame::Stopping);
        // The launcher has its cause.
        self.failures.pings.held.clear();
        if self.pmix.is_some() && self.failures.pings.of_stop.is_none() {
            self.failures.pings.of_stop = Some(self.failures.pings.want());
            self.send_ping();
        }
        self.failures.pings.set_deadline(now);
    }

    /// A child has failed, and nothing more comes from its subtree.
    pub(super) fn child_failed(&mut self, child: usize, failure: Failure, now: u64) {
        self.release_said(child, now);
        let c = &self.children[child];
        let (loss, outlived) = (c.loss(failure.fault), c.outlived_stop());
        self.lose_subtree(loss, outlived);
        self.child_closed(child, failure.drop, now);
    }

    /// Reports a failure of the launcher's own. `outlived`: PEs that were reported have not failed of it.
    pub(super) fn pass_own_fault(&mut self, fault: Fault, outlived: bool) {
        match outlived {
            true => self.pass_fault(fault),
            false => self.pass_cause(fault),
        }
    }

    /// Reports a failure of the launcher's own of which PEs may have failed that were reported before, here or on
    /// the way to the launcher.
    pub(super) fn pass_cause(&mut self, fault: Fault) {
        // One for each host is told.
        if matches!(fault.cause, Cause::Unreachable { .. }) {
            return self.pass_fault(fault);
        }
        self.failures.fault_sent = true;
        if !std::mem::replace(&mut self.failures.cause_sent, true) {
            self.parent.out.send(&Frame::Cause(fault));
        }
    }
}
