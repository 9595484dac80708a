//! What an agent does at some time, if nothing happens before.
//!
//! While the job is stopped (Ctrl-Z) its PEs cannot do what they have time for, so that time does not
//! count. Agents, on the other hand, go on, and so does what is expected of child agents.

use super::event::Action;
use super::{Agent, Child, Phase};
use crate::exit::ends;

impl Agent {
    /// When [`Event::Timer`](super::Event::Timer) is due at the latest.
    pub fn next_timeout(&self) -> Option<u64> {
        let children = self.children.iter().filter_map(Child::deadline).min();
        let output = self.output.deadline();
        let own = [
            self.life.kill_at,
            self.life.flush_at,
            self.startup.silence.deadline(),
            self.pes.next_disconnected(),
            self.progress_due(),
        ];
        let own = own
            .into_iter()
            .flatten()
            .filter(|_| self.life.stopped.is_none());
        let look = self.rhythm.deadline();
        let template = self.startup.template.lost.map(|(at, _)| at);
        let others = [
            look,
            self.count_deadline(),
            self.failures.pings.deadline(),
            template,
        ]
        .into_iter()
        .flatten();
        own.chain(children).chain(output).chain(others).min()
    }

    /// Does what is due.
    pub(super) fn timers(&mut self, now: u64) {
        if self.life.stopped.is_none() {
            self.own_timers(now);
        }
        if let Some((_, missing)) = self.startup.template.lost.take_if(|(at, _)| *at <= now) {
            self.template_failed(missing, None, None);
        }
        self.end_patience_with_server(now);
        self.look_for_lost(now);
        self.look_for_life(now);
    }

    fn own_timers(&mut self, now: u64) {
        while let Some(local) = self.pes.settle_closed(now) {
            self.servers.pmi.will_not_return(local as usize);
        }
        if self.life.kill_at.is_some_and(|at| at <= now) {
            self.life.kill_at = None;
            self.actions.push_back(Action::KillAll);
        }
    }

    /// Gives up on output that somebody holds. Only when what there was to read was read: an agent that was
    /// stopped itself, or did not get to run, is to blame for what it has not read.
    pub(super) fn end_flush(&mut self, now: u64) {
        if self.life.stopped.is_none() && self.life.flush_at.is_some_and(|at| at <= now) {
            self.life.flush_at = None;
            if self.life.phase == Phase::Finishing && self.may_read_output() {
                self.actions.push_back(Action::DropOutput);
                for (local, stream) in self.pes.close_all_output() {
                    self.output_closed(local, stream, now);
                }
            }
        }
    }

    /// When the job was stopped, while it is.
    pub fn stopped(&self) -> Option<u64> {
        self.life.stopped
    }

    /// A signal passes by that may stop the PEs or continue them.
    pub(super) fn note_stop(&mut self, signal: u8, now: u64) {
        match signal.into() {
            libc::SIGTSTP => {
                self.life.stopped.get_or_insert(now);
            }
            // Who is to end is continued for it.
            _ if signal == libc::SIGCONT as u8 || ends(signal) => {
                if let Some(since) = self.life.stopped.take() {
                    let by = now.saturating_sub(since);
                    self.actions.push_back(Action::Continued(by));
                    self.life.postpone(by);
                    self.pes.postpone_disconnected(by);
                }
            }
            _ => return,
        }
        self.output.set_stopped(self.life.stopped.is_some(), now);
    }
}
