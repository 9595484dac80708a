//! The state of the machine, its timers, and how queue pairs fail and completions come to be.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use super::stream::Streams;
use crate::limits::{MAX_CQE, MAX_INLINE, MAX_MSG, MAX_QP_WR, MAX_RD_ATOMIC, MAX_SGE};
use crate::memory::mr::{Memory, MrTable};
use crate::proof::Proof;
use crate::qp::{QueuePairs, Service};
use crate::queues::completion::{CqTable, Pushed};
use crate::queues::receive::Received;
use crate::queues::send::Done;
use crate::queues::shared::SrqTable;
use crate::rc::requester::Expiry;
use crate::rc::share::Share;
use crate::secrets::Secrets;
use crate::timers::Timers;
use crate::xrc::DomainTable;
use shmem_verbs::provider::Slots;
use shmem_verbs::rng::Rng;
use shmem_verbs::{
    AddressVector, Completion, Counters, Cq, Lane, Mtu, PortInfo, QpState, Qpn, VerbsError,
    WcStatus, transitions,
};

/// From so many repetitions in vain on it may be that packets of this length do not get through.
pub(super) const SILENCE: u32 = 4;

/// The machine; `M` is the memory that regions lie in.
#[derive(Debug)]
pub struct Engine<M> {
    pub(crate) port: PortInfo,
    pub(crate) memory: M,
    pub(crate) mrs: MrTable,
    pub(crate) cqs: CqTable,
    pub(crate) qps: QueuePairs,
    pub(crate) srqs: SrqTable,
    pub(crate) xrcds: DomainTable,
    /// Queue pairs which may have something to send, in turn.
    pub(crate) ready: VecDeque<Qpn>,
    /// Queue pairs that a message came to since the HCA was polled.
    pub(crate) taken: Vec<Qpn>,
    /// Bytes that the first of `ready` has sent in this turn.
    pub(crate) turn: u32,
    pub(crate) timers: Timers,
    pub(crate) counters: Counters,
    pub(crate) done: Vec<Done>,
    pub(crate) share: Share,
    pub(crate) streams: Streams,
    overrun: Option<Cq>,
    /// A peer from which nothing comes back.
    pub(crate) unheard: Option<AddressVector>,
    pub(crate) rng: Rng,
    /// See [`Engine::set_key`].
    pub(crate) proof: Proof,
    /// See [`Engine::set_interop`].
    pub(crate) interop: bool,
    /// See [`Engine::set_lending`].
    pub(crate) lends: bool,
}

impl<M: Memory> Engine<M> {
    /// An HCA without objects. `seed` decides keys, QPNs and jitter.
    pub fn new(av: AddressVector, mtu: Mtu, seed: u64, memory: M) -> Self {
        let (rng, mut secrets) = (Rng::new(seed), Secrets::from(seed));
        let port = PortInfo {
            av,
            lane: Lane::default(),
            active_mtu: mtu,
            max_inline: MAX_INLINE,
            max_rd_atomic: MAX_RD_ATOMIC,
            max_qp_wr: MAX_QP_WR,
            max_cqe: MAX_CQE,
            max_msg: MAX_MSG,
            max_sge: MAX_SGE,
            max_srq_wr: MAX_QP_WR,
            xrc: true,
            atomics_coherent: true,
            notices_inbound: true,
            pins_memory: false,
        };
        Self {
            port,
            memory,
            mrs: MrTable::new(secrets.fork()),
            cqs: CqTable::default(),
            qps: Slots::scattered(secrets.next_u64()),
            ready: VecDeque::new(),
            taken: Vec::new(),
            turn: 0,
            timers: Timers::default(),
            counters: Counters::default(),
            done: Vec::new(),
            share: Share::default(),
            streams: Streams::new(secrets.fork()),
            overrun: None,
            unheard: None,
            srqs: SrqTable::default(),
            xrcds: DomainTable::default(),
            rng,
            proof: Proof::default(),
            interop: false,
            lends: false,
        }
    }

    /// Keys and queue pair numbers follow from this instead of the seed. To be called before anything
    /// else.
    pub(crate) fn set_secret(&mut self, secret: [u8; 16]) {
        let mut secrets = Secrets::from(secret);
        self.mrs.set_secret(secrets.fork());
        self.qps = Slots::scattered(secrets.next_u64());
        self.streams.set_tokens(secrets.fork());
    }

    /// Queue pairs that are connected from now on take packets only of peers that have this key, but not where peers are devices of
    /// other makes.
    pub const fn set_key(&mut self, key: [u8; 16]) {
        self.proof = Proof::new(key);
    }

    /// Whether peers may be devices of other makes: they send from any UDP port, and their IPv4
    /// packets have identifications that we do not see.
    pub const fn set_interop(&mut self, interop: bool) {
        self.interop = interop;
    }

    /// Whether the payload of packets that are longer than InfiniBand's is to stay where it is, for a driver that
    /// sends it from there ([`Transmit::lent`](super::Transmit::lent)).
    pub const fn set_lending(&mut self, lends: bool) {
        self.lends = lends;
    }

    /// How packets are marked, as far as it stands in what is protected by the ICRC: the partition. Packets
    /// of others are dropped.
    pub const fn set_lane(&mut self, lane: Lane) {
        self.port.lane = lane;
    }

    /// So many bytes of packets wait for [`Engine::handle_datagram`] at most, what is more is lost: peers
    /// are told to send no more than that. Not to be said where peers are devices of other makes.
    pub fn set_receive_buffer(&mut self, bytes: u32) {
        self.share.set_buffer(bytes, self.port.active_mtu);
    }

    /// What this port is.
    pub const fn port(&self) -> &PortInfo {
        &self.port
    }

    /// The memory that regions lie in.
    pub const fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Counts so far.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// For the driver, which counts its system calls here.
    pub const fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// State of a queue pair.
    ///
    /// # Errors
    /// It does not exist.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpState, VerbsError> {
        self.qps
            .get(qpn.0)
            .map(|qp| qp.state)
            .ok_or(VerbsError::NoSuchQp(qpn))
    }

    /// The PSN that the next request of the peer will have: it changes with each of them.
    pub fn inbound_mark(&self, qpn: Qpn) -> Option<u32> {
        match &self.qps.get(qpn.0)?.service {
            Service::Rc(rc) => rc.responder.as_ref().map(|r| r.expected().0),
            _ => None,
        }
    }

    /// Takes completions.
    pub fn poll_cq(&mut self, cq: Cq, out: &mut [Completion]) -> usize {
        self.cqs.poll(cq, out)
    }

    /// Whether a CQ has nothing to take.
    pub fn cq_is_empty(&self, cq: Cq) -> bool {
        self.cqs.is_empty(cq)
    }

    /// Completions waiting in all CQs.
    pub const fn unpolled(&self) -> usize {
        self.cqs.unpolled()
    }

    /// A completion queue that has begun to lose completions since the last call.
    pub const fn overrun(&mut self) -> Option<Cq> {
        self.overrun.take()
    }

    /// A peer to which something was sent again and again since the last call, without an answer or as the answer to what was asked
    /// again and again: packets of this length may not get through.
    pub const fn take_unheard(&mut self) -> Option<AddressVector> {
        self.unheard.take()
    }

    /// Whether [`Engine::poll_transmit`] may have a packet.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When [`Engine::handle_timeout`] has to be called at the latest.
    pub fn next_timeout(&mut self) -> Option<u64> {
        let of_qps = self.timers.next_timeout(&mut self.qps);
        of_qps.into_iter().chain(self.streams.until()).min()
    }

    /// Lets all timers act that are due. Returns whether one was.
    pub fn handle_timeout(&mut self, now: u64) -> bool {
        let mut any = self.streams_timeout(now);
        while let Some(qpn) = self.timers.take_due(&mut self.qps, now) {
            self.invitation_timeout(now, qpn);
            let Some(qp) = self.qps.get_mut(qpn.0) else {
                continue;
            };
            let Service::Rc(rc) = &mut qp.service else {
                continue;
            };
            let held = rc.turns.on_timeout(now);
            let Some(requester) = &mut rc.requester else {
                continue;
            };
            any = true;
            match requester.on_timeout(now) {
                Expiry::NotDue => {}
                Expiry::RnrOver => self.mark_ready(qpn),
                Expiry::Resend => {
                    self.counters.timeouts += 1;
                    if requester.resends() >= SILENCE {
                        self.unheard = rc.dest.map(|dest| dest.av);
                    }
                    self.end_left_stream(qpn);
                    self.mark_ready(qpn);
                }
                Expiry::GiveUp => {
                    let oldest = requester.oldest();
                    requester.fail(now, oldest, WcStatus::RetryExcErr, &mut self.done);
                    self.fail_qp(qpn);
                }
            }
            if held {
                self.mark_ready(qpn);
            }
            self.queue_timer(qpn);
        }
        any
    }

    /// Somebody polls, and so has nothing to say at once: acknowledgements that waited for that are to be sent.
    pub fn polled(&mut self) {
        while let Some(qpn) = self.taken.pop() {
            let Some(qp) = self.qps.get_mut(qpn.0) else {
                continue;
            };
            if let Service::Rc(rc) = &mut qp.service {
                rc.in_taken = false;
                if rc.turns.polled() {
                    self.mark_ready(qpn);
                }
            }
        }
    }

    /// Makes sure that somebody looks at `qpn` at its deadline.
    pub(crate) fn queue_timer(&mut self, qpn: Qpn) {
        if let Some(qp) = self.qps.get_mut(qpn.0) {
            self.timers.set(qp);
        }
    }

    pub(crate) fn mark_ready(&mut self, qpn: Qpn) {
        if let Some(qp) = self.qps.get_mut(qpn.0)
            && !qp.in_ready
        {
            qp.in_ready = true;
            self.ready.push_back(qpn);
        }
    }

    /// Moves a queue pair to ERR and reports everything that was queued.
    pub(crate) fn fail_qp(&mut self, qpn: Qpn) {
        let Some(qp) = self.qps.get_mut(qpn.0) else {
            return;
        };
        qp.enter_error(&mut self.done);
        if let Service::Rc(rc) = &mut qp.service {
            self.streams.forget(rc);
        }
        let unfinished = qp.unfinished_receive();
        let queue = std::mem::take(&mut qp.rq);
        let flushed = |wr_id| Received::new(wr_id, WcStatus::WrFlushErr);
        if let Some((wr_id, srqn)) = unfinished {
            let received = Received {
                srqn,
                ..flushed(wr_id)
            };
            self.receive_ended(qpn, &received);
        }
        for wqe in queue {
            self.receive_ended(qpn, &flushed(wqe.wr_id));
        }
        self.report(qpn);
    }

    /// Moves a UD queue pair whose send failed to SQE and reports what was queued behind it.
    pub(crate) fn fail_send_queue(&mut self, qpn: Qpn) {
        let Some(qp) = self.qps.get_mut(qpn.0) else {
            return;
        };
        if let Service::Ud(ud) = &mut qp.service {
            debug_assert!(
                transitions::SPONTANEOUS.contains(&(qp.init.ty, qp.state, QpState::Sqe)),
                "the state table has no such transition"
            );
            qp.state = QpState::Sqe;
            ud.flush(&mut self.done);
        }
        self.report(qpn);
    }

    /// Turns `done` into completions of `qpn`.
    pub(crate) fn report(&mut self, qpn: Qpn) {
        if self.done.is_empty() {
            return;
        }
        let Some(qp) = self.qps.get(qpn.0) else {
            self.done.clear();
            return;
        };
        let cq = qp.init.send_cq;
        let mut done = std::mem::take(&mut self.done);
        for Done {
            wr_id,
            opcode,
            status,
            byte_len,
        } in done.drain(..)
        {
            let completion = Completion {
                wr_id,
                status,
                opcode,
                qpn,
                byte_len,
                ..Completion::EMPTY
            };
            self.complete(cq, completion);
        }
        self.done = done; // Not to allocate it again.
    }

    /// Reports the end of a receive of `qpn`.
    pub(crate) fn receive_ended(&mut self, qpn: Qpn, received: &Received) {
        let Some(qp) = self.qps.get(qpn.0) else {
            return;
        };
        let cq = match (qp.init.xrcd, received.srqn) {
            (Some(xrcd), Some(srqn)) => {
                let srq = self.xrcds.srq(xrcd, srqn);
                srq.and_then(|srq| self.srqs.cq(srq))
            }
            _ => Some(qp.init.recv_cq),
        };
        // A receive whose queue was destroyed meanwhile has nobody to be reported to.
        if let Some(cq) = cq {
            self.complete(cq, received.completion(qpn));
        }
    }

    /// Adds a completion to a CQ. A queue pair whose completion is lost has failed.
    pub(crate) fn complete(&mut self, cq: Cq, completion: Completion) {
        match self.cqs.push(cq, completion) {
            Pushed::Stored => return,
            Pushed::Overflow => self.overrun = Some(cq),
            Pushed::Lost => {}
        }
        let qpn = completion.qpn;
        if self
            .qps
            .get(qpn.0)
            .is_some_and(|qp| qp.state != QpState::Err)
        {
            self.fail_qp(qpn);
        }
    }
}
