//! What the peer's packets say about requests: what is done, what is lost, and where data goes.
//!
//! # What acknowledges what
//! * ACK(p): everything up to p, but only up to the first READ or atomic without answer: that
//!   answer was lost, for the responder answers in order. Go back to it (*implied NAK*).
//! * An answer with the expected PSN acknowledges all WRITEs before it.
//! * NAK(sequence, p): everything before p is executed, p is missing. Go back to p.
//! * NAK(receiver not ready, p): as that, but wait first; so often and not more.

#![forbid(unsafe_code)]

use super::Requester;
use crate::queues::send::Done;
use crate::rc::part;
use shmem_verbs::{Psn, SendOp, Sge, WcStatus};

/// Where an answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ResponseTarget<'a> {
    pub(crate) sges: &'a [Sge],
    pub(crate) offset: u32,
    /// Whether it is as long as it has to be.
    pub(crate) fits: bool,
    pub(crate) atomic: bool,
}

impl Requester {
    /// Whether `psn` belongs to a packet that was sent and is not acknowledged.
    fn is_outstanding(&self, psn: Psn) -> bool {
        psn.since(self.una) >= 0 && psn.since(self.high) < 0
    }

    /// How far an acknowledgement of everything before `end` reaches: it stops at the first
    /// request that needs an answer of its own.
    pub(crate) fn reach(&self, end: Psn) -> Psn {
        let mut at = self.una;
        for wqe in self.sq.iter().take(self.started) {
            if wqe.awaits_response() {
                return at;
            }
            if wqe.end().since(end) >= 0 {
                return end;
            }
            at = wqe.end();
        }
        at
    }

    /// Everything before `to` is done.
    pub(crate) fn advance(&mut self, now: u64, to: Psn, out: &mut Vec<Done>) {
        let acked = to.since(self.una);
        if acked <= 0 {
            return;
        }
        let len = self.sq.front().map_or(0, |wqe| wqe.len);
        self.una = to;
        while self.started > 0 && self.sq[0].end().since(to) <= 0 {
            let Some(wqe) = self.sq.pop_front() else {
                break;
            };
            if wqe.signaled {
                out.push(wqe.done(WcStatus::Success));
                self.unreported = 0;
            } else {
                self.unreported += 1;
            }
            self.started -= 1;
            self.flight.wqe = self.flight.wqe.saturating_sub(1);
            if let Some(before) = &mut self.before_timeout {
                before.wqe = before.wqe.saturating_sub(1);
            }
        }
        if self.flight.cur.since(to) < 0 {
            self.was_needless(to);
        }
        while self
            .flight
            .awaiting
            .front()
            .is_some_and(|(p, n)| p.add(*n).since(to) <= 0)
        {
            self.flight.awaiting.pop_front();
        }
        if let Some((psn, sent_at)) = self.probe
            && to.since(psn) > 0
        {
            self.pacing.on_rtt(now.saturating_sub(sent_at));
            self.probe = None;
        }
        if !self.stream_use.is_taken() {
            self.pacing.on_acked(acked as u32, len.min(self.limits.mtu));
        }
        self.has_progressed(now);
    }

    /// ACK up to and with `psn`.
    pub(crate) fn on_ack(&mut self, now: u64, psn: Psn, out: &mut Vec<Done>) {
        if !self.is_outstanding(psn) {
            return;
        }
        let end = psn.add(1);
        let to = self.reach(end);
        self.advance(now, to, out);
        if to != end {
            self.go_back();
        }
    }

    /// NAK: the responder has everything before `psn`, and waits for it.
    pub(crate) fn on_nak_sequence(&mut self, now: u64, psn: Psn, out: &mut Vec<Done>) {
        if psn.since(self.una) < 0 || psn.since(self.high) > 0 {
            return;
        }
        let to = self.reach(psn);
        self.advance(now, to, out);
        if self.una != self.high {
            self.go_back();
        }
    }

    /// RNR NAK: as a NAK of the sequence, but not before `delay_ns` have passed. Returns whether
    /// it was one too many.
    pub(crate) fn on_rnr(
        &mut self,
        now: u64,
        psn: Psn,
        delay_ns: u64,
        out: &mut Vec<Done>,
    ) -> bool {
        if !self.is_outstanding(psn) {
            return false;
        }
        let to = self.reach(psn);
        self.advance(now, to, out);
        if to != psn {
            // An answer before it was lost: that comes first.
            self.go_back();
            return false;
        }
        self.wait_for_receive(now, delay_ns)
    }

    /// An answer of `len` bytes to a READ or atomic: a packet, or a run of them that came by a stream. Tells where it goes if
    /// it is the expected one; then [`Requester::on_response_stored`] follows.
    pub(crate) fn on_response(
        &mut self,
        now: u64,
        psn: Psn,
        len: u32,
        run: bool,
        out: &mut Vec<Done>,
    ) -> Option<ResponseTarget<'_>> {
        if !self.is_outstanding(psn) {
            return None;
        }
        let to = self.reach(psn.add(1));
        if to.since(psn) > 0 {
            return None; // No request up to this PSN has an answer: a stray packet.
        }
        self.advance(now, to, out);
        if to != psn {
            self.go_back();
            return None;
        }
        let wqe = self.sq.front()?;
        let offset = psn.since(wqe.first) as u32 * self.limits.mtu;
        let atomic = !matches!(wqe.op, SendOp::Read { .. });
        let fits = match atomic {
            true => len == 8,
            false => self.brings(wqe.len - offset, psn, len, run),
        };
        Some(ResponseTarget {
            sges: wqe.buffers(),
            offset,
            fits,
            atomic,
        })
    }

    /// Whether an answer of `len` bytes that begins at `psn` can be what comes next of a READ that `left` bytes of are
    /// missing: no more than was asked for.
    fn brings(&self, left: u32, psn: Psn, len: u32, run: bool) -> bool {
        let mtu = self.limits.mtu;
        part::fits(left, len, mtu, run) && psn.add(part::packets(len, mtu)).since(self.high) <= 0
    }

    /// The local buffers of a READ whose next answer has this PSN, and where in them its `len` bytes belong; for those that
    /// would put them there before all of it has come.
    pub(crate) fn place(&self, psn: Psn, len: u32, run: bool) -> Option<(&[Sge], u32)> {
        if !self.is_outstanding(psn) || self.reach(psn.add(1)) != psn {
            return None;
        }
        let mut begun = self.sq.iter().take(self.started);
        let wqe = begun.find(|wqe| wqe.awaits_response())?;
        let index = u32::try_from(psn.since(wqe.first)).ok()?;
        let offset = index.checked_mul(self.limits.mtu)?;
        let left = wqe.len.checked_sub(offset)?;
        let fits = matches!(wqe.op, SendOp::Read { .. }) && self.brings(left, psn, len, run);
        fits.then(|| (wqe.buffers(), offset))
    }

    /// The answer of `len` bytes that begins at this PSN is in memory.
    pub(crate) fn on_response_stored(&mut self, now: u64, psn: Psn, len: u32, out: &mut Vec<Done>) {
        let end = psn.add(part::packets(len, self.limits.mtu));
        self.advance(now, end, out);
    }

    /// Whether an error report about `psn` can be meant for a packet in flight.
    pub(crate) fn concerns(&self, psn: Psn) -> bool {
        self.is_outstanding(psn)
    }
}
