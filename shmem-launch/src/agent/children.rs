//! The children of an agent: what comes from their subtrees, and what becomes of it when one is lost.

use shmem_pmi::server::TreeLink;

use super::Agent;
use super::event::{Action, Service};
use crate::child::{self, Child};
use crate::frame::Frame;

impl Agent {
    pub(super) fn child_bytes(&mut self, child: usize, bytes: &[u8], now: u64) {
        let each = |agent: &mut Self, frame: Frame<'_>| agent.child_frame(child, frame, now);
        let answered = self.children[child].answered();
        let received = child::receive(self, |a| &mut a.children[child], bytes, now, each);
        if !answered && self.children[child].answered() {
            self.release_said(child, now);
        }
        if let Err(failure) = received {
            self.child_failed(child, failure, now);
        }
    }

    /// Starts children whose time has come, while not too many are waited for.
    pub(super) fn start_children(&mut self, now: u64) {
        if self.life.stopping || !self.children.iter().any(Child::is_waiting) {
            return;
        }
        let asked = self.children.iter().filter(|c| c.is_asked()).count();
        let room = (self.setup.starts as usize).saturating_sub(asked);
        let all = self.children.iter_mut().enumerate();
        let due = all.filter_map(|(at, c)| c.is_due(now).then_some(at));
        // All of them, so that the time of none passes again.
        let due: Vec<usize> = due.collect();
        for at in due.into_iter().take(room) {
            self.children[at].begin(now);
            self.actions.push_back(Action::StartChild(at));
        }
    }

    pub(super) fn child_started(&mut self, child: usize, started: Result<u32, String>, now: u64) {
        match started {
            Ok(pid) => self.children[child].begun(pid),
            Err(what) => {
                let failure = self.children[child].cannot_start(what, now);
                self.child_failed(child, failure, now);
            }
        }
    }

    /// Passes on what a remote shell has said that was held back.
    pub(super) fn release_said(&mut self, child: usize, now: u64) {
        let said = self.children[child].take_said();
        self.pass_said(child, &said, now);
    }

    pub(super) fn child_closed(&mut self, child: usize, drop: bool, now: u64) {
        self.output.shell_closed(child, now, &mut self.parent.out);
        self.output.child_closed(child, now, &mut self.parent.out);
        if drop {
            self.actions.push_back(Action::DropChild(child));
        }
    }

    /// Passed on as output of nobody's rank: the launcher knows hosts by the numbers after the last.
    pub(super) fn shell_text(&mut self, child: usize, text: &[u8], now: u64) {
        let said = self.children[child].shell_text(text);
        self.pass_said(child, &said, now);
    }

    fn pass_said(&mut self, child: usize, text: &[u8], now: u64) {
        if text.is_empty() {
            return;
        }
        let number = self.setup.n_pes + self.children[child].node();
        self.output
            .shell(child, number, text, now, &mut self.parent.out);
    }

    fn child_frame(&mut self, child: usize, frame: Frame<'_>, now: u64) {
        let c = &mut self.children[child];
        match frame {
            Frame::Ready => c.ready = true,
            Frame::Started => c.started = true,
            Frame::Exited => c.exited = true,
            Frame::Disconnected => c.disconnected = true,
            Frame::Progress { nodes, pes } => self.child_progress(child, nodes, pes),
            Frame::Stopping => c.stopping = true,
            Frame::Fault(fault) => self.pass_fault(fault),
            Frame::Cause(fault) => self.pass_cause(fault),
            Frame::Notice(notice) => self.notice(notice, now),
            Frame::Died(_) => {
                // One of its PEs may join again.
                c.disconnected = false;
                self.absence.disconnected_reported = false;
                self.parent.out.send(&frame);
            }
            Frame::Leaving => self.leaves(),
            Frame::Beat => {}
            Frame::Failed(_) | Frame::Print(_) => self.parent.out.send(&frame),
            Frame::StdinCredit(n) => self.input_taken(Some(child), n),
            Frame::Pmi(bytes) => self.tree(Service::Pmi, TreeLink::Child(child), bytes),
            Frame::Addresses(bytes) => {
                self.tree(Service::Addresses, TreeLink::Child(child), bytes);
            }
            Frame::Pmix(bytes) => self.pmix_tree(TreeLink::Child(child), bytes),
            Frame::Output { rank, stream, data } => {
                let from = (rank, stream);
                self.output
                    .relay(child, from, data, now, &mut self.parent.out);
                self.life.touch_flush(now);
            }
            Frame::Traced { .. } => self.parent.out.send(&frame),
            Frame::Counted { number, census } => self.counted(child, number, *census),
            Frame::Recorded {
                shift,
                sent,
                recording,
            } => self.parent.out.send(&Frame::Recorded {
                shift: shift.wrapping_add(c.late_by(sent, now)),
                sent: now,
                recording,
            }),
            Frame::Done(mut report) => {
                c.done(&mut report, now);
                self.gathered.report.get_or_insert_default().merge(&report);
                self.output.child_closed(child, now, &mut self.parent.out);
            }
            other => {
                let e = format!("a frame that only goes down: {}", other.kind());
                let failure = c.fail_to_understand(&e, now);
                self.child_failed(child, failure, now);
            }
        }
    }

    /// Looks for children that are lost, or that do not answer.
    pub(super) fn look_for_lost(&mut self, now: u64) {
        for child in 0..self.children.len() {
            if let Some(failure) = self.children[child].look(now) {
                self.child_failed(child, failure, now);
            }
        }
    }

    pub(super) fn return_credit(&mut self) {
        for (at, child) in self.children.iter_mut().enumerate() {
            if let Some(n) = self.output.take_owed(at)
                && !child.is_closed()
            {
                child.out.send(&Frame::Credit(n));
            }
        }
    }

    /// Whether something holds for every child that is still there.
    pub(super) fn all_children(&self, is: impl Fn(&Child) -> bool) -> bool {
        self.children.iter().all(|c| c.is_lost() || is(c))
    }
}
