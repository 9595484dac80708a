//! When a requester goes back, and how far: [`Requester::poll`] sends again from there.
//!
//! Everything from `una` on is sent again ([`rewind`](Requester::rewind)) because
//! * a packet of the peer shows a loss: `go_back`. One loss is reported by many packets; `gone_back_to` lets
//!   only the first of them count until there is progress. If the repeated packet is lost as well, the
//!   timer notices.
//! * nothing was heard for a while: `on_timeout`. How long that is, [`Pacing`] knows, from round trips and
//!   the timeouts before; and at the end of the budget ([`Limits`]) the queue pair fails.
//! * the peer had no receive: `wait_for_receive`, after the time that it asked for.
//!
//! # Timeouts without a loss
//! Most often nothing was lost, but the peer's process did not run for a while, and its answers to
//! what was sent will come. Therefore a timeout repeats one packet only: the pacing allows no
//! more until something comes back. An answer to a packet that
//! has not been repeated since proves that the timeout was needless: `cur` returns to where it
//! was, and nothing else is repeated (as in F-RTO, RFC 5682). Should something be lost
//! after all, the peer's NAK or the next timeout tells.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use super::Requester;
use crate::rc::pacing::Pacing;
use shmem_verbs::Psn;

/// Who looks at a timer so much too late was stopped, or has had no processor.
pub(super) const STOPPED_NS: u64 = 1_000_000_000;
/// The `rnr_retry` which has no end.
const RNR_FOREVER: u8 = 7;

/// What a timer did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expiry {
    /// It was not due.
    NotDue,
    /// There is something to send again.
    Resend,
    /// The peer has had the time that it asked for.
    RnrOver,
    /// The retry budget is used up.
    GiveUp,
}

/// What the connection agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) mtu: u32,
    pub(crate) max_rd_atomic: u8,
    /// Without progress for so long the queue pair fails; `None`: never.
    pub(crate) give_up_ns: Option<u64>,
    /// But not before so many repetitions: this process itself may have been stopped.
    pub(crate) min_resends: u32,
    /// How often a request may be sent again for want of a receive; 7: always.
    pub(crate) rnr_retry: u8,
}

impl Limits {
    /// What RTS says: `budget` is the local ACK timeout and the count of retries.
    pub(crate) fn new(mtu: u32, max_rd_atomic: u8, budget: (u8, u8), rnr_retry: u8) -> Self {
        let (timeout, retry_cnt) = budget;
        let step = 4096_u64 << timeout;
        Self {
            mtu,
            max_rd_atomic,
            give_up_ns: (timeout != 0).then(|| step * (u64::from(retry_cnt) + 1)),
            min_resends: u32::from(retry_cnt).min(3),
            rnr_retry,
        }
    }
}

/// How far sending is.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Before this packet all is in flight.
    pub(super) cur: Psn,
    /// The work request that `cur` lies in; the first one without PSNs if all others are sent.
    pub(super) wqe: usize,
    /// Behind the last packet in flight that asks for an acknowledgement.
    pub(super) asked_to: Psn,
    /// READ pieces and atomics without (complete) answer: first PSN and PSNs.
    pub(super) awaiting: VecDeque<(Psn, u32)>,
}

impl InFlight {
    /// Nothing is in flight.
    pub(super) const fn new(first: Psn) -> Self {
        Self {
            cur: first,
            wqe: 0,
            asked_to: first,
            awaiting: VecDeque::new(),
        }
    }
}

/// The peer has no receive.
#[derive(Debug, Default)]
pub(super) struct Rnr {
    /// Nothing is sent before.
    pub(super) until: Option<u64>,
    /// RNR NAKs since there was progress.
    pub(super) naks: u8,
}

/// How long the peer has been silent.
#[derive(Debug, Default)]
pub(super) struct Patience {
    pub(super) timer: Option<u64>,
    pub(super) progress_at: u64,
    /// Whether a look that came late was forgiven since then.
    pub(super) was_late: bool,
    /// Timeouts since then.
    resends: u32,
}

impl Requester {
    /// When [`Requester::on_timeout`] wants to be called.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.rnr.until.or(self.patience.timer)
    }

    fn arm(&mut self, now: u64) {
        if self.stream_use.is_taken() {
            self.patience.timer = Some(now + self.stalled_ns());
            return;
        }
        self.patience.timer = Some(expiry(
            &mut self.pacing,
            &self.limits,
            self.patience.progress_at,
            now,
        ));
    }

    /// Sends everything from `una` on again.
    pub(super) fn rewind(&mut self) {
        if self.stream_use.leave() {
            self.patience.timer = None;
        }
        self.before_timeout = None;
        self.flight.cur = self.una;
        self.flight.wqe = 0;
        self.flight.asked_to = self.una;
        self.flight.awaiting.clear();
        self.probe = None;
        self.gone_back_to = Some(self.una);
    }

    /// A packet of the peer shows that `una` was lost. Whether something is to be repeated.
    pub(super) fn go_back(&mut self) -> bool {
        if self.gone_back_to == Some(self.una) {
            return false;
        }
        self.rewind();
        self.pacing.on_loss();
        true
    }

    /// The peer has no receive for `una`. Returns whether that was so once too often.
    pub(super) fn wait_for_receive(&mut self, now: u64, delay_ns: u64) -> bool {
        if self.rnr.until.is_some() {
            return false; // The same one once more.
        }
        if self.limits.rnr_retry != RNR_FOREVER {
            if self.rnr.naks >= self.limits.rnr_retry {
                return true;
            }
            self.rnr.naks += 1;
        }
        self.rewind();
        self.pacing.on_needless_timeout();
        self.patience.progress_at = now; // The peer is alive: waiting for it is not silence.
        self.patience.resends = 0;
        self.patience.timer = None;
        self.rnr.until = Some(now + delay_ns);
        false
    }

    /// Timeouts since something came back.
    pub(crate) const fn resends(&self) -> u32 {
        self.patience.resends
    }

    /// A deadline may have passed.
    pub(crate) fn on_timeout(&mut self, now: u64) -> Expiry {
        if let Some(until) = self.rnr.until {
            if now < until {
                return Expiry::NotDue;
            }
            self.rnr.until = None;
            self.patience.progress_at = now;
            return Expiry::RnrOver;
        }
        let Some(late) = self.patience.timer.and_then(|at| now.checked_sub(at)) else {
            return Expiry::NotDue;
        };
        if self.stream_use.is_taken() {
            return self.on_stream_timeout(now, late);
        }
        // A process that was stopped has heard nobody, and its peers may go on a while after it. One that
        // is always late would wait too long for a peer that is gone.
        if late >= STOPPED_NS && !std::mem::replace(&mut self.patience.was_late, true) {
            self.patience.progress_at += late;
        }
        let silent = now.saturating_sub(self.patience.progress_at);
        if self
            .limits
            .give_up_ns
            .is_some_and(|budget| silent >= budget)
            && self.patience.resends >= self.limits.min_resends
        {
            return Expiry::GiveUp;
        }
        self.patience.resends += 1;
        let nothing = InFlight::new(self.una);
        let flight = std::mem::replace(&mut self.flight, nothing);
        let before = self.before_timeout.take().unwrap_or(flight);
        self.rewind();
        self.before_timeout = Some(before);
        self.pacing.on_timeout();
        self.arm(now);
        Expiry::Resend
    }

    /// Packets before `to` which were to be repeated turn out to have arrived.
    pub(super) fn was_needless(&mut self, to: Psn) {
        self.pacing.on_needless_timeout();
        match self.before_timeout.take() {
            Some(before) if before.cur.since(to) >= 0 => self.flight = before,
            _ => {
                self.flight.cur = to;
                self.flight.wqe = 0;
            }
        }
    }

    /// More was acknowledged: patience begins anew.
    #[inline]
    pub(super) fn has_progressed(&mut self, now: u64) {
        self.gone_back_to = None;
        self.rnr.until = None;
        self.rnr.naks = 0;
        self.patience.progress_at = now;
        self.patience.resends = 0;
        self.patience.was_late = false;
        self.patience.timer = None;
        if self.flight.cur != self.una {
            self.arm(now);
        }
    }
}

/// When to stop waiting: after the retransmission timeout, or when the budget is used up.
pub(super) fn expiry(pacing: &mut Pacing, limits: &Limits, progress_at: u64, now: u64) -> u64 {
    let rto = now + pacing.rto_ns();
    let budget_end = limits
        .give_up_ns
        .map(|budget| progress_at.saturating_add(budget));
    budget_end
        .filter(|end| *end > now)
        .map_or(rto, |end| rto.min(end))
}

/// The packets before `cur` were sent: perhaps the last of those that a timeout repeats.
#[inline]
pub(super) fn sent(before_timeout: &mut Option<InFlight>, pacing: &mut Pacing, cur: Psn) {
    if before_timeout
        .as_ref()
        .is_some_and(|before| cur.since(before.cur) >= 0)
    {
        *before_timeout = None;
        pacing.on_timeout_served();
    }
}
