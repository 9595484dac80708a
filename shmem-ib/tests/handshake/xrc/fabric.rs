//! The initiator and target QPs of all PEs of a simulation, and the rules that they must obey.

use std::collections::{BTreeMap, BTreeSet};

use shmem_ib::connect::interface::Link;
use shmem_ib::verbs::{Psn, Qpn};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ini {
    owner: u32,
    node: u32,
    /// The TGT QP and our starting PSN, when open.
    link: Option<(Qpn, Psn)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Tgt {
    owner: u32,
    initiator: u32,
    ini: Qpn,
    rq_psn: Psn,
}

/// All queue pairs there are. Numbers are never used twice, so that a wrong one is noticed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Fabric {
    next: u32,
    inis: BTreeMap<u32, Ini>,
    tgts: BTreeMap<u32, Tgt>,
    /// TGT QPs that went with their process, or because their owner could wait no longer.
    lost: BTreeSet<u32>,
}

impl Fabric {
    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub(crate) fn create_ini(&mut self, owner: u32, node: u32) -> Qpn {
        assert!(
            self.ini_of(owner, node).is_none(),
            "PE {owner} makes a second INI QP towards node {node}"
        );
        let qpn = self.number();
        let link = None;
        self.inis.insert(qpn, Ini { owner, node, link });
        Qpn(qpn)
    }

    pub(crate) fn ini_of(&self, owner: u32, node: u32) -> Option<Qpn> {
        let mut of = self.inis.iter().filter(|(_, q)| q.owner == owner);
        of.find(|(_, q)| q.node == node).map(|(qpn, _)| Qpn(*qpn))
    }

    /// The INI QP may be used from now on. Returns whether its target still exists; if so, it
    /// must be there for exactly this INI QP.
    pub(crate) fn open(&mut self, owner: u32, qpn: Qpn, psn: Psn, remote: &Link) -> bool {
        let ini = self.own_ini(owner, qpn);
        assert_eq!(ini.link, None, "INI QP {qpn} is linked twice");
        ini.link = Some((remote.qpn, psn));
        self.deliver(qpn).is_some()
    }

    /// A request arrives. Returns the PE whose TGT QP takes it; `None` if that was lost.
    pub(crate) fn deliver(&self, qpn: Qpn) -> Option<u32> {
        let ini = self.inis.get(&qpn.0).expect("who sends exists");
        let (to, psn) = ini.link.expect("who sends is linked");
        let Some(tgt) = self.tgts.get(&to.0) else {
            assert!(
                self.lost.contains(&to.0),
                "INI QP {qpn} uses TGT QP {to}, which was destroyed under it"
            );
            return None;
        };
        let expected = (ini.owner, qpn, psn);
        assert_eq!((tgt.initiator, tgt.ini, tgt.rq_psn), expected);
        Some(tgt.owner)
    }

    /// Returns whether it was open.
    pub(crate) fn destroy_ini(&mut self, owner: u32, qpn: Qpn) -> bool {
        let open = self.own_ini(owner, qpn).link.is_some();
        self.inis.remove(&qpn.0);
        open
    }

    pub(crate) fn create_tgt(&mut self, owner: u32, initiator: u32, remote: &Link) -> Qpn {
        assert!(
            !self
                .tgts
                .values()
                .any(|t| (t.owner, t.initiator) == (owner, initiator)),
            "PE {owner} makes a second TGT QP for PE {initiator}"
        );
        let qpn = self.number();
        let tgt = Tgt {
            owner,
            initiator,
            ini: remote.qpn,
            rq_psn: remote.psn,
        };
        self.tgts.insert(qpn, tgt);
        Qpn(qpn)
    }

    pub(crate) fn destroy_tgt(&mut self, owner: u32, qpn: Qpn) {
        let user = self.user_of(qpn);
        assert_eq!(
            user, None,
            "PE {owner} destroys TGT QP {qpn}, which is in use"
        );
        let tgt = self.tgts.remove(&qpn.0);
        assert_eq!(tgt.expect("it exists").owner, owner);
    }

    /// The open INI QP whose requests come to this TGT QP.
    fn user_of(&self, tgt: Qpn) -> Option<u32> {
        let mut users = self.inis.iter();
        users
            .find(|(_, ini)| ini.link.is_some_and(|(to, _)| to == tgt))
            .map(|(qpn, _)| *qpn)
    }

    /// The queue pairs of a process end with it. Returns how many initiators lose their target.
    pub(crate) fn end(&mut self, owner: u32) -> usize {
        self.inis.retain(|_, q| q.owner != owner);
        let of: Vec<u32> = self
            .tgts
            .iter()
            .filter(|(_, t)| t.owner == owner)
            .map(|(qpn, _)| *qpn)
            .collect();
        let used = of.iter().filter(|q| self.user_of(Qpn(**q)).is_some());
        let used = used.count();
        for qpn in of {
            self.tgts.remove(&qpn);
            self.lost.insert(qpn);
        }
        used
    }

    pub(crate) fn exists(&self, ini: Qpn) -> bool {
        self.inis.contains_key(&ini.0)
    }

    /// Initiators for which PE `owner` has a TGT QP, and the INI QPs.
    pub(crate) fn served_by(&self, owner: u32) -> Vec<(u32, Qpn)> {
        let of = self.tgts.values().filter(|t| t.owner == owner);
        of.map(|t| (t.initiator, t.ini)).collect()
    }

    fn own_ini(&mut self, owner: u32, qpn: Qpn) -> &mut Ini {
        let ini = self.inis.get_mut(&qpn.0);
        let ini = ini.unwrap_or_else(|| panic!("PE {owner} uses INI QP {qpn}: there is none"));
        assert_eq!(ini.owner, owner, "INI QP {qpn} belongs to another PE");
        ini
    }
}
