//! How far the start of a subtree has come, told now and then while it takes long.

use super::Agent;
use crate::frame::Frame;

/// When a start has taken long enough for that, and the time between two messages.
const FIRST_NS: u64 = 800_000_000;
const PAUSE_NS: u64 = 200_000_000;

/// Nodes that are prepared, and PEs that run.
type Count = (u32, u32);

#[derive(Debug, Default)]
pub(super) struct Progress {
    /// That of each child.
    children: Vec<Count>,
    told: Count,
    /// When the next message may go; set by the first event.
    next: Option<u64>,
}

impl Agent {
    pub(super) fn child_progress(&mut self, child: usize, nodes: u32, pes: u32) {
        let of = &mut self.startup.progress.children;
        of.resize(of.len().max(child + 1), (0, 0));
        of[child] = (nodes, pes);
    }

    fn count(&self) -> Count {
        let own = (u32::from(self.startup.prepared), self.pes.started());
        let add = |a: Count, b: &Count| (a.0.saturating_add(b.0), a.1.saturating_add(b.1));
        self.startup.progress.children.iter().fold(own, add)
    }

    fn has_progress(&self) -> bool {
        let starting = self.setup.options.progress && !self.startup.reported && !self.life.stopping;
        starting && self.count() != self.startup.progress.told
    }

    /// When there is something to tell.
    pub(super) fn progress_due(&self) -> Option<u64> {
        self.startup.progress.next.filter(|_| self.has_progress())
    }

    pub(super) fn send_progress(&mut self, now: u64) {
        let next = *self
            .startup
            .progress
            .next
            .get_or_insert(now.saturating_add(FIRST_NS));
        if now >= next && self.has_progress() {
            let (nodes, pes) = self.count();
            self.startup.progress.told = (nodes, pes);
            self.startup.progress.next = Some(now.saturating_add(PAUSE_NS));
            self.parent.out.send(&Frame::Progress { nodes, pes });
        }
    }
}
