//! Processes that are started again (`--respawn`): the launcher counts, because the number is that of
//! the job.
//!
//! A new process has the rank of the old one and nothing of its memory. Collective operations go on
//! where the old one stood: what it had joined, the new one does not join again.

use super::Root;
use crate::exit::{Cause, Fault};
use crate::frame::Frame;

impl Root {
    /// A PE has failed that may be started again; its agent waits to hear what is to be done.
    pub(super) fn died(&mut self, fault: &Fault, now: u64) {
        let Cause::Pe { rank, .. } = fault.cause else {
            return self.fault(fault, now);
        };
        let done: u32 = self.respawned.values().sum();
        if self.ending || done >= self.setup.options.respawns {
            return self.fault(fault, now);
        }
        let count = self.respawned.entry(rank).or_insert(0);
        *count += 1;
        let count = *count;
        self.agent.out.send(&Frame::Respawn { rank, count });
        let told = fault.message(&self.setup.hosts).to_string();
        let of = self.setup.options.respawns;
        let text = format!("{told}; starting it again ({} of {of})", done + 1);
        self.say(&text);
    }
}
