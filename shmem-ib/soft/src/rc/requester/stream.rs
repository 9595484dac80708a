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

use super::Requester;
use super::answers::ResponseTarget;
use super::retransmission::{Expiry, STOPPED_NS};
use crate::queues::send::{Done, Payload, Wqe};
use crate::rc::burst;
use crate::wire::{AtomicEth, Ext, Opcode, RUN_MAX, Reth, STAGED_MAX};
use shmem_verbs::{Psn, SendOp};

/// The part of the patience after which a stream that does not move is left, and what it is where patience has
/// no end.
const STALLED_PART: u64 = 8;
const STALLED_NS: u64 = 4_000_000_000;

/// A longer message is acknowledged each time that it has come so much further: often enough for what is sent again after a
/// break to be bounded, and too seldom to cost anything.
const ACK_BYTES: u32 = 1 << 20;

/// Which way a requester sends.
#[derive(Debug, Default)]
pub(super) struct Way {
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

impl Way {
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
        self.way.from = Some(from);
    }

    /// There is a stream.
    pub(crate) const fn stream_opened(&mut self) {
        self.way.open = true;
    }

    /// There is none any more; what was outstanding goes out again by datagrams.
    pub(crate) fn stream_broke(&mut self) {
        if self.way.is_taken() {
            self.rewind();
        }
        self.way.give_up();
        self.way.left = false;
    }

    /// Whether a request of this length had better have a stream, and has none.
    pub(crate) fn lacks_stream(&self, len: u32) -> bool {
        !self.way.open && self.way.from.is_some_and(|from| len >= from)
    }

    /// Whether it sends by its stream.
    pub(crate) const fn is_by_stream(&self) -> bool {
        self.way.taken
    }

    /// Whether it has given up its stream since the last call.
    pub(crate) fn has_left_stream(&mut self) -> bool {
        std::mem::take(&mut self.way.left)
    }

    /// Bytes went or came by the stream.
    pub(crate) const fn stream_moved(&mut self, now: u64) {
        self.way.moved_at = now;
    }

    /// Whether the next request, which has not begun, is to go by the stream: at once, or as soon as what is before it
    /// is acknowledged.
    pub(super) fn turns_to_stream(&mut self) -> bool {
        let next = self.sq.get(self.started);
        let turns = self.way.open && next.is_some_and(|wqe| self.way.is_long(wqe));
        if turns && self.una == self.next {
            self.way.taken = true;
            self.timer = None;
            self.probe = None;
        }
        turns
    }

    /// The next portion for the stream. Its payload is of at most `most` bytes, if that is a packet or more.
    pub(crate) fn poll_run(&mut self, now: u64, most: u32) -> Option<Run<'_>> {
        if !self.way.taken || self.rnr_until.is_some() {
            return None;
        }
        if self.cur == self.next {
            let next = self.sq.get(self.started)?;
            if self.una == self.next && !self.way.is_long(next) {
                self.way.taken = false;
                self.timer = None;
                return None;
            }
            if !suits(next) {
                return None; // Behind the answers to what is before it, by datagrams.
            }
            self.start_next()?;
        }
        let mtu = self.limits.mtu;
        let wqe = &self.sq[self.cur_wqe];
        let index = self.cur.since(wqe.first) as u32;
        let left = wqe.packets - index;
        let in_flight = self.cur.since(self.una) as u32;
        if wqe.awaits_response() && self.awaiting.len() >= usize::from(self.limits.max_rd_atomic) {
            return None;
        }
        let offset = index * mtu;
        let portion = |packets: u32| {
            let take = left.min(packets.max(1));
            (take, (wqe.len - offset).min(take * mtu))
        };
        let psn = self.cur;
        let (take, opcode, ext, ack_req, payload) = match wqe.op {
            SendOp::Send { .. } | SendOp::Write { .. } => {
                let staged = matches!(wqe.op, SendOp::Send { .. });
                let most = most.min(if staged { STAGED_MAX } else { RUN_MAX });
                let (take, len) = portion(most / mtu);
                let (opcode, ext) = wqe.message_packet(index, left - take + 1);
                let each = ACK_BYTES / mtu;
                let ack_req = take == left || index / each != (index + take) / each;
                (take, opcode, ext, ack_req, wqe.payload(offset, len))
            }
            SendOp::Read { raddr, rkey } => {
                // The same pieces as by datagrams, which may have to repeat them.
                let piece = super::READ_BURSTS * burst::longest(mtu);
                let (take, len) = portion(piece - index % piece);
                let va = raddr.wrapping_add(u64::from(offset));
                let reth = Ext::Reth(Reth { va, rkey, len });
                (take, Opcode::ReadRequest, reth, true, Payload::None)
            }
            op => {
                let (opcode, eth) = atomic(op)?;
                (1, opcode, Ext::Atomic(eth), true, Payload::None)
            }
        };
        if wqe.awaits_response() {
            self.awaiting.push_back((psn, take));
        }
        if take == left {
            self.cur_wqe += 1;
        }
        self.cur = self.cur.add(take);
        self.asked_to = self.cur;
        if self.cur.since(self.high) > 0 {
            self.high = self.cur;
        }
        if in_flight == 0 {
            self.progress_at = now;
        }
        if self.timer.is_none() {
            self.timer = Some(now + self.stalled_ns());
        }
        Some(Run {
            psn,
            opcode,
            ext,
            ack_req,
            payload,
        })
    }

    /// How long a stream may not move.
    pub(super) fn stalled_ns(&self) -> u64 {
        let patience = self.limits.give_up_ns;
        patience.map_or(STALLED_NS, |all| all / STALLED_PART)
    }

    /// The time without movement may be over.
    pub(super) fn on_stream_timeout(&mut self, now: u64, late: u64) -> Expiry {
        if late >= STOPPED_NS && !std::mem::replace(&mut self.was_late, true) {
            self.progress_at += late;
        }
        let until = self.progress_at.max(self.way.moved_at) + self.stalled_ns();
        if now < until {
            self.timer = Some(until);
            return Expiry::NotDue;
        }
        self.rewind();
        Expiry::Resend
    }

    /// An answer by the stream, to a READ or atomic, which has `len` bytes and begins at this PSN. Tells where it goes if it
    /// is the expected one, whose length is told; [`Requester::on_run_stored`] follows.
    pub(crate) fn on_run(
        &mut self,
        now: u64,
        psn: Psn,
        len: u32,
        out: &mut Vec<Done>,
    ) -> Option<ResponseTarget<'_>> {
        let mtu = self.limits.mtu;
        let high = self.high;
        let to = self.on_response(now, psn, out)?;
        let len = match to.atomic {
            true => 8,
            false if run_fits(to.whole - to.offset, len, mtu) => len,
            false => to.len,
        };
        let end = psn.add(if to.atomic { 1 } else { run_packets(len, mtu) });
        (end.since(high) <= 0).then_some(ResponseTarget { len, ..to })
    }

    /// The answer of so many bytes that begins at this PSN is in memory.
    pub(crate) fn on_run_stored(&mut self, now: u64, psn: Psn, len: u32, out: &mut Vec<Done>) {
        let packets = match self.sq.front().map(|wqe| wqe.op) {
            Some(SendOp::Read { .. }) => run_packets(len, self.limits.mtu),
            _ => 1,
        };
        self.advance(now, psn.add(packets), out);
    }

    /// Where the run of `len` bytes of an answer belongs that begins at this PSN, as its local buffers and an offset in them; for
    /// those who would put it there before all of it has come.
    pub(crate) fn place_run(&self, psn: Psn, len: u32) -> Option<(&[shmem_verbs::Sge], u32)> {
        let mtu = self.limits.mtu;
        if !self.concerns(psn) || self.reach(psn.add(1)) != psn {
            return None;
        }
        let mut begun = self.sq.iter().take(self.started);
        let wqe = begun.find(|wqe| wqe.awaits_response())?;
        let index = u32::try_from(psn.since(wqe.first)).ok()?;
        let offset = index.checked_mul(mtu)?;
        let left = wqe.len.checked_sub(offset)?;
        let sent = psn.add(run_packets(len, mtu)).since(self.high) <= 0;
        let fits = matches!(wqe.op, SendOp::Read { .. }) && run_fits(left, len, mtu) && sent;
        fits.then(|| (wqe.buffers(), offset))
    }
}

/// How many packets a run of so many bytes stands for.
pub(crate) const fn run_packets(len: u32, mtu: u32) -> u32 {
    match len.div_ceil(mtu) {
        0 => 1,
        packets => packets,
    }
}

/// Whether a run of `len` bytes can be the next part of a message of which `left` bytes are to come.
pub(crate) const fn run_fits(left: u32, len: u32, mtu: u32) -> bool {
    len == left || (len > 0 && len < left && len.is_multiple_of(mtu))
}

/// What the packet of an atomic says.
fn atomic(op: SendOp) -> Option<(Opcode, AtomicEth)> {
    match op {
        SendOp::FetchAdd { raddr, rkey, add } => Some((
            Opcode::FetchAdd,
            AtomicEth {
                va: raddr,
                rkey,
                swap_add: add,
                compare: 0,
            },
        )),
        SendOp::CmpSwap {
            raddr,
            rkey,
            compare,
            swap,
        } => Some((
            Opcode::CompareSwap,
            AtomicEth {
                va: raddr,
                rkey,
                swap_add: swap,
                compare,
            },
        )),
        SendOp::Send { .. }
        | SendOp::Write { .. }
        | SendOp::Read { .. }
        | SendOp::UdSend { .. } => None,
    }
}
