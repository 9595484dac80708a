//! Output on its way up, bounded by credit.
//!
//! A receiver (the parent agent, finally the launcher and its terminal) grants [`OUTPUT_WINDOW`]
//! bytes and renews them as it gets rid of them. What arrives here without credit is held, and
//! while anything is held the agent's own PEs are not read and its children get no new credit, so a
//! blocked terminal stops the writers instead of filling memory. An agent holds at most one window
//! per child and one read of its own. Other frames never wait for credit.

use std::collections::VecDeque;

use crate::frame::{self, CREDIT_STEP, FRAME_MAX, OUTPUT_WINDOW, OutBuf, Stream};

/// Who gets credit back when a frame has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A PE of this node.
    Own,
    /// A child agent.
    Child(usize),
}

/// The output side of the link to the parent.
#[derive(Debug)]
pub(super) struct Upstream {
    credit: usize,
    held: VecDeque<(Origin, Vec<u8>)>,
    /// Bytes passed on for each child and not yet given back as credit.
    owed: Vec<u32>,
}

impl Upstream {
    pub(super) fn new(children: usize) -> Self {
        Self {
            credit: OUTPUT_WINDOW as usize,
            held: VecDeque::new(),
            owed: vec![0; children],
        }
    }

    /// Whether more output may be read from PEs.
    pub(super) fn may_read(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether everything has been passed on.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Output of a PE of this node, in two parts.
    pub(super) fn own(
        &mut self,
        rank: u32,
        stream: Stream,
        head: &[u8],
        tail: &[u8],
        up: &mut OutBuf,
    ) {
        let len = frame::OUTPUT_OVERHEAD + head.len() + tail.len();
        debug_assert!(len <= (OUTPUT_WINDOW - CREDIT_STEP) as usize);
        if self.held.is_empty() && len <= self.credit {
            self.credit -= len;
            frame::encode_output(up.tail(), rank, stream, head, tail);
        } else {
            let mut bytes = Vec::with_capacity(len);
            frame::encode_output(&mut bytes, rank, stream, head, tail);
            self.held.push_back((Origin::Own, bytes));
        }
    }

    /// The content of an `Output` frame from a child.
    pub(super) fn relay(&mut self, child: usize, content: &[u8], up: &mut OutBuf) {
        debug_assert!(content.len() <= FRAME_MAX);
        let len = 4 + content.len();
        let prefix = (content.len() as u32).to_le_bytes();
        if self.held.is_empty() && len <= self.credit {
            self.credit -= len;
            self.owed[child] += len as u32;
            up.tail().extend_from_slice(&prefix);
            up.tail().extend_from_slice(content);
        } else {
            self.held
                .push_back((Origin::Child(child), [&prefix, content].concat()));
        }
    }

    /// The parent has room for `n` more bytes.
    pub(super) fn grant(&mut self, n: u32, up: &mut OutBuf) {
        self.credit = self.credit.saturating_add(n as usize);
        while let Some((origin, bytes)) = self.held.front() {
            if bytes.len() > self.credit {
                break;
            }
            self.credit -= bytes.len();
            if let Origin::Child(child) = *origin {
                self.owed[child] += bytes.len() as u32;
            }
            up.tail().extend_from_slice(bytes);
            self.held.pop_front();
        }
    }

    /// Credit that is due to `child` now, if it is worth a message.
    pub(super) fn take_owed(&mut self, child: usize) -> Option<u32> {
        let owed = &mut self.owed[child];
        (*owed >= CREDIT_STEP).then(|| std::mem::take(owed))
    }
}
