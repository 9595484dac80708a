//! Which packets ask for an acknowledgement at once.
//!
//! An acknowledgement costs a system call on either side, and it leaves before what the peer has to say
//! itself. Two PEs that send each other words in turn, and wait for the words alone, need none of them for a
//! long time. So a packet may go without asking if the last ones were each followed by a request of the peer, and this
//! one follows such a request; every sixteenth asks all the same, as nothing may be kept for ever.
//!
//! Whoever begins to wait for acknowledgements after all, calls [`Requester::demand`], and after the retransmission
//! timeout it happens by itself: the next packet asks, or the last one is sent once more, asking. That is a
//! packet too many, so the next time it takes twice as many turns before one is trusted again.

#![forbid(unsafe_code)]

use super::{Request, Requester};
use shmem_verbs::Psn;

/// Most packets in a row that do not ask.
const LONGEST: u32 = 16;
/// After how many turns the first one does not, and at the worst.
const TURNS: u32 = 4;
const TURNS_MAX: u32 = 4096;

#[derive(Debug)]
pub(super) struct Asking {
    /// The peer has sent a request since our last packet.
    answered: bool,
    /// So many of our packets in a row were followed by a request of the peer.
    turns: u32,
    /// How many that have to be.
    enough: u32,
    /// Packets since one has asked.
    silent: u32,
    /// An acknowledgement is wanted.
    due: bool,
}

impl Default for Asking {
    fn default() -> Self {
        Self {
            answered: false,
            turns: 0,
            enough: TURNS,
            silent: 0,
            due: false,
        }
    }
}

impl Asking {
    /// Whether the next packet need not ask.
    pub(super) fn may_wait(&self) -> bool {
        self.answered && self.turns >= self.enough && self.silent < LONGEST && !self.due
    }

    /// Whether the next packet has to ask, or the last one to be repeated.
    pub(super) const fn is_due(&self) -> bool {
        self.due
    }

    pub(super) fn sent(&mut self, asks: bool) {
        if !std::mem::take(&mut self.answered) {
            self.turns = 0;
        }
        if !asks {
            self.silent += 1;
            return;
        }
        if self.silent >= LONGEST {
            self.enough = (self.enough / 2).max(TURNS);
        }
        (self.silent, self.due) = (0, false);
    }

    fn was_answered(&mut self) {
        if !std::mem::replace(&mut self.answered, true) {
            self.turns = self.turns.saturating_add(1);
        }
    }

    fn demand(&mut self) {
        if !std::mem::replace(&mut self.due, true) {
            self.turns = 0;
            self.enough = (self.enough * 2).min(TURNS_MAX);
        }
    }
}

impl Requester {
    /// The peer has sent a request of its own.
    pub(crate) fn peer_has_turn(&mut self) {
        self.asking.was_answered();
    }

    /// Whether packets are in flight of which none asks for an acknowledgement.
    pub(crate) fn is_unasked(&self) -> bool {
        self.cur != self.una && self.is_quiet()
    }

    /// Somebody waits for acknowledgements. Returns whether there is something to send for it.
    pub(crate) fn demand(&mut self) -> bool {
        if self.is_unasked() {
            self.asking.demand();
        }
        self.asking.is_due()
    }

    /// If an acknowledgement is due and nothing else can ask for it: the last packet, asking.
    pub(super) fn repeat_last(&mut self) -> Option<Request<'_>> {
        if !self.asking.is_due() {
            return None;
        }
        let unasked = self.is_unasked();
        self.asking.sent(true);
        // It is the end of a SEND or WRITE: others ask.
        let last = self.started.checked_sub(1).filter(|_| unasked)?;
        let wqe = &self.sq[last];
        let offset = (wqe.packets - 1) * self.limits.mtu;
        let (opcode, ext) = wqe.message_packet(wqe.packets - 1, 1);
        self.asked_to = self.cur;
        Some(Request {
            psn: self.cur.add(Psn::MASK),
            opcode,
            ext,
            ack_req: true,
            srqn: wqe.srqn,
            payload: wqe.payload(offset, wqe.len - offset),
            again: true,
            ends_burst: false,
            unasked: false,
        })
    }
}

#[cfg(test)]
#[path = "../tests/asking.rs"]
mod tests;
