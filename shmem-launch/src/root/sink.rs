//! The text of a stream on its way out.

use crate::stdio::Separate;

/// The text of one stream on its way out.
#[derive(Debug, Default)]
pub(super) struct Sink {
    pub(super) text: Vec<u8>,
    /// What goes to the files of PEs.
    pub(super) files: Separate,
    /// Bytes of text that the driver has taken and not yet written.
    pub(super) taken: usize,
    /// Bytes of `Output` frames that are in `text` or taken; credit for them is due once all is
    /// written.
    pub(super) frames: u32,
    /// The part of `frames` that belongs to what was taken.
    pub(super) frames_taken: u32,
    pub(super) closed: bool,
}

impl Sink {
    /// Whether nothing waits to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.files.is_empty() && self.taken == 0
    }

    /// Forgets what is not on its way.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.files = Separate::default();
    }
}
