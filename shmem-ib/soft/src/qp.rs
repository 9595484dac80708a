//! Queue pairs and the table that finds them by number.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use super::receive::RecvWqe;
use super::requester::Requester;
use super::responder::Responder;
use super::share::Sent;
use super::wqe::{Done, Wqe};
use crate::secrets::Secrets;
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
    /// When it last brought much.
    pub(crate) sent: Sent,
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
    /// The earliest entry of the timer heap that is about this queue pair.
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
                if let Some(requester) = &mut rc.requester {
                    requester.flush(out);
                }
            }
            Service::Ud(ud) => ud.flush(out),
        }
    }

    /// When the requester wants to be called.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match &self.service {
            Service::Rc(rc) => rc.requester.as_ref().and_then(Requester::deadline),
            Service::Ud(_) => None,
        }
    }
}

/// Bits of a QPN that index the table; the others count how often the place was used.
const INDEX_BITS: u32 = 16;
/// Most queue pairs of one HCA.
pub(crate) const MAX_QP: u32 = 1 << INDEX_BITS;
const GENERATIONS: u32 = 1 << (24 - INDEX_BITS);

/// All queue pairs of one HCA.
///
/// A QPN is a place in the table and a generation (1 to 255), so that packets for a destroyed
/// queue pair do not reach its successor. Free places are reused oldest first. Generations begin anywhere,
/// and the bits of places are mixed, so that numbers tell a stranger little; but who knows one of them
/// knows half of the others, so they are no secrets.
#[derive(Debug)]
pub(crate) struct QpTable {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    /// What places are mixed with.
    mask: u32,
    secrets: Secrets,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    qp: Option<Box<Qp>>,
}

impl QpTable {
    /// `secret` decides the numbers.
    pub(crate) fn new(secret: impl Into<Secrets>) -> Self {
        let mut secrets = secret.into();
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
            mask: secrets.next_u32() % MAX_QP,
            secrets,
        }
    }

    pub(crate) fn insert(&mut self, init: QpInit) -> Option<Qpn> {
        // A place rests until a few others are free, which keeps its old numbers unused longer.
        let index = if self.free.len() > 16 || self.slots.len() == MAX_QP as usize {
            self.free.pop_front()?
        } else {
            self.slots.push(Slot {
                generation: 1 + self.secrets.next_u32() % (GENERATIONS - 1),
                qp: None,
            });
            self.slots.len() as u32 - 1
        };
        let slot = &mut self.slots[index as usize];
        let qpn = Qpn((slot.generation << INDEX_BITS) | (index ^ self.mask));
        slot.qp = Some(Box::new(Qp::new(qpn, init)));
        Some(qpn)
    }

    pub(crate) fn remove(&mut self, qpn: Qpn) -> Option<Box<Qp>> {
        self.get_mut(qpn)?;
        let index = self.index(qpn);
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation % (GENERATIONS - 1) + 1;
        self.free.push_back(index);
        slot.qp.take()
    }

    const fn index(&self, qpn: Qpn) -> u32 {
        (qpn.0 ^ self.mask) & (MAX_QP - 1)
    }

    pub(crate) fn get(&self, qpn: Qpn) -> Option<&Qp> {
        let slot = self.slots.get(self.index(qpn) as usize)?;
        slot.qp.as_deref().filter(|qp| qp.qpn == qpn)
    }

    pub(crate) fn get_mut(&mut self, qpn: Qpn) -> Option<&mut Qp> {
        let index = self.index(qpn) as usize;
        let slot = self.slots.get_mut(index)?;
        slot.qp.as_deref_mut().filter(|qp| qp.qpn == qpn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmem_verbs::{Cq, QpType};

    fn init() -> QpInit {
        QpInit {
            max_send_wr: 1,
            max_recv_wr: 1,
            ..QpInit::new(QpType::Rc, Cq(0))
        }
    }

    #[test]
    fn numbers_are_not_reused_soon() {
        let mut table = QpTable::new(254);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..16 * 255 {
            let qpn = table.insert(init()).unwrap();
            assert!(qpn.0 > 1 && qpn.0 <= Psn::MASK);
            assert!(seen.insert(qpn), "{qpn} came back");
            assert!(table.get(qpn).is_some());
            assert!(table.remove(qpn).is_some());
            assert!(table.get(qpn).is_none() && table.remove(qpn).is_none());
        }
    }

    #[test]
    fn numbers_of_two_tables_have_little_in_common() {
        let numbers = |secret: u64| -> Vec<u32> {
            let mut table = QpTable::new(secret);
            (0..256).map(|_| table.insert(init()).unwrap().0).collect()
        };
        let (one, two) = (numbers(1), numbers(2));
        assert_eq!(one, numbers(1));
        let same = |bits: u32| {
            one.iter()
                .zip(&two)
                .filter(|(a, b)| *a & bits == *b & bits)
                .count()
        };
        assert_eq!((same(0xff_ffff), same(0xffff)), (0, 0));
        // Of a generation a few are the same by chance.
        assert!(same(0xff_0000) < 16, "{}", same(0xff_0000));
        // And one after the other is not one more.
        let steps = one.windows(2).filter(|w| w[1] == w[0] + 1).count();
        assert!(steps < 16, "{steps}");
    }

    #[test]
    fn table_is_bounded() {
        let mut table = QpTable::new(0);
        let all: Vec<Qpn> = std::iter::from_fn(|| table.insert(init())).collect();
        assert_eq!(all.len(), MAX_QP as usize);
        table.remove(all[5]).unwrap();
        let again = table.insert(init()).unwrap();
        assert_ne!(again, all[5]);
        assert!(table.insert(init()).is_none());
    }
}
