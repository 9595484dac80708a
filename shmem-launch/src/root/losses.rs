//! PEs that fail without ending the job.
//!
//! With `--keep-going` each is told when it happens, as far as somebody may want to read that, and all of them in the
//! end. The first decides the status of the job.
//!
//! With `--respawn` PEs are started again. The launcher counts, because the number is that of the job. A new process has
//! the rank of the old one and nothing of its memory. Collective operations go on where the old one stood: what it had
//! joined, the new one does not join again.

use std::collections::BTreeMap;

use super::{Root, SIGPIPE};
use crate::exit::{Cause, End, Fault, Loss, Ranks};
use crate::frame::Frame;

/// How many are told one by one.
const TOLD: usize = 20;

/// How many groups are told in the end.
const GROUPS: usize = 20;

#[derive(Debug, Default)]
pub(super) struct Losses {
    /// By the first PE, the last one and how they were lost.
    all: BTreeMap<u32, (u32, String)>,
    told: usize,
    /// How often each PE was started again.
    respawned: BTreeMap<u32, u32>,
}

impl Losses {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn pes(&self) -> u32 {
        self.all
            .iter()
            .map(|(first, (last, _))| last - first + 1)
            .sum()
    }

    /// Notes the loss of PEs. Those of them that were lost before keep their fate.
    fn add(&mut self, first: u32, last: u32, how: &str) {
        let before = self.all.range(first..=last);
        let before: Vec<(u32, u32)> = before.map(|(&from, &(to, _))| (from, to)).collect();
        let mut next = first;
        for (from, to) in before {
            if next < from {
                self.all.insert(next, (from - 1, how.to_owned()));
            }
            next = to.saturating_add(1);
        }
        if next <= last {
            self.all.insert(next, (last, how.to_owned()));
        }
    }

    /// Groups of consecutive PEs of the same fate.
    fn groups(&self) -> Vec<(u32, u32, &str)> {
        let mut groups: Vec<(u32, u32, &str)> = Vec::new();
        for (&first, (last, how)) in &self.all {
            match groups.last_mut() {
                Some((_, end, same)) if *end + 1 == first && same == how => *end = *last,
                _ => groups.push((first, *last, how)),
            }
        }
        groups
    }
}

impl Root {
    /// Whether output or input was lost, which the status tells.
    pub(super) fn output_lost(&self) -> bool {
        self.outcome.status != 0 && self.losses.is_empty()
    }

    /// Somebody failed whom an agent can go on without.
    pub(super) fn failed(&mut self, loss: Loss, now: u64) {
        if !self.setup.options.keep_going {
            return self.fault(&loss.fault, now);
        }
        if self.outcome.decided {
            return;
        }
        let cause = &loss.fault.cause;
        let piped = matches!(
            cause,
            Cause::Pe {
                end: End::Signal {
                    signal: SIGPIPE,
                    ..
                },
                ..
            }
        );
        if piped && self.output_lost() {
            return;
        }
        if self.outcome.status == 0 {
            self.outcome.status = loss.fault.status();
        }
        self.losses.told += 1;
        let told = loss.fault.message(&self.setup.hosts).to_string();
        match self.losses.told {
            ..=TOLD => self.print(&format!("{told}; the others go on")),
            n if n == TOLD + 1 => self.print("more PEs have failed; all are told in the end"),
            _ => {}
        }
        let how = match cause {
            Cause::Pe { end, .. } => end.to_string(),
            _ => {
                let node = loss.fault.node;
                let host = self.setup.hosts.get(node as usize);
                let host = host.map_or_else(String::new, |host| format!(" ({host})"));
                format!("lost with node {node}{host}")
            }
        };
        if !cause.is_of_a_pe() {
            self.agent.out.send(&Frame::Lost(loss.clone()));
        }
        self.losses.add(loss.first, loss.last, &how);
    }

    /// A PE has failed that may be started again; its agent waits to hear what is to be done.
    pub(super) fn died(&mut self, fault: &Fault, now: u64) {
        let Cause::Pe { rank, .. } = fault.cause else {
            return self.fault(fault, now);
        };
        let done: u32 = self.losses.respawned.values().sum();
        if self.outcome.decided || done >= self.setup.options.respawns {
            return self.fault(fault, now);
        }
        let count = self.losses.respawned.entry(rank).or_insert(0);
        *count += 1;
        let count = *count;
        self.agent.out.send(&Frame::Respawn { rank, count });
        let told = fault.message(&self.setup.hosts).to_string();
        let of = self.setup.options.respawns;
        let text = format!("{told}; starting it again ({} of {of})", done + 1);
        self.print(&text);
    }

    /// Tells of all of them.
    pub(super) fn print_losses(&mut self) {
        if self.losses.is_empty() {
            return;
        }
        let groups = self.losses.groups();
        let shown = groups.iter().take(GROUPS);
        let shown: Vec<_> = shown
            .map(|&(first, last, how)| format!("{} {how}", Ranks(first, last)))
            .collect();
        let more = match groups.len().saturating_sub(GROUPS) {
            0 => String::new(),
            n => format!("; and {n} more"),
        };
        let text = format!(
            "{} of {} PEs failed (--keep-going): {}{more}",
            self.losses.pes(),
            self.setup.n_pes,
            shown.join("; ")
        );
        self.print(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_lost_twice() {
        let mut losses = Losses::default();
        losses.add(5, 5, "killed");
        losses.add(4, 7, "lost with node 1");
        losses.add(4, 4, "late");
        losses.add(0, 9, "lost with node 0");
        let want = [
            (0, 3, "lost with node 0"),
            (4, 4, "lost with node 1"),
            (5, 5, "killed"),
            (6, 7, "lost with node 1"),
            (8, 9, "lost with node 0"),
        ];
        assert_eq!((losses.pes(), losses.groups()), (10, want.to_vec()));
    }
}
