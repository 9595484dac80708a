//! Queue pairs: what each holds, whatever its type.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use crate::queues::receive::RecvWqe;
use crate::queues::send::{Done, Wqe};
use crate::rc::requester::Requester;
use crate::rc::responder::Responder;
use crate::rc::share::Sent;
use crate::rc::stream::QpStreams;
use crate::rc::turns::Turns;
use shmem_verbs::provider::Slots;
use shmem_verbs::{Access, Psn, Qkey, QpInit, QpState, QpType, Qpn, RcDest, SrqNum, WcStatus};

/// What only one type of queue pair has.
#[derive(Debug)]
pub(crate) enum Service {
    /// RC. The halves exist from RTR and RTS on.
    Rc(Box<RcService>),
    /// UD.
    Ud(UdService),
}

#[derive(Debug, Default)]
pub(crate) struct RcService {
    pub(crate) dest: Option<RcDest>,
    pub(crate) responder: Option<Responder>,
    pub(crate) requester: Option<Requester>,
    /// What the ICRC of packets that come and go is changed by.
    pub(crate) salt_in: u32,
    pub(crate) salt_out: u32,
    /// READs in a row that were answered before.
    pub(crate) asked_again: u32,
    /// Number of the first request that it sends.
    pub(crate) first: Psn,
    /// When it last brought much.
    pub(crate) sent: Sent,
    /// Which acknowledgements may wait.
    pub(crate) turns: Turns,
    /// It is in the list of those that a message came to since the HCA was polled.
    pub(crate) in_taken: bool,
    /// Made when there is to be a stream.
    pub(crate) stream: Option<Box<QpStreams>>,
}

impl RcService {
    /// When something is to be sent again, or an acknowledgement has been held for long enough.
    fn deadline(&self) -> Option<u64> {
        let requests = self.requester.as_ref().and_then(Requester::deadline);
        let invitation = self.stream.as_ref().and_then(|of| of.invitation.as_ref());
        let invites = invitation.and_then(|invitation| invitation.due_at);
        let held = self.turns.deadline();
        requests.into_iter().chain(invites).chain(held).min()
    }
}

#[derive(Debug, Default)]
pub(crate) struct UdService {
    pub(crate) qkey: Qkey,
    pub(crate) sq: VecDeque<Wqe>,
    pub(crate) psn: Psn,
    /// Sends without completion after the last one that had one: they hold their places.
    pub(crate) unreported: usize,
}

impl UdService {
    /// What was queued ends with a flush error.
    pub(crate) fn flush(&mut self, out: &mut Vec<Done>) {
        let flushed = |wqe: Wqe| wqe.done(WcStatus::WrFlushErr);
        out.extend(self.sq.drain(..).map(flushed));
        self.unreported = 0;
    }
}

#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) init: QpInit,
    pub(crate) state: QpState,
    pub(crate) access: Access,
    pub(crate) service: Service,
    pub(crate) rq: VecDeque<RecvWqe>,
    /// It is in the ring of queue pairs with something to send.
    pub(crate) in_ready: bool,
    /// The earliest entry of the table of timers that is about this queue pair.
    pub(crate) timer_queued: Option<u64>,
}

impl Qp {
    pub(crate) fn new(qpn: Qpn, init: QpInit) -> Self {
        Self {
            qpn,
            init,
            state: QpState::Reset,
            access: Access::NONE,
            service: Self::fresh_service(&init),
            rq: VecDeque::new(),
            in_ready: false,
            timer_queued: None,
        }
    }

    fn fresh_service(init: &QpInit) -> Service {
        match init.ty {
            QpType::Rc | QpType::XrcIni | QpType::XrcTgt => Service::Rc(Box::default()),
            QpType::Ud => Service::Ud(UdService::default()),
        }
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        self.state = QpState::Reset;
        self.access = Access::NONE;
        self.service = Self::fresh_service(&self.init);
        self.rq.clear();
    }

    /// The receive of a message that was not complete.
    pub(crate) fn unfinished_receive(&mut self) -> Option<(u64, Option<SrqNum>)> {
        match &mut self.service {
            Service::Rc(rc) => rc.responder.as_mut().and_then(Responder::take_unfinished),
            Service::Ud(_) => None,
        }
    }

    /// Places of the send queue in use.
    pub(crate) fn send_queue_len(&self) -> usize {
        match &self.service {
            Service::Rc(rc) => rc.requester.as_ref().map_or(0, Requester::len),
            Service::Ud(ud) => ud.sq.len() + ud.unreported,
        }
    }

    /// Enters the error state; what was queued goes to `out`.
    pub(crate) fn enter_error(&mut self, out: &mut Vec<Done>) {
        self.state = QpState::Err;
        match &mut self.service {
            Service::Rc(rc) => {
                rc.turns = Turns::default();
                if let Some(requester) = &mut rc.requester {
                    requester.flush(out);
                }
            }
            Service::Ud(ud) => ud.flush(out),
        }
    }

    /// When it wants to be looked at.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match &self.service {
            Service::Rc(rc) => rc.deadline(),
            Service::Ud(_) => None,
        }
    }
}

/// All queue pairs of one HCA by number.
///
/// Their numbers are scattered: packets for a destroyed queue pair do not reach its successor, and those
/// of two processes differ.
pub(crate) type QueuePairs = Slots<Box<Qp>>;
