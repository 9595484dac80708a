//! How far the life of an agent has come, and what happens next if nothing else does.

/// How long output may stay silent at the end before descriptors that some escaped process holds
/// are given up.
pub(super) const FLUSH_NS: u64 = 1_000_000_000;

/// See the drawing in the head of the agent's module.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    #[default]
    Preparing,
    Ready,
    Starting,
    Running,
    Exited,
    /// Everything was killed; output is being flushed.
    Finishing,
    /// The driver is reaping.
    CleaningUp,
    Over,
}

/// How far it has come.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) phase: Phase,
    /// Whether the launcher has said that the job ends.
    pub(super) stopping: bool,
    /// Since when the job is stopped (Ctrl-Z).
    pub(super) stopped: Option<u64>,
    /// When PEs that were asked to end are killed.
    pub(super) kill_at: Option<u64>,
    /// When output that has not ended is given up.
    pub(super) flush_at: Option<u64>,
}

impl Life {
    /// When the job was stopped, while it is; or else now. What PEs have time for is counted by this.
    pub(super) fn clock(&self, now: u64) -> u64 {
        self.stopped.unwrap_or(now)
    }

    /// The end of patience with output begins anew.
    pub(super) fn await_output(&mut self, now: u64) {
        self.flush_at = Some(self.clock(now) + FLUSH_NS);
    }

    /// Output moves: an end of patience is pushed back.
    pub(super) fn touch_flush(&mut self, now: u64) {
        if self.phase == Phase::Finishing {
            self.await_output(now);
        }
    }

    /// The job was stopped for so long.
    pub(super) fn postpone(&mut self, by: u64) {
        for at in [&mut self.kill_at, &mut self.flush_at]
            .into_iter()
            .flatten()
        {
            *at = at.saturating_add(by);
        }
    }
}
