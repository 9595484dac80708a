//! The whole software HCA as one pure machine: no socket, no clock, no thread.
//!
//! # Contract
//! Four families of methods:
//! * verbs (`create_qp`, `post_send`, ...), as in [`crate::verbs::Hca`];
//! * inputs: [`Engine::handle_datagram`], [`Engine::handle_timeout`];
//! * outputs: [`Engine::poll_transmit`], to be called until it gives nothing after any input
//!   or post, and [`Engine::poll_cq`];
//! * [`Engine::next_timeout`]: when `handle_timeout` wants to be called at the latest.
//!
//! `now` is in nanoseconds and never goes back.

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::channel::ChannelTable;
use super::cq::CqTable;
use super::mr::{Memory, MrTable};
use super::qp::{Qp, QpTable, Service};
use super::receive::RecvWqe;
use super::requester::{Done, Expiry, Limits, Requester, Wqe};
use super::responder::Responder;
use crate::rng::Rng;
use crate::verbs::{
    Access, AddressVector, AsyncEvent, Completion, Counters, Cq, Mr, Mtu, PortInfo, Psn, QpAttr,
    QpInit, QpState, QpType, Qpn, RcDest, RecvWr, SendOp, SendWr, VerbsError, WcOpcode, WcStatus,
    qp_table,
};

/// Longest inline payload.
pub const MAX_INLINE: u32 = 1024;
/// Most READs and atomics in flight per queue pair and direction.
pub const MAX_RD_ATOMIC: u8 = 16;
/// Deepest queue of a queue pair.
pub const MAX_QP_WR: u32 = 1 << 15;
/// Deepest completion queue.
pub const MAX_CQE: u32 = 1 << 22;
/// Longest message: its packets stay well below half of the PSN space at the smallest MTU.
pub const MAX_MSG: u64 = 1 << 30;
/// Most local buffers of one work request.
pub const MAX_SGE: u32 = 16;
/// From so many waiting requests on, a post does not wait for an acknowledgement to send.
const BATCH: usize = 32;

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
    pub(super) channels: ChannelTable,
    pub(super) qps: QpTable,
    /// Queue pairs which may have something to send, in turn.
    pub(super) ready: VecDeque<Qpn>,
    /// Packets that the first of `ready` may still send in this turn.
    pub(super) turn: u32,
    /// Deadlines. Entries that a queue pair has outlived are skipped: see `timer_queued`.
    timers: BinaryHeap<Reverse<(u64, Qpn)>>,
    pub(super) counters: Counters,
    pub(super) done: Vec<Done>,
    pub(super) events: VecDeque<AsyncEvent>,
    rng: Rng,
    /// See [`Engine::set_interop`].
    pub(super) interop: bool,
}

impl<M: Memory> Engine<M> {
    /// An HCA without objects. `seed` decides keys, QPNs and jitter.
    pub fn new(av: AddressVector, mtu: Mtu, seed: u64, memory: M) -> Self {
        let mut rng = Rng::new(seed);
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
            xrc: false,
            atomics_coherent: true,
        };
        Self {
            port,
            memory,
            mrs: MrTable::new(rng.next_u64()),
            cqs: CqTable::default(),
            channels: ChannelTable::default(),
            qps: QpTable::new(rng.next_u64()),
            ready: VecDeque::new(),
            turn: 0,
            timers: BinaryHeap::new(),
            counters: Counters::default(),
            done: Vec::new(),
            events: VecDeque::new(),
            rng,
            interop: false,
        }
    }

    /// Whether peers may be devices of other makes: they send from any UDP port, and their IPv4
    /// packets have identifications that we do not see.
    pub const fn set_interop(&mut self, interop: bool) {
        self.interop = interop;
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

    /// Completions that exceeded the depth of their CQ: it was made too short.
    pub const fn cq_overruns(&self) -> u64 {
        self.cqs.overruns()
    }

    /// For the driver, which counts its system calls here.
    pub const fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Registers memory. Whether it exists is the business of `M`.
    ///
    /// # Errors
    /// See [`crate::verbs::Hca::reg_mr`].
    pub fn reg_mr(&mut self, addr: u64, len: u64, access: Access) -> Result<Mr, VerbsError> {
        self.mrs.register(addr, len, access)
    }

    /// Ends a registration.
    ///
    /// # Errors
    /// It does not exist.
    pub fn dereg_mr(&mut self, mr: &Mr) -> Result<(), VerbsError> {
        self.mrs.deregister(mr.handle)
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    /// `depth` is 0 or above [`MAX_CQE`].
    pub fn create_cq(&mut self, depth: u32) -> Result<Cq, VerbsError> {
        in_range("depth of a CQ", depth, 1, MAX_CQE, "1 to 2^22")?;
        Ok(self.cqs.create(depth))
    }

    /// Destroys a completion queue.
    ///
    /// # Errors
    /// It does not exist or is in use.
    pub fn destroy_cq(&mut self, cq: Cq) -> Result<(), VerbsError> {
        self.cqs.check(cq)?;
        let what = "destroying a CQ";
        Err(VerbsError::Unsupported { what })
    }

    /// Creates a queue pair in RESET.
    ///
    /// # Errors
    /// A limit is out of range, a CQ does not exist, or there are too many queue pairs.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, VerbsError> {
        self.cqs.check(init.send_cq)?;
        self.cqs.check(init.recv_cq)?;
        in_range("max_send_wr", init.max_send_wr, 0, MAX_QP_WR, "0 to 2^15")?;
        in_range("max_recv_wr", init.max_recv_wr, 0, MAX_QP_WR, "0 to 2^15")?;
        in_range("max_send_sge", init.max_send_sge, 0, MAX_SGE, "0 to 16")?;
        in_range("max_recv_sge", init.max_recv_sge, 0, MAX_SGE, "0 to 16")?;
        if matches!(init.ty, QpType::XrcIni | QpType::XrcTgt) {
            let what = "XRC queue pairs";
            return Err(VerbsError::Unsupported { what });
        }
        in_range("max_inline", init.max_inline, 0, MAX_INLINE, "0 to 1024")?;
        let limit = super::qp::MAX_QP;
        self.qps.insert(*init).ok_or(VerbsError::Exhausted {
            what: "queue pairs",
            limit,
        })
    }

    /// Moves a queue pair to another state.
    ///
    /// # Errors
    /// The transition is not legal or an attribute is out of range.
    pub fn modify_qp(&mut self, qpn: Qpn, attr: &QpAttr) -> Result<(), VerbsError> {
        let port = self.port;
        let qp = self.qps.get_mut(qpn).ok_or(VerbsError::NoSuchQp(qpn))?;
        qp_table::check(qpn, qp.init.ty, qp.state, attr)?;
        match (attr, &mut qp.service) {
            (QpAttr::Init { access, qkey }, service) => {
                if let (Service::Ud(ud), Some(qkey)) = (service, qkey) {
                    let allowed = "31 bits: bit 31 is for privileged keys";
                    in_range("qkey", qkey.0, 0, i32::MAX as u32, allowed)?;
                    ud.qkey = *qkey;
                }
                qp.access = *access;
            }
            (QpAttr::Rtr { dest: Some(dest) }, Service::Rc(rc)) => {
                check_dest(dest, &port)?;
                let mtu = dest.mtu.bytes() as u32;
                rc.responder = Some(Responder::new(dest.rq_psn, mtu, dest.max_dest_rd_atomic));
                rc.dest = Some(*dest);
            }
            (
                QpAttr::Rts {
                    sq_psn,
                    timeout,
                    retry_cnt,
                    rnr_retry,
                    max_rd_atomic,
                },
                service,
            ) => {
                in_range("sq_psn", sq_psn.0, 0, Psn::MASK, "24 bits")?;
                match service {
                    Service::Ud(ud) => ud.psn = *sq_psn,
                    Service::Rc(rc) => {
                        in_range("timeout", (*timeout).into(), 0, 31, "0 to 31")?;
                        in_range("retry_cnt", (*retry_cnt).into(), 0, 7, "0 to 7")?;
                        in_range("rnr_retry", (*rnr_retry).into(), 0, 7, "0 to 7")?;
                        let max = port.max_rd_atomic.into();
                        in_range("max_rd_atomic", (*max_rd_atomic).into(), 0, max, "0 to 16")?;
                        let step = 4096_u64 << timeout;
                        let limits = Limits {
                            mtu: rc.dest.map_or(256, |d| d.mtu.bytes() as u32),
                            max_rd_atomic: *max_rd_atomic,
                            give_up_ns: (*timeout != 0).then(|| step * (u64::from(*retry_cnt) + 1)),
                            min_resends: u32::from(*retry_cnt).min(3),
                        };
                        let seed = self.rng.next_u64();
                        rc.requester = Some(Requester::new(*sq_psn, limits, seed));
                    }
                }
            }
            (QpAttr::Err, _) => {
                self.fail_qp(qpn);
                return Ok(());
            }
            (QpAttr::Reset, _) => {
                qp.reset();
                return Ok(());
            }
            (QpAttr::Sqd | QpAttr::Resume, _) => {
                let what = "draining a send queue";
                return Err(VerbsError::Unsupported { what });
            }
            (QpAttr::Rtr { .. }, _) => {}
        }
        qp.state = attr.target();
        Ok(())
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

    /// Destroys a queue pair.
    ///
    /// # Errors
    /// It does not exist.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), VerbsError> {
        self.qps
            .remove(qpn)
            .map(drop)
            .ok_or(VerbsError::NoSuchQp(qpn))
    }

    /// Appends to a send queue. Nothing is sent before the next [`Engine::poll_transmit`].
    ///
    /// # Errors
    /// See [`crate::verbs::Hca::post_send`].
    pub fn post_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<Doorbell, VerbsError> {
        let mtu = self.port.active_mtu;
        let qp = self.qps.get_mut(qpn).ok_or(VerbsError::NoSuchQp(qpn))?;
        check_send(qp, wr, mtu)?;
        if qp.state == QpState::Err {
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
        let doorbell = match &mut qp.service {
            Service::Ud(ud) => {
                ud.sq.push_back(Wqe::new(wr));
                Doorbell::Now
            }
            Service::Rc(rc) => {
                let Some(requester) = &mut rc.requester else {
                    return Err(VerbsError::NoSuchQp(qpn));
                };
                requester.post(Wqe::new(wr));
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
    /// See [`crate::verbs::Hca::post_recv`].
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        let qp = self.qps.get_mut(qpn).ok_or(VerbsError::NoSuchQp(qpn))?;
        match qp.state {
            QpState::Reset => {
                return Err(VerbsError::WrongState {
                    qpn,
                    what: "a receive",
                    state: qp.state,
                    hint: "move it to INIT first",
                });
            }
            QpState::Err => {
                let recv_cq = qp.init.recv_cq;
                self.cqs.push(recv_cq, flushed_recv(qpn, wr.wr_id));
                return Ok(());
            }
            _ => {}
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
        let recv_cq = qp.init.recv_cq;
        for wr in qp.rq.drain(..) {
            self.cqs.push(recv_cq, flushed_recv(qpn, wr.wr_id));
        }
        self.report(qpn);
    }

    /// Turns `done` into completions of `qpn`.
    pub(super) fn report(&mut self, qpn: Qpn) {
        let Some(qp) = self.qps.get(qpn) else {
            self.done.clear();
            return;
        };
        for done in self.done.drain(..) {
            let Done {
                wr_id,
                opcode,
                status,
                byte_len,
            } = done;
            let completion = Completion {
                wr_id,
                status,
                opcode,
                qpn,
                byte_len,
                ..Completion::EMPTY
            };
            self.cqs.push(qp.init.send_cq, completion);
        }
    }
}

fn flushed_recv(qpn: Qpn, wr_id: u64) -> Completion {
    Completion {
        wr_id,
        status: WcStatus::WrFlushErr,
        opcode: WcOpcode::Recv,
        qpn,
        ..Completion::EMPTY
    }
}

fn in_range(
    what: &'static str,
    value: u32,
    min: u32,
    max: u32,
    allowed: &'static str,
) -> Result<(), VerbsError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(VerbsError::InvalidAttr {
        what,
        value: value.into(),
        allowed,
    })
}

fn check_dest(dest: &RcDest, port: &PortInfo) -> Result<(), VerbsError> {
    in_range("rq_psn", dest.rq_psn.0, 0, Psn::MASK, "24 bits")?;
    in_range(
        "destination qpn",
        dest.qpn.0,
        2,
        Psn::MASK,
        "24 bits, above 1",
    )?;
    let max = port.max_rd_atomic.into();
    in_range(
        "max_dest_rd_atomic",
        dest.max_dest_rd_atomic.into(),
        0,
        max,
        "0 to 16",
    )?;
    let (mtu, active) = (dest.mtu.bytes() as u32, port.active_mtu.bytes() as u32);
    in_range(
        "path mtu",
        mtu,
        256,
        active,
        "at most the active MTU of the port",
    )
}

fn check_send(qp: &Qp, wr: &SendWr<'_>, port_mtu: Mtu) -> Result<(), VerbsError> {
    let (qpn, ty, what) = (qp.qpn, qp.init.ty, wr.op.name());
    if matches!(wr.op, SendOp::UdSend { .. }) != (ty == QpType::Ud) {
        return Err(VerbsError::WrongType { qpn, ty, what });
    }
    if !matches!(qp.state, QpState::Rts | QpState::Err) {
        let hint = "move it to RTS first";
        return Err(VerbsError::WrongState {
            qpn,
            what,
            state: qp.state,
            hint,
        });
    }
    let too_long = |len, max| Err(VerbsError::TooLong { what, len, max });
    if matches!(wr.op, SendOp::Send { .. } | SendOp::SendInv { .. }) {
        return Err(VerbsError::Unsupported { what });
    }
    if wr.sges.len() > 1 {
        let (count, max) = (wr.sges.len(), 1);
        return Err(VerbsError::TooManySges { count, max });
    }
    let mut len = wr.sges.iter().map(|sge| u64::from(sge.len)).sum();
    if let Some(data) = wr.inline {
        len = data.len() as u64;
        if wr.op.writes_local() {
            let allowed = "inline payload is for sends and writes";
            return Err(VerbsError::InvalidAttr {
                what: "inline",
                value: len,
                allowed,
            });
        }
        if len > u64::from(qp.init.max_inline) {
            return too_long(len, qp.init.max_inline.into());
        }
    }
    match wr.op {
        SendOp::UdSend { .. } if len > port_mtu.bytes() as u64 => {
            return too_long(len, port_mtu.bytes() as u64);
        }
        SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. } if len != 8 => {
            let allowed = "8, the size of the word";
            return Err(VerbsError::InvalidAttr {
                what: "length of an atomic",
                value: len,
                allowed,
            });
        }
        _ if len > MAX_MSG => return too_long(len, MAX_MSG),
        _ => {}
    }
    let depth = qp.init.max_send_wr;
    if qp.state != QpState::Err && qp.send_queue_len() >= depth as usize {
        return Err(VerbsError::QueueFull {
            qpn,
            queue: "send",
            depth,
        });
    }
    Ok(())
}
