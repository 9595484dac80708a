//! The queue pairs of all endpoints of a simulation, and the rules that they must obey.

use std::collections::BTreeMap;

use shmem_ib::connect::interface::Link;
use shmem_ib::verbs::{Psn, Qpn};

/// One queue pair. In INIT it has no link.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Qp {
    pub(crate) owner: u32,
    pub(crate) peer: u32,
    pub(crate) link: Option<(Qpn, Psn, Psn)>,
    pub(crate) opened: bool,
}

/// All queue pairs there are. Numbers are never used twice, so that a wrong one is noticed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Fabric {
    next: u32,
    /// Most queue pairs of one owner; 0 is no limit.
    cap: u32,
    qps: BTreeMap<u32, Qp>,
}

impl Fabric {
    pub(crate) fn limited(cap: u32) -> Self {
        Self {
            cap,
            ..Self::default()
        }
    }

    pub(crate) fn create(&mut self, owner: u32, peer: u32) -> Qpn {
        self.next += 1;
        self.create_numbered(owner, peer, self.next)
    }

    /// As [`create`](Self::create) with a number that was never used before.
    pub(crate) fn create_numbered(&mut self, owner: u32, peer: u32, number: u32) -> Qpn {
        assert!(
            !self
                .qps
                .values()
                .any(|q| q.owner == owner && q.peer == peer),
            "PE {owner} makes a second queue pair towards PE {peer}"
        );
        let owned = self.qps.values().filter(|q| q.owner == owner).count();
        assert!(
            self.cap == 0 || owned < self.cap as usize,
            "PE {owner} has more than {} queue pairs",
            self.cap
        );
        self.qps.insert(
            number,
            Qp {
                owner,
                peer,
                link: None,
                opened: false,
            },
        );
        Qpn(number)
    }

    /// Queue pairs made so far.
    pub(crate) fn made(&self) -> u64 {
        self.next.into()
    }

    pub(crate) fn link(&mut self, owner: u32, qpn: Qpn, sq_psn: Psn, link: &Link) {
        let qp = self.own(owner, qpn);
        assert_eq!(qp.link, None, "QP {qpn} is linked twice without a reset");
        qp.link = Some((link.qpn, link.psn, sq_psn));
    }

    pub(crate) fn reset(&mut self, owner: u32, qpn: Qpn) {
        let qp = self.own(owner, qpn);
        assert!(!qp.opened, "QP {qpn} was open: its PSNs are used up");
        assert!(qp.link.is_some(), "QP {qpn} is in INIT already");
        qp.link = None;
    }

    /// Returns whether the queue pair was open.
    pub(crate) fn destroy(&mut self, owner: u32, qpn: Qpn) -> bool {
        let opened = self.own(owner, qpn).opened;
        self.qps.remove(&qpn.0);
        opened
    }

    /// `owner` believes that it may send on `qpn` from now on. Returns whether the other end
    /// still exists; if it does, it must be ready for exactly this queue pair.
    pub(crate) fn open(&mut self, owner: u32, qpn: Qpn) -> bool {
        let qp = self.own(owner, qpn);
        assert!(!qp.opened, "QP {qpn} opened twice");
        qp.opened = true;
        self.deliver(qpn) != Delivery::NoReceiver
    }

    /// An RC packet of `qpn` arrives at the other end.
    pub(crate) fn deliver(&self, qpn: Qpn) -> Delivery {
        let Some(sender) = self.qps.get(&qpn.0) else {
            return Delivery::SenderGone;
        };
        let (to, rq_psn, sq_psn) = sender.link.expect("who sends is linked");
        let Some(receiver) = self.qps.get(&to.0) else {
            return Delivery::NoReceiver;
        };
        assert_eq!(
            (receiver.owner, receiver.peer),
            (sender.peer, sender.owner),
            "wrong pair"
        );
        let expected = Some((qpn, sq_psn, rq_psn));
        assert_eq!(
            receiver.link, expected,
            "QP {qpn} sends to QP {to}, which is not ready for it"
        );
        Delivery::To(receiver.owner, to)
    }

    /// A process ends: its queue pairs are gone.
    pub(crate) fn crash(&mut self, owner: u32) {
        self.qps.retain(|_, q| q.owner != owner);
    }

    fn own(&mut self, owner: u32, qpn: Qpn) -> &mut Qp {
        let qp = self.qps.get_mut(&qpn.0);
        let qp = qp.unwrap_or_else(|| panic!("PE {owner} uses QP {qpn}, which does not exist"));
        assert_eq!(qp.owner, owner, "PE {owner} uses QP {qpn} of another PE");
        qp
    }
}

/// What becomes of an RC packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    /// It is executed by this PE on this queue pair.
    To(u32, Qpn),
    /// The receiving queue pair is gone.
    NoReceiver,
    /// The sending queue pair is gone, so nobody waits for the answer.
    SenderGone,
}
