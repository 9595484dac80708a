//! What a PE has for XRC: its domain and receive queue, and the connections to nodes.

use std::os::fd::{AsFd, OwnedFd};

use hashbrown::HashMap;

use crate::endpoint::error::ConnError;
use crate::message::Segments;
use crate::xrc::{Manager, Memory};
use shmem_verbs::{Cq, Hca, Qpn, Srq, SrqInit, SrqKind, SrqNum, Xrcd};

/// The connection to one node, as the driver sees it.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The initiator QP, if operations may be posted, and the peer that has its target.
    pub(super) open: Option<(Qpn, u32)>,
    /// Peers of the node that were ever known.
    pub(super) members: Vec<u32>,
    /// Those that have operations to complete before the queue pair can be closed.
    pub(super) draining: Vec<u32>,
    /// The queue pair is in error.
    pub(super) broken: Option<ConnError>,
}

/// What a PE has for XRC.
#[derive(Debug)]
pub(crate) struct XrcPath {
    pub(crate) manager: Manager,
    pub(super) domain: Xrcd,
    srq: Srq,
    srqn: SrqNum,
    pub(super) lanes: HashMap<u32, Lane>,
    /// The nodes of the peers that are known.
    pub(super) node_of: HashMap<u32, u32>,
}

impl XrcPath {
    /// Joins the XRC domain of the node, with a receive queue that stays empty: nobody sends, it is
    /// only a name for this process.
    pub(crate) fn new<H: Hca>(
        hca: &H,
        cq: Cq,
        file: Option<&OwnedFd>,
        manager: Manager,
    ) -> Result<Self, ConnError> {
        let domain = hca
            .open_xrcd(file.map(AsFd::as_fd))
            .map_err(ConnError::verbs("open the XRC domain of the node"))?;
        let init = SrqInit {
            max_wr: 1,
            max_sge: 1,
            kind: SrqKind::Xrc { xrcd: domain, cq },
        };
        let create = || {
            let srq = hca.create_srq(&init)?;
            let srqn = hca.srq_num(srq).inspect_err(|_| {
                let _ = hca.destroy_srq(srq);
            })?;
            Ok((srq, srqn))
        };
        let (srq, srqn) = create().map_err(|e| {
            let _ = hca.close_xrcd(domain);
            ConnError::verbs("create an XRC receive queue")(e)
        })?;
        Ok(Self {
            manager,
            domain,
            srq,
            srqn,
            lanes: HashMap::new(),
            node_of: HashMap::new(),
        })
    }

    pub(crate) fn ready(&mut self, now: u64, segments: Segments) {
        let srqn = self.srqn;
        self.manager.machine.ready(now, Memory { srqn, segments });
    }

    /// One peer of a node whose connection drains has nothing under way any more.
    pub(crate) fn drained(&mut self, now: u64, pe: u32) {
        let Some(node) = self.node_of.get(&pe) else {
            return;
        };
        let Some(lane) = self.lanes.get_mut(node) else {
            return;
        };
        lane.draining.retain(|member| *member != pe);
        if lane.draining.is_empty() {
            self.manager.machine.drained(now, *node);
        }
    }

    pub(crate) fn broke(&mut self, pe: u32, error: &ConnError) -> Vec<u32> {
        let lane = self.node_of.get(&pe).and_then(|n| self.lanes.get_mut(n));
        let Some(lane) = lane.filter(|lane| lane.open.is_some()) else {
            return vec![pe];
        };
        lane.broken.get_or_insert_with(|| error.clone());
        lane.members.clone()
    }

    pub(crate) fn direct(&self, pe: u32) -> Option<u32> {
        let lane = self.lanes.get(self.node_of.get(&pe)?)?;
        lane.open.map(|(_, direct)| direct)
    }

    pub(crate) fn release<H: Hca>(&self, hca: &H) {
        let _ = hca.destroy_srq(self.srq);
        let _ = hca.close_xrcd(self.domain);
    }
}
