//! The link to the parent of an agent: what comes down it, and what goes on to the children first.

use shmem_pmi::question::Answer;
use shmem_pmi::server::TreeLink;

use super::Agent;
use super::event::{Action, Service};
use super::life::Phase;
use crate::exit::{Cause, is_for_programs};
use crate::frame::{Frame, FrameReader, OutBuf, each_frame};
use crate::pulse::Pulse;

/// The parent.
#[derive(Debug, Default)]
pub(super) struct Parent {
    reader: FrameReader,
    pub(super) out: OutBuf,
    /// What is known of its life.
    pub(super) pulse: Pulse,
}

impl Agent {
    pub(super) fn parent_bytes(&mut self, bytes: &[u8], now: u64) {
        let each = |agent: &mut Self, frame: Frame<'_>| agent.parent_frame(frame, now);
        if let Err(e) = each_frame(self, |agent| Some(&mut agent.parent.reader), bytes, each) {
            self.broken_parent(&e);
        }
    }

    /// There is no way to agree on anything with a parent that cannot be understood.
    fn broken_parent(&mut self, e: &dyn std::fmt::Display) {
        let what = format!("the link to the parent agent carries what cannot be understood: {e}");
        self.fault(0, Cause::Node { what });
        self.die();
    }

    fn parent_frame(&mut self, frame: Frame<'_>, now: u64) {
        // What an agent only hands on, it hands on first: the farther nodes need it soonest.
        match &frame {
            Frame::Go
            | Frame::Signal(_)
            | Frame::Stop { .. }
            | Frame::CloseOutput(_)
            | Frame::Respawn { .. }
            | Frame::Lost(_)
            | Frame::Trace { .. }
            | Frame::Finish => {
                for child in self.children.iter_mut().filter(|c| !c.is_closed()) {
                    child.out.send(&frame);
                }
            }
            _ => {}
        }
        match frame {
            Frame::Go if self.life.phase == Phase::Ready => {
                self.life.phase = Phase::Starting;
            }
            Frame::Go => {}
            Frame::Credit(n) => {
                self.output.grant(n, now, &mut self.parent.out);
                self.life.touch_flush(now);
            }
            Frame::Stdin(_) | Frame::StdinEnd => self.pass_input(&frame),
            // Before the last PE is started the template is in the group, and only a signal that
            // ends the job may end it.
            Frame::Signal(signal)
                if is_for_programs(signal) && self.life.phase < Phase::Running =>
            {
                if !self.startup.early.contains(&signal) {
                    self.startup.early.push(signal);
                }
            }
            Frame::Signal(signal) => {
                self.actions.push_back(Action::Signal(signal));
                self.note_stop(signal, now);
            }
            Frame::Stop { grace_ns } => self.stop(grace_ns, now),
            Frame::CloseOutput(stream) => self.actions.push_back(Action::CloseOutput(stream)),
            Frame::Finish if self.life.phase < Phase::Finishing => {
                self.life.phase = Phase::Finishing;
                self.life.kill_at = None;
                self.actions.push_back(Action::KillAll);
                self.life.await_output(now);
            }
            Frame::Finish => {}
            Frame::Pmi(bytes) => self.tree(Service::Pmi, TreeLink::Parent, bytes),
            Frame::Addresses(bytes) => self.tree(Service::Addresses, TreeLink::Parent, bytes),
            Frame::Pmix(bytes) => self.pmix_tree(TreeLink::Parent, bytes),
            Frame::Answer {
                asker,
                ticket,
                answer,
            } => match Answer::decode(answer) {
                Ok(answer) => self.servers.pmi.handle_answer(asker, ticket, answer),
                Err(e) => self.broken_parent(&e),
            },
            Frame::Respawn { rank, count } => self.respawn(rank, count),
            Frame::Beat => {}
            Frame::Lost(loss) => self.lost(&loss),
            Frame::Count { number, budget_ms } => self.begin_count(number, budget_ms, now),
            Frame::Trace {
                number,
                pes,
                budget_ms,
            } => self.trace(number, pes, budget_ms),
            other => self.broken_parent(&format!("a frame that only goes up: {}", other.kind())),
        }
    }

    /// Input goes to the children first, like all that is passed on.
    fn pass_input(&mut self, frame: &Frame<'_>) {
        for child in self.input.children() {
            if !self.children[child].is_closed() {
                self.children[child].out.send(frame);
            }
        }
        if self.input.is_for_own() {
            self.actions.push_back(match frame {
                Frame::Stdin(data) => Action::Stdin(data.to_vec()),
                _ => Action::StdinEnd,
            });
        }
    }

    pub(super) fn input_taken(&mut self, child: Option<usize>, n: u32) {
        if let Some(n) = self.input.taken(child, n) {
            self.parent.out.send(&Frame::StdinCredit(n));
        }
    }
}
