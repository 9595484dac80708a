//! The whole software HCA as one pure machine: no socket, no clock, no thread.
//!
//! # Contract
//! Four families of methods:
//! * verbs (`create_qp`, `post_send`, ...), as in [`shmem_verbs::Hca`];
//! * inputs: [`Engine::handle_datagram`], [`Engine::handle_timeout`];
//! * outputs: [`Engine::poll_transmit`], to be called until it gives nothing after any input
//!   or post, and [`Engine::poll_cq`];
//! * [`Engine::next_timeout`]: when `handle_timeout` wants to be called at the latest.
//!
//! `now` is in nanoseconds and never goes back.

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::checks::check_send;
use super::cq::{CqTable, Pushed};
use super::mr::{Memory, MrTable};
use super::qp::{QpTable, Service};
use super::receive::{Received, RecvWqe};
use super::requester::Expiry;
use super::share::Share;
use super::srq::SrqTable;
use super::wqe::{Done, Wqe};
use super::xrc::DomainTable;
use crate::secrets::Secrets;
use shmem_verbs::provider::checks;
use shmem_verbs::rng::Rng;
use shmem_verbs::{
    Access, AddressVector, Completion, Counters, Cq, Mr, Mtu, PortInfo, QpInit, QpState, QpType,
    Qpn, RecvWr, SendWr, VerbsError, WcOpcode, WcStatus, transitions,
};

/// Longest inline payload.
pub const MAX_INLINE: u32 = 1024;
/// Most READs and atomics in flight per queue pair and direction.
pub const MAX_RD_ATOMIC: u8 = 128;
/// Deepest queue of a queue pair.
pub const MAX_QP_WR: u32 = 1 << 15;
/// Deepest completion queue.
pub const MAX_CQE: u32 = 1 << 22;
/// Longest message: its packets stay well below half of the PSN space at the smallest MTU.
pub const MAX_MSG: u64 = 1 << 30;
/// Most local buffers of one work request.
pub const MAX_SGE: u32 = 16;
/// From so many waiting requests on, a post does not wait for an acknowledgement to send.
const BATCH: usize = 64;

/// When a post wants its packets to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doorbell {
    /// At once.
    Now,
    /// With the next acknowledgement, poll, or full batch: others of the same queue pair are
    /// in flight, so that one of these is certain to come.
    Later,
}

/// The machine; `M` is the memory that regions lie in.
#[derive(Debug)]
pub struct Engine<M> {
    pub(super) port: PortInfo,
    pub(super) memory: M,
    pub(super) mrs: MrTable,
    pub(super) cqs: CqTable,
    pub(super) qps: QpTable,
    pub(super) srqs: SrqTable,
    pub(super) xrcds: DomainTable,
    /// Queue pairs which may have something to send, in turn.
    pub(super) ready: VecDeque<Qpn>,
    /// Bytes that the first of `ready` has sent in this turn.
    pub(super) turn: u32,
    /// Deadlines. Entries that a queue pair has outlived are skipped: see `timer_queued`.
    timers: BinaryHeap<Reverse<(u64, Qpn)>>,
    pub(super) counters: Counters,
    pub(super) done: Vec<Done>,
    pub(super) share: Share,
    overrun: Option<Cq>,
    pub(super) rng: Rng,
    /// See [`Engine::set_interop`].
    pub(super) interop: bool,
}

impl<M: Memory> Engine<M> {
    /// An HCA without objects. `seed` decides keys, QPNs and jitter.
    pub fn new(av: AddressVector, mtu: Mtu, seed: u64, memory: M) -> Self {
        let (rng, mut secrets) = (Rng::new(seed), Secrets::from(seed));
        let port = PortInfo {
            av,
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
            qps: QpTable::new(secrets.fork()),
            ready: VecDeque::new(),
            turn: 0,
            timers: BinaryHeap::new(),
            counters: Counters::default(),
            done: Vec::new(),
            share: Share::default(),
            overrun: None,
            srqs: SrqTable::default(),
            xrcds: DomainTable::default(),
            rng,
            interop: false,
        }
    }

    /// Keys and queue pair numbers follow from this instead of the seed. To be called before anything
    /// else.
    pub(super) fn set_secret(&mut self, secret: [u8; 16]) {
        let mut secrets = Secrets::from(secret);
        self.mrs.set_secret(secrets.fork());
        self.qps = QpTable::new(secrets.fork());
    }

    /// Whether peers may be devices of other makes: they send from any UDP port, and their IPv4
    /// packets have identifications that we do not see.
    pub const fn set_interop(&mut self, interop: bool) {
        self.interop = interop;
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

    /// Registers memory. Whether it exists is the business of `M`.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::reg_mr`].
    pub fn reg_mr(&mut self, addr: u64, len: u64, access: Access) -> Result<Mr, VerbsError> {
        let mr = self.mrs.register(addr, len, access)?;
        self.xrcds.publish(&mr, access).or_else(|error| {
            self.mrs.deregister(mr.handle)?;
            Err(error)
        })?;
        Ok(mr)
    }

    /// Ends a registration.
    ///
    /// # Errors
    /// It does not exist.
    pub fn dereg_mr(&mut self, mr: &Mr) -> Result<(), VerbsError> {
        self.mrs.deregister(mr.handle)?;
        self.xrcds.withdraw(mr.rkey);
        Ok(())
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    /// `depth` is 0 or above [`MAX_CQE`].
    pub fn create_cq(&mut self, depth: u32) -> Result<Cq, VerbsError> {
        checks::check_cq(depth, &self.port)?;
        self.cqs.create(depth)
    }

    /// Destroys a completion queue.
    ///
    /// # Errors
    /// It does not exist or is in use.
    pub fn destroy_cq(&mut self, cq: Cq) -> Result<(), VerbsError> {
        self.cqs.destroy(cq)
    }

    /// Creates a queue pair in RESET.
    ///
    /// # Errors
    /// A limit is out of range, a CQ does not exist, or there are too many queue pairs.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, VerbsError> {
        checks::check_init(init, &self.port)?;
        for cq in reports_to(init) {
            self.cqs.check(cq)?;
        }
        if let Some(srq) = init.srq {
            self.srqs.find_basic(srq)?;
        }
        if let Some(xrcd) = init.xrcd {
            self.xrcds.check(xrcd)?;
        }
        let (what, limit) = ("queue pairs", super::qp::MAX_QP);
        let exhausted = VerbsError::Exhausted { what, limit };
        let qpn = self.qps.insert(*init).ok_or(exhausted)?;
        for cq in reports_to(init) {
            self.cqs.attach(cq);
        }
        if let Some(xrcd) = init.xrcd {
            self.xrcds.add_target(xrcd)?;
        }
        if let Some(queue) = init.srq.and_then(|srq| self.srqs.get_mut(srq)) {
            queue.users += 1;
        }
        Ok(qpn)
    }

    /// State of a queue pair.
    ///
    /// # Errors
    /// It does not exist.
    pub fn query_qp(&self, qpn: Qpn) -> Result<QpState, VerbsError> {
        self.qps
            .get(qpn)
            .map(|qp| qp.state)
            .ok_or(VerbsError::NoSuchQp(qpn))
    }

    /// The PSN that the next request of the peer will have: it changes with each of them.
    pub fn inbound_mark(&self, qpn: Qpn) -> Option<u32> {
        match &self.qps.get(qpn)?.service {
            Service::Rc(rc) => rc.responder.as_ref().map(|r| r.expected().0),
            _ => None,
        }
    }

    /// Destroys a queue pair.
    ///
    /// # Errors
    /// It does not exist.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), VerbsError> {
        let qp = self.qps.remove(qpn).ok_or(VerbsError::NoSuchQp(qpn))?;
        for cq in reports_to(&qp.init) {
            self.cqs.detach(cq, qpn);
        }
        if let Some(xrcd) = qp.init.xrcd {
            self.xrcds.remove_target(xrcd);
        }
        if let Some(queue) = qp.init.srq.and_then(|srq| self.srqs.get_mut(srq)) {
            queue.users -= 1;
        }
        Ok(())
    }

    /// Appends to a send queue. Nothing is sent before the next [`Engine::poll_transmit`].
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::post_send`].
    pub fn post_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<Doorbell, VerbsError> {
        let mtu = self.port.active_mtu;
        let qp = self.qps.get_mut(qpn).ok_or(VerbsError::NoSuchQp(qpn))?;
        check_send(qp, wr, mtu)?;
        if matches!(qp.state, QpState::Err | QpState::Sqe) {
            let (opcode, status) = (WcOpcode::from(&wr.op), WcStatus::WrFlushErr);
            self.done.push(Done {
                wr_id: wr.wr_id,
                opcode,
                status,
                byte_len: 0,
            });
            self.report(qpn);
            return Ok(Doorbell::Later);
        }
        let wqe = Wqe::new(wr, qp.init.sq_sig_all);
        let doorbell = match &mut qp.service {
            Service::Ud(ud) => {
                ud.sq.push_back(wqe);
                Doorbell::Now
            }
            Service::Rc(rc) => {
                let Some(requester) = &mut rc.requester else {
                    return Err(VerbsError::NoSuchQp(qpn));
                };
                requester.post(wqe);
                if requester.is_quiet() || requester.backlog() >= BATCH {
                    Doorbell::Now
                } else {
                    Doorbell::Later
                }
            }
        };
        self.mark_ready(qpn);
        Ok(doorbell)
    }

    /// Appends to a receive queue.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::post_recv`].
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        let qp = self.qps.get_mut(qpn).ok_or(VerbsError::NoSuchQp(qpn))?;
        let poster = checks::Poster {
            qpn,
            init: &qp.init,
            state: qp.state,
            may_read: false,
        };
        checks::check_recv(poster, wr)?;
        if qp.state == QpState::Err {
            self.receive_ended(qpn, &Received::new(wr.wr_id, WcStatus::WrFlushErr));
            return Ok(());
        }
        let depth = qp.init.max_recv_wr;
        if qp.rq.len() >= depth as usize {
            return Err(VerbsError::QueueFull {
                qpn,
                queue: "receive",
                depth,
            });
        }
        qp.rq.push_back(RecvWqe::new(wr));
        Ok(())
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

    /// Whether [`Engine::poll_transmit`] may have a packet.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When [`Engine::handle_timeout`] has to be called at the latest.
    pub fn next_timeout(&mut self) -> Option<u64> {
        while let Some(&Reverse((at, qpn))) = self.timers.peek() {
            let live = self
                .qps
                .get_mut(qpn)
                .filter(|qp| qp.timer_queued == Some(at));
            let Some(qp) = live else {
                self.timers.pop();
                continue;
            };
            match qp.deadline() {
                Some(deadline) if deadline <= at => return Some(at),
                deadline => {
                    // It moved on since: queue it where it belongs now.
                    self.timers.pop();
                    qp.timer_queued = deadline;
                    if let Some(deadline) = deadline {
                        self.timers.push(Reverse((deadline, qpn)));
                    }
                }
            }
        }
        None
    }

    /// Lets all timers act that are due. Returns whether one was.
    pub fn handle_timeout(&mut self, now: u64) -> bool {
        let mut any = false;
        while let Some(at) = self.next_timeout() {
            if at > now {
                break;
            }
            let Some(Reverse((_, qpn))) = self.timers.pop() else {
                break;
            };
            let Some(qp) = self.qps.get_mut(qpn) else {
                continue;
            };
            qp.timer_queued = None;
            let Service::Rc(rc) = &mut qp.service else {
                continue;
            };
            let Some(requester) = &mut rc.requester else {
                continue;
            };
            any = true;
            match requester.on_timeout(now) {
                Expiry::NotDue => {}
                Expiry::RnrOver => self.mark_ready(qpn),
                Expiry::Resend => {
                    self.counters.timeouts += 1;
                    self.mark_ready(qpn);
                }
                Expiry::GiveUp => {
                    let oldest = requester.oldest();
                    requester.fail(now, oldest, WcStatus::RetryExcErr, &mut self.done);
                    self.fail_qp(qpn);
                }
            }
            self.queue_timer(qpn);
        }
        any
    }

    /// Makes sure that the timer heap has an entry no later than the deadline of `qpn`.
    pub(super) fn queue_timer(&mut self, qpn: Qpn) {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        if let Some(deadline) = qp.deadline()
            && qp.timer_queued.is_none_or(|at| deadline < at)
        {
            qp.timer_queued = Some(deadline);
            self.timers.push(Reverse((deadline, qpn)));
        }
    }

    pub(super) fn mark_ready(&mut self, qpn: Qpn) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && !qp.in_ready
        {
            qp.in_ready = true;
            self.ready.push_back(qpn);
        }
    }

    /// Moves a queue pair to ERR and reports everything that was queued.
    pub(super) fn fail_qp(&mut self, qpn: Qpn) {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        qp.enter_error(&mut self.done);
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
    pub(super) fn fail_send_queue(&mut self, qpn: Qpn) {
        let Some(qp) = self.qps.get_mut(qpn) else {
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
    pub(super) fn report(&mut self, qpn: Qpn) {
        if self.done.is_empty() {
            return;
        }
        let Some(qp) = self.qps.get(qpn) else {
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
    pub(super) fn receive_ended(&mut self, qpn: Qpn, received: &Received) {
        let Some(qp) = self.qps.get(qpn) else {
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
    pub(super) fn complete(&mut self, cq: Cq, completion: Completion) {
        match self.cqs.push(cq, completion) {
            Pushed::Stored => return,
            Pushed::Overflow => self.overrun = Some(cq),
            Pushed::Lost => {}
        }
        let qpn = completion.qpn;
        if self.qps.get(qpn).is_some_and(|qp| qp.state != QpState::Err) {
            self.fail_qp(qpn);
        }
    }
}

/// The completion queues of a queue pair. An XRC target has none: its receives report to that of the
/// shared receive queue.
fn reports_to(init: &QpInit) -> impl Iterator<Item = Cq> + use<> {
    let both = [init.send_cq, init.recv_cq];
    let has_queues = init.ty != QpType::XrcTgt;
    both.into_iter().filter(move |_| has_queues)
}
