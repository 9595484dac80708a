//! Heartbeats on the links of an agent ([`crate::pulse`]): a child that is silent is lost, and one whose
//! parent is silent ends, for nobody is left who could tell it to.
//!
//! Not if the parent is on this machine and was stopped, by a debugger or by somebody who means to
//! continue it: then nothing is cut off, and whoever is above ends it if that must be.

use super::event::{Action, Event};
use super::{Agent, Phase};

impl Agent {
    /// Looks at the links if it is time to.
    pub(super) fn look_for_life(&mut self, now: u64) {
        if !self.rhythm.is_due(now) {
            return;
        }
        for child in 0..self.children.len() {
            if let Some(failure) = self.children[child].look_for_life(&self.rhythm, now) {
                self.child_failed(child, failure, now);
            }
        }
        self.look_for_parent(now);
    }

    fn look_for_parent(&mut self, now: u64) {
        self.parent.pulse.beat(&mut self.parent.out);
        if self.parent.pulse.look(&self.rhythm, now).is_none() {
            return;
        }
        // The launcher stops itself when it has stopped the PEs.
        if self.life.stopped.is_some() && self.setup.node == 0 {
            return self.parent.pulse.excuse();
        }
        self.actions.push_back(Action::FindParent);
    }

    /// What the driver has found of a parent that is silent.
    pub(super) fn parent_found(&mut self, stopped: bool) {
        match stopped {
            true => self.parent.pulse.excuse(),
            // It goes on since a moment ago, and has had no time to say so.
            false if self.parent.pulse.resumes() => {}
            false => self.die(),
        }
    }

    /// An event after the last frame was sent, which the parent may still have to take.
    pub(super) fn leave(&mut self, event: &Event<'_>, now: u64) {
        debug_assert_eq!(self.life.phase, Phase::Over);
        match event {
            Event::FromParent(_) => self.parent.pulse.received(now),
            Event::ParentClosed => self.die(),
            Event::ParentFound { stopped } => self.parent_found(*stopped),
            _ => {}
        }
        if self.rhythm.is_due(now) {
            self.look_for_parent(now);
        }
    }
}
