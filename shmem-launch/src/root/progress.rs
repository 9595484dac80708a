//! What a start that takes long has come to, on a line of the terminal that is erased when it is over.
//!
//! It is shown where standard error is a terminal, from a second after the start until all PEs run, or until one
//! of them writes something: its line is never mixed with theirs.

use super::{Root, Stream, output};

/// When a start has taken long.
const LONG_NS: u64 = 1_000_000_000;

/// To the beginning of the line, and nothing more on it.
const ERASE: &[u8] = b"\r\x1b[K";

/// What has been shown.
#[derive(Debug, Default)]
pub(super) struct Progress {
    nodes: u32,
    pes: u32,
    /// What stands on the terminal, if anything does.
    shown: Option<(u32, u32)>,
    over: bool,
    /// The line is being erased: who writes to the same terminal by another stream has to wait.
    erasing: bool,
}

impl Root {
    /// So many nodes are prepared, and so many PEs run.
    pub(super) fn note_progress(&mut self, nodes: u32, pes: u32) {
        (self.output.progress.nodes, self.output.progress.pes) = (nodes, pes);
    }

    /// When there is something to show at the latest.
    pub(super) fn progress_due(&self) -> Option<u64> {
        let due = self.setup.options.progress
            && !self.output.progress.over
            && self.output.progress.shown.is_none();
        due.then(|| self.setup.began.saturating_add(LONG_NS))
    }

    /// Shows what there is to show.
    pub(super) fn show_progress(&mut self, now: u64) {
        let Self { output, setup, .. } = self;
        let output::Output {
            progress, sinks, ..
        } = output;
        if !setup.options.progress || progress.over {
            return;
        }
        if self.results.moments.started != 0 || self.outcome.decided || self.outcome.finished {
            return self.end_progress();
        }
        let sink = &mut sinks[Stream::Err as usize];
        let current = (progress.nodes, progress.pes);
        // A terminal that takes nothing gets no more of it.
        if now < setup.began.saturating_add(LONG_NS)
            || progress.shown == Some(current)
            || !sink.is_empty()
            || sink.closed
        {
            return;
        }
        progress.shown = Some(current);
        // Longer than the line of a narrow terminal, it would not be erased: it is cut there.
        let text = format!(
            "\x1b[?7lshmrun: starting: {} of {} nodes are prepared, {} of {} PEs run\x1b[?7h",
            current.0, setup.n_nodes, current.1, setup.n_pes
        );
        sink.text.extend_from_slice(ERASE);
        sink.text.extend_from_slice(text.as_bytes());
    }

    /// Nothing more is shown, and what stands there is erased.
    pub(super) fn end_progress(&mut self) {
        let progress = &mut self.output.progress;
        progress.over = true;
        if progress.shown.take().is_some() {
            let sink = &mut self.output.sinks[Stream::Err as usize];
            progress.erasing = !sink.closed;
            if !sink.closed {
                sink.text.extend_from_slice(ERASE);
            }
        }
    }

    /// Whether text of a stream has to wait until the line is erased.
    pub(super) fn waits_for_progress(&mut self, stream: Stream) -> bool {
        let written = self.output.sinks[Stream::Err as usize].is_empty();
        self.output.progress.erasing &= !written;
        stream == Stream::Out && self.output.progress.erasing
    }
}
