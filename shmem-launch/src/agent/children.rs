//! The children of an agent: what comes from their subtrees, and what becomes of it when one is lost.

use shmem_pmi::server::TreeLink;

use super::Agent;
use super::event::Action;
use crate::child::{self, Child, Failure};
use crate::frame::Frame;

impl Agent {
    pub(super) fn child_bytes(&mut self, child: usize, bytes: &[u8], now: u64) {
        let each = |agent: &mut Self, frame: Frame<'_>| agent.child_frame(child, frame, now);
        if let Err(failure) = child::receive(self, |a| &mut a.children[child], bytes, now, each) {
            self.child_failed(child, failure, now);
        }
    }

    /// A child has failed, and nothing more comes from its subtree.
    pub(super) fn child_failed(&mut self, child: usize, failure: Failure, now: u64) {
        let loss = self.children[child].loss(failure.fault);
        self.lose_subtree(loss);
        self.child_closed(child, failure.drop, now);
    }

    pub(super) fn child_closed(&mut self, child: usize, drop: bool, now: u64) {
        self.output.shell_closed(child, now, &mut self.up);
        self.output.child_closed(child, now, &mut self.up);
        if drop {
            self.actions.push_back(Action::DropChild(child));
        }
    }

    /// Passed on as output of nobody's rank: the launcher knows hosts by the numbers after the last.
    pub(super) fn shell_text(&mut self, child: usize, text: &[u8], now: u64) {
        let number = self.setup.n_pes + self.children[child].node();
        self.output.shell(child, number, text, now, &mut self.up);
    }

    fn child_frame(&mut self, child: usize, frame: Frame<'_>, now: u64) {
        let c = &mut self.children[child];
        match frame {
            Frame::Ready => c.ready = true,
            Frame::Started => c.started = true,
            Frame::Exited => c.exited = true,
            Frame::Disconnected => c.disconnected = true,
            Frame::Progress { nodes, pes } => self.child_progress(child, nodes, pes),
            Frame::Fault(fault) => self.pass_fault(fault),
            Frame::Notice(notice) => self.notice(notice, now),
            Frame::Died(_) => {
                // One of its PEs may join again.
                c.disconnected = false;
                self.disconnected_sent = false;
                self.up.send(&frame);
            }
            Frame::Beat => {}
            Frame::Failed(_) | Frame::Say(_) => self.up.send(&frame),
            Frame::StdinCredit(n) => self.input_taken(Some(child), n),
            Frame::Pmi(bytes) => self.pmi_tree(TreeLink::Child(child), bytes),
            Frame::Pmix(bytes) => self.pmix_tree(TreeLink::Child(child), bytes),
            Frame::Output { rank, stream, data } => {
                let from = (rank, stream);
                self.output.relay(child, from, data, now, &mut self.up);
                self.touch_flush(now);
            }
            Frame::Traced { .. } => self.up.send(&frame),
            Frame::Counted { number, census } => self.counted(child, number, *census),
            Frame::Done(mut report) => {
                c.done(&mut report, now);
                self.report.get_or_insert_default().merge(&report);
                self.output.child_closed(child, now, &mut self.up);
            }
            other => {
                let e = format!("a frame that only goes down: {other:?}");
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
