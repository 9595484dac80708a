//! The start of the node's PEs: once the whole tree is prepared, the template is asked for them, a batch at a time.

use super::Agent;
use super::event::Action;
use super::life::Phase;
use super::progress::Progress;
use super::silence::Silence;
use super::template::Template;
use crate::exit::Cause;
use crate::frame::Frame;

/// How far the start has come.
#[derive(Debug, Default)]
pub(super) struct Startup {
    /// Whether segment, process group and template are there.
    pub(super) prepared: bool,
    /// Whether it was reported that all PEs of the subtree run.
    pub(super) reported: bool,
    pub(super) template: Template,
    /// Signals for programs that came before all PEs were there; each once, as the kernel keeps them.
    pub(super) early: Vec<u8>,
    pub(super) silence: Silence,
    pub(super) progress: Progress,
}

impl Agent {
    /// Asks for PEs, and lets the template end when all have been started.
    pub(super) fn advance_startup(&mut self) {
        if self.life.phase == Phase::Preparing
            && self.startup.prepared
            && self.all_children(|c| c.ready)
        {
            self.life.phase = Phase::Ready;
            self.parent.out.send(&Frame::Ready);
        }
        if self.life.phase == Phase::Starting {
            while let Some((first, count)) = self.pes.next_batch(self.setup.quota) {
                self.actions.push_back(Action::StartPes { first, count });
            }
        }
        // Why a template has gone too early is the cause, and comes before what its PEs are like.
        let template = &mut self.startup.template;
        let asked = self.pes.all_answered() && template.lost.is_none();
        if asked && (self.life.phase == Phase::Starting || self.life.stopping) {
            if !std::mem::replace(&mut template.done, true) {
                self.actions.push_back(Action::FinishTemplate);
            }
            self.life.phase = self.life.phase.max(Phase::Running);
            let early = std::mem::take(&mut self.startup.early).into_iter();
            if !self.life.stopping {
                self.actions.extend(early.map(Action::Signal));
            }
        }
    }

    /// The template has answered a request.
    pub(super) fn started(&mut self, pids: &[i32], error: Option<Cause>) {
        let asked = self.pes.answered(pids);
        if let Some(cause) = error {
            // PEs that cannot be started are not asked for again.
            self.pes.give_up_starting();
            self.fault(0, cause);
        } else if asked != pids.len() && !self.life.stopping {
            let what = format!("the template started {} of {asked} PEs", pids.len());
            self.fault(0, Cause::Node { what });
        }
    }

    /// Whether what starts PEs is still wanted.
    pub fn is_starting(&self) -> bool {
        !self.startup.template.done && !self.life.stopping
    }
}
