//! Requests by a stream: when a requester sends by it, and in which portions.
//!
//! A requester sends either datagrams or by its stream, never both at a time:
//! ```text
//!               a long request is next, all before it is acknowledged, a stream is open
//!   datagrams ------------------------------------------------------------------------> stream
//!             <------------------------------------------------------------------------
//!               nothing is outstanding and the next request is short;
//!               or the stream has broken, or whatever would have sent datagrams again: from `una` on
//! ```
//! So packets stay in the order of their numbers, and a stream that breaks is as a loss of all that was in it: runs are
//! numbered as the datagrams would have been.
//!
//! Nothing is sent again by a stream, for TCP does that. Patience with a peer is the same as for datagrams. But a stream can be dead
//! without an error (a firewall has forgotten it): after an eighth of the patience without any movement datagrams have to do.

#![forbid(unsafe_code)]

use super::retransmission::{Expiry, STOPPED_NS};
use super::{Requester, question};
use crate::queues::send::{Payload, Wqe};
use crate::wire::{Ext, Opcode, RUN_MAX, STAGED_MAX};
use shmem_verbs::{Psn, SendOp};

/// The part of the patience after which a stream that does not move is left, and what it is where patience has
/// no end.
const STALLED_PART: u64 = 8;
const STALLED_NS: u64 = 4_000_000_000;

/// A longer message is acknowledged each time that it has come so much further: often enough for what is sent again after a
/// break to be bounded, and too seldom to cost anything.
const ACK_BYTES: u32 = 1 << 20;

/// Whether a requester sends by a stream, and from which length on.
#[derive(Debug, Default)]
pub(super) struct StreamUse {
    /// Bytes from which a request is long; `None`: there will be no stream.
    from: Option<u32>,
    /// There is a stream.
    open: bool,
    /// Requests go by it.
    taken: bool,
    /// When bytes last went or came by it.
    moved_at: u64,
    /// It was given up, and nobody has asked.
    left: bool,
}

/// Packets that go by a stream as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) psn: Psn,
    pub(crate) opcode: Opcode,
    pub(crate) ext: Ext,
    pub(crate) ack_req: bool,
    pub(crate) payload: Payload<'a>,
}

impl StreamUse {
    /// A request that streams are for.
    fn is_long(&self, wqe: &Wqe) -> bool {
        let bulk = matches!(wqe.op, SendOp::Write { .. } | SendOp::Read { .. });
        bulk && self.from.is_some_and(|from| wqe.len >= from) && suits(wqe)
    }

    pub(super) const fn is_taken(&self) -> bool {
        self.taken
    }

    /// What is outstanding is sent again, by datagrams.
    pub(super) fn leave(&mut self) -> bool {
        let left = std::mem::take(&mut self.taken);
        if left {
            self.give_up();
        }
        left
    }

    /// Nothing goes by the stream any more.
    pub(super) fn give_up(&mut self) {
        self.left |= std::mem::take(&mut self.open);
        self.taken = false;
    }
}

/// Whether a request can go by a stream: answers to READs come in runs for which there has to be one place.
fn suits(wqe: &Wqe) -> bool {
    !matches!(wqe.op, SendOp::Read { .. }) || wqe.buffers().len() == 1 || wqe.len <= STAGED_MAX
}

impl Requester {
    /// Requests of at least so many bytes are to go by a stream if there is one.
    pub(crate) const fn set_stream_from(&mut self, from: u32) {
        self.stream_use.from = Some(from);
    }

    /// There is a stream.
    pub(crate) const fn stream_opened(&mut self) {
        self.stream_use.open = true;
    }

    /// There is none any more; what was outstanding goes out again by datagrams.
    pub(crate) fn stream_broke(&mut self) {
        if self.stream_use.is_taken() {
            self.rewind();
        }
        self.stream_use.give_up();
        self.stream_use.left = false;
    }

    /// Whether a request of this length had better have a stream, and has none.
    pub(crate) fn lacks_stream(&self, len: u32) -> bool {
        !self.stream_use.open && self.stream_use.from.is_some_and(|from| len >= from)
    }

    /// Whether it sends by its stream.
    pub(crate) const fn is_by_stream(&self) -> bool {
        self.stream_use.taken
    }

    /// Whether it has given up its stream since the last call.
    pub(crate) fn has_left_stream(&mut self) -> bool {
        std::mem::take(&mut self.stream_use.left)
    }

    /// Bytes went or came by the stream.
    pub(crate) const fn stream_moved(&mut self, now: u64) {
        self.stream_use.moved_at = now;
    }

    /// Whether the next request, which has not begun, is to go by the stream: at once, or as soon as what is before it
    /// is acknowledged.
    pub(super) fn turns_to_stream(&mut self) -> bool {
        let next = self.sq.get(self.started);
        let turns = self.stream_use.open && next.is_some_and(|wqe| self.stream_use.is_long(wqe));
        if turns && self.una == self.next {
            self.stream_use.taken = true;
            self.patience.timer = None;
            self.probe = None;
        }
        turns
    }

    /// The next portion for the stream. Its payload is of at most `most` bytes, if that is a packet or more.
    pub(crate) fn poll_run(&mut self, now: u64, most: u32) -> Option<Run<'_>> {
        if !self.stream_use.taken || self.rnr.until.is_some() {
            return None;
        }
        if self.flight.cur == self.next {
            let next = self.sq.get(self.started)?;
            if self.una == self.next && !self.stream_use.is_long(next) {
                self.stream_use.taken = false;
                self.patience.timer = None;
                return None;
            }
            if !suits(next) {
                return None; // Behind the answers to what is before it, by datagrams.
            }
            self.start_next()?;
        }
        let mtu = self.limits.mtu;
        let (psn, of) = (self.flight.cur, self.flight.wqe);
        let wqe = &self.sq[of];
        let index = psn.since(wqe.first) as u32;
        let left = wqe.packets - index;
        if wqe.awaits_response() && self.is_full_of_questions() {
            return None;
        }
        let offset = index * mtu;
        let (take, opcode, ext, ack_req, len) = match wqe.op {
            SendOp::Send { .. } | SendOp::Write { .. } => {
                let staged = matches!(wqe.op, SendOp::Send { .. });
                let most = most.min(if staged { STAGED_MAX } else { RUN_MAX });
                let take = left.min((most / mtu).max(1));
                let (opcode, ext) = wqe.message_packet(index, left - take + 1);
                let each = ACK_BYTES / mtu;
                let ack_req = take == left || index / each != (index + take) / each;
                (
                    take,
                    opcode,
                    ext,
                    ack_req,
                    (wqe.len - offset).min(take * mtu),
                )
            }
            op => {
                let (take, opcode, ext) = question(op, wqe.len, index, left, mtu)?;
                (take, opcode, ext, true, 0)
            }
        };
        if self.is_quiet() {
            self.patience.progress_at = now;
        }
        self.went(take, true);
        if self.patience.timer.is_none() {
            self.patience.timer = Some(now + self.stalled_ns());
        }
        Some(Run {
            psn,
            opcode,
            ext,
            ack_req,
            payload: self.sq[of].payload(offset, len),
        })
    }

    /// How long a stream may not move.
    pub(super) fn stalled_ns(&self) -> u64 {
        let patience = self.limits.give_up_ns;
        patience.map_or(STALLED_NS, |all| all / STALLED_PART)
    }

    /// The time without movement may be over.
    pub(super) fn on_stream_timeout(&mut self, now: u64, late: u64) -> Expiry {
        if late >= STOPPED_NS && !std::mem::replace(&mut self.patience.was_late, true) {
            self.patience.progress_at += late;
        }
        let until = self.patience.progress_at.max(self.stream_use.moved_at) + self.stalled_ns();
        if now < until {
            self.patience.timer = Some(until);
            return Expiry::NotDue;
        }
        self.rewind();
        Expiry::Resend
    }
}
