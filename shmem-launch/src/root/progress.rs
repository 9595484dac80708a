//! What a start that takes long has come to, on a line of the terminal that is erased when it is over.
//!
//! It is shown where standard error is a terminal, from a second after the start until all PEs run, or until one
//! of them writes something: its line is never mixed with theirs.

use super::Setup;
use super::sink::Sink;

/// When a start has taken long.
const LONG_NS: u64 = 1_000_000_000;

/// To the beginning of the line, and nothing more on it.
const ERASE: &[u8] = b"\r\x1b[K";

/// What the start has come to, and what has been shown of it.
#[derive(Debug)]
pub(super) struct Progress {
    /// Nodes that are prepared.
    pub(super) nodes: u32,
    /// PEs that run.
    pub(super) pes: u32,
    /// What stands on the terminal, if anything does.
    shown: Option<(u32, u32)>,
    over: bool,
    /// The line is being erased: who writes to the same terminal by another stream has to wait.
    erasing: bool,
}

impl Progress {
    pub(super) fn new(is_wanted: bool) -> Self {
        Self {
            nodes: 0,
            pes: 0,
            shown: None,
            over: !is_wanted,
            erasing: false,
        }
    }

    /// When there is something to show at the latest, of a start that has begun at that time.
    pub(super) fn due(&self, began: u64) -> Option<u64> {
        let is_due = !self.over && self.shown.is_none();
        is_due.then(|| began.saturating_add(LONG_NS))
    }

    /// Shows what there is to show.
    pub(super) fn show(&mut self, sink: &mut Sink, setup: &Setup, now: u64) {
        let current = (self.nodes, self.pes);
        // A terminal that takes nothing gets no more of it.
        if self.over
            || now < setup.began.saturating_add(LONG_NS)
            || self.shown == Some(current)
            || !sink.is_empty()
            || sink.closed
        {
            return;
        }
        self.shown = Some(current);
        // Longer than the line of a narrow terminal, it would not be erased: it is cut there.
        let text = format!(
            "\x1b[?7lshmrun: starting: {} of {} nodes are prepared, {} of {} PEs run\x1b[?7h",
            self.nodes, setup.n_nodes, self.pes, setup.n_pes
        );
        sink.text.extend_from_slice(ERASE);
        sink.text.extend_from_slice(text.as_bytes());
    }

    /// Nothing more is shown, and what stands there is erased.
    pub(super) fn end(&mut self, sink: &mut Sink) {
        self.over = true;
        if self.shown.take().is_some() {
            self.erasing = !sink.closed;
            if !sink.closed {
                sink.text.extend_from_slice(ERASE);
            }
        }
    }

    /// Whether text of the other stream has to wait until the line is erased.
    pub(super) fn is_being_erased(&mut self, sink: &Sink) -> bool {
        self.erasing &= !sink.is_empty();
        self.erasing
    }
}
