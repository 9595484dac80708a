//! The sending half of an RC queue pair: what to send, what is acknowledged, what to repeat.
//!
//! # Sequence numbers
//! ```text
//!        una           cur            high        next
//!  --done-|---in flight--|--to repeat---|-unsent----|---work requests without PSN--
//! ```
//! A SEND or WRITE takes one PSN per packet; a READ takes as many as its response has packets, an atomic
//! one. `next` is where the next work request will begin. Packets from `una` to `cur` are
//! in flight. After a loss `cur` goes back (`go_back`), and everything from there on is sent
//! again: go-back-N, as the responder keeps nothing out of order.
//!
//! # READs are asked for in pieces
//! The window also bounds what the *responder* sends: a READ of 8 MiB goes out as many READ
//! requests of two bursts each, contiguous in PSN and address. Each piece counts against
//! `max_rd_atomic`. Repeating the rest of a READ after a lost response begins within a piece and ends
//! where that piece ends, whatever the window is by then: responders drop a repeated request that is
//! no part of one which they have executed.
//!
//! What the peer's packets say is in `answers`; what is sent again, and when, in `retransmission`; what goes by a stream
//! instead of datagrams in `stream`.

#![forbid(unsafe_code)]

mod answers;
mod retransmission;
mod stream;

use std::collections::VecDeque;

use crate::queues::send::{Done, Payload, Wqe};
use crate::rc::burst::{self, BurstPosition};
use crate::rc::pacing::Pacing;
use crate::wire::{AtomicEth, Ext, Opcode, Reth};
pub(crate) use retransmission::{Expiry, Limits};
use retransmission::{InFlight, Patience, Rnr, expiry};
use shmem_verbs::{Psn, SendOp, SrqNum, WcStatus};

/// Most PSNs that may be assigned and not acknowledged: half of the number space.
const PSN_WINDOW: u32 = 1 << 23;
/// Bursts of a piece of a READ: with two the next piece is asked for while one is on its way.
const READ_BURSTS: u32 = 2;

/// One request packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) psn: Psn,
    pub(crate) opcode: Opcode,
    pub(crate) ext: Ext,
    pub(crate) ack_req: bool,
    /// The shared receive queue of the peer (XRC).
    pub(crate) srqn: Option<SrqNum>,
    pub(crate) payload: Payload<'a>,
    /// It was sent before.
    pub(crate) again: bool,
    /// It is the last one of a burst, which had better not wait for more.
    pub(crate) ends_burst: bool,
}

#[derive(Debug)]
pub(crate) struct Requester {
    sq: VecDeque<Wqe>,
    /// How many of `sq` have PSNs.
    started: usize,
    una: Psn,
    high: Psn,
    next: Psn,
    flight: InFlight,
    gone_back_to: Option<Psn>,
    /// What was in flight when a timeout began to repeat it.
    before_timeout: Option<InFlight>,
    /// A packet sent once, whose acknowledgement gives a round trip.
    probe: Option<(Psn, u64)>,
    rnr: Rnr,
    /// Requests that succeeded without a completion after the last one that had one: they still
    /// hold their places.
    unreported: usize,
    patience: Patience,
    pacing: Pacing,
    stream_use: stream::StreamUse,
    limits: Limits,
}

impl Requester {
    pub(crate) fn new(sq_psn: Psn, limits: Limits, seed: u64) -> Self {
        Self {
            sq: VecDeque::new(),
            started: 0,
            una: sq_psn,
            high: sq_psn,
            next: sq_psn,
            flight: InFlight::new(sq_psn),
            gone_back_to: None,
            before_timeout: None,
            probe: None,
            rnr: Rnr::default(),
            unreported: 0,
            patience: Patience::default(),
            pacing: Pacing::new(limits.mtu, seed),
            stream_use: stream::StreamUse::default(),
            limits,
        }
    }

    /// What the receiver has room for, in packets; `None`: for all that we send.
    pub(crate) fn set_share(&mut self, share: Option<u32>) {
        self.pacing.set_share(share);
    }

    /// Places of the send queue in use.
    pub(crate) fn len(&self) -> usize {
        self.sq.len() + self.unreported
    }

    /// Appends a work request.
    pub(crate) fn post(&mut self, wqe: Wqe) {
        self.sq.push_back(wqe);
    }

    /// Whether nothing is in flight, so that no acknowledgement will come and cause a send.
    pub(crate) fn is_quiet(&self) -> bool {
        self.flight.cur == self.una
    }

    /// Work requests that were not begun.
    pub(crate) fn backlog(&self) -> usize {
        self.sq.len() - self.started
    }

    /// Whether READs and atomics were agreed on at all.
    pub(crate) const fn may_read(&self) -> bool {
        self.limits.max_rd_atomic > 0
    }

    /// Whether there is anything to send, now or when the window allows it.
    pub(crate) fn has_unsent(&self) -> bool {
        self.flight.cur != self.next || self.backlog() > 0
    }

    /// The next packet, if the window, the peer and the queue allow one.
    pub(crate) fn poll(&mut self, now: u64) -> Option<Request<'_>> {
        if self.rnr.until.is_some() || self.stream_use.is_taken() {
            return None;
        }
        if self.flight.cur == self.next {
            if self.turns_to_stream() {
                return None;
            }
            self.start_next()?;
        }
        let mtu = self.limits.mtu;
        let (psn, of) = (self.flight.cur, self.flight.wqe);
        let wqe = &self.sq[of];
        let index = psn.since(wqe.first) as u32;
        let left = wqe.packets - index;
        let in_flight = psn.since(self.una) as u32;
        let again = psn.since(self.high) < 0;
        if wqe.awaits_response() && self.is_full_of_questions() {
            return None;
        }
        let offset = index * mtu;
        let place = BurstPosition::of(index, wqe.packets, mtu);
        let (take, opcode, ext, ack_req, len) = match wqe.op {
            SendOp::Send { .. } | SendOp::Write { .. } => {
                let len = (wqe.len - offset).min(mtu);
                let allowed = self.pacing.allows(in_flight, len, place.needs);
                // What is in flight may be above a share that was told since, and ask for nothing.
                if !allowed && self.flight.asked_to.since(self.una) > 0 {
                    return None;
                }
                let (opcode, ext) = wqe.message_packet(index, left);
                // If nothing may follow this packet, only its acknowledgement helps.
                let next = if place.ends { burst::longest(mtu) } else { 1 };
                let last = !allowed || !self.pacing.allows(in_flight + 1, mtu, next);
                (1, opcode, ext, place.ends_pair || last, len)
            }
            op => {
                let (take, opcode, ext) = question(op, wqe.len, index, left, mtu)?;
                let answer = (wqe.len - offset).min(mtu);
                let allowed = match op {
                    SendOp::Read { .. } => {
                        in_flight == 0 || self.pacing.allows_answers(in_flight + take, answer)
                    }
                    _ => self.pacing.allows(in_flight, answer, 1),
                };
                if !allowed {
                    return None;
                }
                (take, opcode, ext, true, 0)
            }
        };
        // Single packets wait for others to share a datagram with.
        let ends_burst = take == 1 && place.ends && wqe.packets > 1;
        let srqn = wqe.srqn;
        if in_flight == 0 && !again {
            self.patience.progress_at = now;
        }
        self.went(take, ack_req);
        retransmission::sent(&mut self.before_timeout, &mut self.pacing, self.flight.cur);
        if !again && self.probe.is_none() {
            self.probe = Some((psn, now));
        }
        if self.patience.timer.is_none() {
            let (pacing, limits) = (&mut self.pacing, &self.limits);
            self.patience.timer = Some(expiry(pacing, limits, self.patience.progress_at, now));
        }
        Some(Request {
            psn,
            opcode,
            ext,
            ack_req,
            srqn,
            payload: self.sq[of].payload(offset, len),
            again,
            ends_burst,
        })
    }

    /// Whether as many READ pieces and atomics are without answer as was agreed.
    fn is_full_of_questions(&self) -> bool {
        self.flight.awaiting.len() >= usize::from(self.limits.max_rd_atomic)
    }

    /// So many packets of the work request that `cur` lies in are sent.
    fn went(&mut self, take: u32, ack_req: bool) {
        let wqe = &self.sq[self.flight.wqe];
        if wqe.awaits_response() {
            self.flight.awaiting.push_back((self.flight.cur, take));
        }
        self.flight.cur = self.flight.cur.add(take);
        if self.flight.cur == wqe.end() {
            self.flight.wqe += 1;
        }
        if ack_req {
            self.flight.asked_to = self.flight.cur;
        }
        if self.flight.cur.since(self.high) > 0 {
            self.high = self.flight.cur;
        }
    }

    /// Gives PSNs to the next work request.
    fn start_next(&mut self) -> Option<()> {
        let assigned = self.next.since(self.una) as u32;
        let mtu = self.limits.mtu;
        let wqe = self.sq.get_mut(self.started)?;
        // Everything begun has been sent, so whatever lacks its answer is in `awaiting`.
        if wqe.fence && !self.flight.awaiting.is_empty() {
            return None;
        }
        let packets = match wqe.op {
            SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. } => 1,
            _ => wqe.len.div_ceil(mtu).max(1),
        };
        if assigned + packets >= PSN_WINDOW {
            return None;
        }
        wqe.first = self.next;
        wqe.packets = packets;
        self.flight.wqe = self.started;
        self.started += 1;
        self.next = self.next.add(packets);
        Some(())
    }

    /// The oldest unacknowledged packet.
    pub(crate) fn oldest(&self) -> Psn {
        self.una
    }

    /// The request that `psn` belongs to failed: it ends with `status`, what was before it as
    /// far as acknowledged with success, all others with a flush error.
    pub(crate) fn fail(&mut self, now: u64, psn: Psn, status: WcStatus, out: &mut Vec<Done>) {
        let to = self.reach(psn);
        self.advance(now, to, out);
        let started = self.started;
        for (i, wqe) in self.sq.drain(..).enumerate() {
            let culprit = i < started && psn.since(wqe.first) >= 0 && psn.since(wqe.end()) < 0;
            out.push(wqe.done(if culprit {
                status
            } else {
                WcStatus::WrFlushErr
            }));
        }
        self.stop();
    }

    /// All requests end with a flush error.
    pub(crate) fn flush(&mut self, out: &mut Vec<Done>) {
        out.extend(self.sq.drain(..).map(|wqe| wqe.done(WcStatus::WrFlushErr)));
        self.stop();
    }

    fn stop(&mut self) {
        self.stream_use.give_up();
        self.started = 0;
        self.unreported = 0;
        self.flight.wqe = 0;
        self.una = self.high;
        self.flight.cur = self.high;
        self.next = self.high;
        self.flight.awaiting.clear();
        self.before_timeout = None;
        self.patience.timer = None;
        self.rnr.until = None;
        self.probe = None;
    }
}

/// What asks for the answers from packet `index` on of a request that has them, and how many of the `left` ones: a piece of a
/// READ of `len` bytes, or an atomic.
fn question(op: SendOp, len: u32, index: u32, left: u32, mtu: u32) -> Option<(u32, Opcode, Ext)> {
    let atomic = |opcode, eth| Some((1, opcode, Ext::Atomic(eth)));
    match op {
        SendOp::Read { raddr, rkey } => {
            let piece = READ_BURSTS * burst::longest(mtu);
            let take = left.min(piece - index % piece);
            let offset = index * mtu;
            let reth = Reth {
                va: raddr.wrapping_add(u64::from(offset)),
                rkey,
                len: (len - offset).min(take * mtu),
            };
            Some((take, Opcode::ReadRequest, Ext::Reth(reth)))
        }
        SendOp::FetchAdd { raddr, rkey, add } => {
            let eth = AtomicEth {
                va: raddr,
                rkey,
                swap_add: add,
                compare: 0,
            };
            atomic(Opcode::FetchAdd, eth)
        }
        SendOp::CmpSwap {
            raddr,
            rkey,
            compare,
            swap,
        } => {
            let eth = AtomicEth {
                va: raddr,
                rkey,
                swap_add: swap,
                compare,
            };
            atomic(Opcode::CompareSwap, eth)
        }
        SendOp::Send { .. } | SendOp::Write { .. } | SendOp::UdSend { .. } => None,
    }
}

#[cfg(test)]
#[path = "../tests/read_pieces.rs"]
mod read_pieces_tests;
#[cfg(test)]
#[path = "../tests/requester.rs"]
mod tests;
