//! What starts the PEs of the node: what it has started, and why it has gone too early.
//!
//! The socket and the process of a template end in any order. The process says why, so the agent waits for it a
//! while, and meanwhile reports nothing that supposes that the PEs run.

use super::Agent;
use crate::exit::{Cause, End};

/// How long the end of the template's process may take to follow that of its socket.
const TEMPLATE_DEATH_NS: u64 = 300_000_000;

/// What is known of its end.
#[derive(Debug, Default)]
pub(super) struct Template {
    /// It is not needed any more, or has gone.
    pub(super) done: bool,
    /// How it ended, if that is known before its socket's end.
    pub(super) end: Option<(End, Option<Cause>)>,
    /// It has gone too early, with so many PEs not started: until then its end is waited for.
    pub(super) lost: Option<(u64, u32)>,
}

impl Agent {
    pub(super) fn template_closed(&mut self, now: u64) {
        let expected = self.startup.template.done;
        self.startup.template.done = true;
        if !expected {
            let missing = self.pes.give_up_starting();
            if !self.life.stopping && missing > 0 {
                self.startup.template.lost = Some((now.saturating_add(TEMPLATE_DEATH_NS), missing));
                if let Some((end, why)) = self.startup.template.end.take() {
                    self.template_ended(end, why);
                }
            }
        }
    }

    pub(super) fn template_ended(&mut self, end: End, why: Option<Cause>) {
        match self.startup.template.lost.take() {
            Some((_, missing)) => self.template_failed(missing, Some(end), why),
            None => self.startup.template.end = Some((end, why)),
        }
    }

    /// The template has gone too early.
    pub(super) fn template_failed(&mut self, missing: u32, end: Option<End>, why: Option<Cause>) {
        let n_local = self.setup.n_local;
        let cause = why.unwrap_or_else(|| {
            let how = match end {
                Some(end) => format!("the program {end}"),
                None => "the program closed its socket to the launch agent".into(),
            };
            Cause::from(format!(
                "{how} while it was to fork PEs ({missing} of {n_local} were not started); \
                 SHMEM_SPAWN=exec may help"
            ))
        });
        if !self.life.stopping {
            self.fault(0, cause);
        }
    }
}
