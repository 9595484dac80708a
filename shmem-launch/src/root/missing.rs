//! Hosts whose agents could not be started. The first of them ends the job, but others that fail soon after, as
//! a whole rack may, are told, too, before it does: each by a line, and where they are many by their names.

use super::Root;
use crate::allocation::hostlist;
use crate::exit::Fault;

/// How long another one is waited for after each, and in all.
const WAIT_NS: u64 = 1_000_000_000;
const LONGEST_NS: u64 = 5_000_000_000;

/// Hosts that get a line.
const LINES: u32 = 16;

/// Those of a job.
#[derive(Debug)]
pub(super) struct Missing {
    /// When waiting ends at the latest.
    until: u64,
    lines: u32,
    /// Nodes of those without a line.
    more: Vec<u32>,
}

impl Root {
    /// The first host was told. Others are waited for, if there is somebody who could name them.
    pub(super) fn await_missing(&mut self, now: u64) -> bool {
        if !self.agent.answered() || self.agent.is_lost() {
            return false;
        }
        self.missing = Some(Missing {
            until: now.saturating_add(LONGEST_NS),
            lines: 1,
            more: Vec::new(),
        });
        self.times.stop_at = Some(now.saturating_add(WAIT_NS));
        true
    }

    /// Tells of another host, if others are waited for.
    pub(super) fn add_missing(&mut self, fault: &Fault, now: u64) {
        let Some(missing) = &mut self.missing else {
            return;
        };
        self.times.stop_at = Some(now.saturating_add(WAIT_NS).min(missing.until));
        if missing.lines == LINES {
            return missing.more.push(fault.node);
        }
        missing.lines += 1;
        let text = fault.message(&self.setup.hosts).to_string();
        self.print(&text);
    }

    /// No more are waited for.
    pub(super) fn end_missing(&mut self) {
        let Some(mut missing) = self.missing.take() else {
            return;
        };
        if missing.more.is_empty() {
            return;
        }
        missing.more.sort_unstable();
        let names = missing.more.iter().map(|&node| self.setup.host(node));
        let names = hostlist::fold(names);
        self.print(&format!(
            "nor could agents be started on {} more hosts: {names}",
            missing.more.len()
        ));
    }
}
