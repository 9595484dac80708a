//! The driver's part in XRC connections: queue pairs that all peers of a node share.
//!
//! Operations are counted per peer, as with RC: one queue pair completes in order, so do the
//! operations of one peer among them, and whoever waits for a peer need not wait for its node.

use super::lanes::XrcPath;
use super::messages::INIT;
use super::path::Path;
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::message::Segments;
use crate::xrc::{Action, Memory, Remote};
use shmem_verbs::{Access, Hca, QpAttr, QpInit, QpType, Qpn, RcDest, VerbsError};

impl<H: Hca> Driver<H> {
    fn xrc(&mut self) -> Option<&mut XrcPath> {
        match &mut self.manager {
            Path::Xrc(path) => Some(path),
            Path::Rc(_) => None,
        }
    }

    /// Executes one action of the XRC machine.
    pub(crate) fn act_xrc(&mut self, action: Action) {
        let now = self.now();
        match action {
            Action::Send { to, message } => self.send(&to, &message),
            Action::CreateIni { node } => {
                let init = self.qp_init(QpType::XrcIni);
                let created = self.create_qp(&init, INIT_INI);
                if let Some(path) = self.xrc() {
                    let machine = &mut path.manager.machine;
                    match created {
                        Ok(qpn) => machine.ini_created(now, node, qpn),
                        Err(e) => machine.ini_failed(now, node, &e.to_string()),
                    }
                }
            }
            Action::Opened {
                node,
                qpn,
                sq_psn,
                remote,
                direct,
            } => {
                let linked = self
                    .ready_to_receive(qpn, &remote)
                    .and_then(|()| self.start_sending(qpn, sq_psn, remote.rd_atomic));
                self.lane_opened(node, qpn, direct, linked);
            }
            Action::Known { pe, node, memory } => self.peer_known(pe, node, memory),
            Action::Drain { node } => self.drain_lane(node),
            Action::DestroyIni { node, qpn } => {
                self.destroy_qp(qpn);
                self.lane_closed(node, qpn);
            }
            Action::CreateTgt { pe, remote } => {
                let created = self.create_target(&remote);
                if let Some(path) = self.xrc() {
                    let machine = &mut path.manager.machine;
                    match created {
                        Ok(qpn) => machine.tgt_created(now, pe, qpn),
                        Err(_) => machine.tgt_failed(now, pe),
                    }
                }
            }
            Action::DestroyTgt { qpn, .. } => {
                self.destroy_qp(qpn);
            }
            Action::Failed { pe, failure } => self.connect_failed(pe, failure),
            Action::PeerRestarted { pe, .. } => {
                // What is under way towards its predecessor ends with the queue pair.
                let Some(peer) = self.peers.get_mut(&pe) else {
                    return;
                };
                (peer.open, peer.srqn, peer.left) = (None, None, false);
                peer.reaches(Segments::new());
                if std::mem::take(&mut peer.draining)
                    && let Some(path) = self.xrc()
                {
                    path.drained(now, pe);
                }
            }
            Action::PeerLeft { pe } => self.peers.entry(pe).or_default().left = true,
        }
    }

    fn create_target(&mut self, remote: &Remote) -> Result<Qpn, VerbsError> {
        let init = QpInit {
            xrcd: self.xrc().map(|path| path.domain),
            max_send_wr: 0,
            ..QpInit::new(QpType::XrcTgt, self.cq)
        };
        let qpn = self.create_qp(&init, INIT)?;
        if let Err(e) = self.ready_to_receive(qpn, remote) {
            self.destroy_qp(qpn);
            return Err(e);
        }
        Ok(qpn)
    }

    fn ready_to_receive(&self, qpn: Qpn, remote: &Remote) -> Result<(), VerbsError> {
        let dest = RcDest {
            av: remote.av,
            qpn: remote.qpn,
            rq_psn: remote.psn,
            mtu: remote.mtu,
            max_dest_rd_atomic: remote.rd_atomic,
            // Nothing here needs a receive.
            min_rnr_timer: 0,
        };
        self.hca().modify_qp(qpn, &QpAttr::Rtr { dest: Some(dest) })
    }

    fn lane_opened(&mut self, node: u32, qpn: Qpn, direct: u32, linked: Result<(), VerbsError>) {
        let Some(path) = self.xrc() else { return };
        let lane = path.lanes.entry(node).or_default();
        lane.open = Some((qpn, direct));
        let members = lane.members.clone();
        for pe in members {
            if self.peers.get(&pe).is_some_and(|p| p.srqn.is_some()) {
                self.opened(pe, qpn);
            }
        }
        if let Err(e) = linked {
            // The direct peer becomes known next, and gets this error then.
            let error = ConnError::verbs("connect a queue pair")(e);
            if let Some(path) = self.xrc() {
                path.node_of.insert(direct, node);
            }
            self.broke(direct, error);
        }
    }

    fn peer_known(&mut self, pe: u32, node: u32, memory: Memory) {
        let Some(path) = self.xrc() else { return };
        path.node_of.insert(pe, node);
        let lane = path.lanes.entry(node).or_default();
        if !lane.members.contains(&pe) {
            lane.members.push(pe);
        }
        // While the lane drains, nothing new begins on it.
        let open = lane.open.filter(|_| lane.draining.is_empty());
        let broken = lane.broken.clone();
        let peer = self.peers.entry(pe).or_default();
        peer.left = false;
        peer.reaches(memory.segments);
        peer.srqn = Some(memory.srqn);
        peer.broken = broken;
        if let Some((qpn, _)) = open
            && peer.open != Some(qpn)
        {
            self.opened(pe, qpn);
        }
        self.notify = true;
    }

    /// Lets the operations on the queue pair to `node` complete, and none begin.
    fn drain_lane(&mut self, node: u32) {
        let Some(path) = self.xrc() else { return };
        let Some(lane) = path.lanes.get_mut(&node) else {
            return;
        };
        let Some((qpn, _)) = lane.open else { return };
        let members = lane.members.clone();
        let peers = &mut self.peers;
        let busy = members.into_iter().filter(|pe| {
            let peer = peers.get_mut(pe).filter(|peer| peer.open == Some(qpn));
            peer.is_some_and(|peer| {
                peer.draining = true;
                true
            })
        });
        let draining: Vec<u32> = busy.collect();
        let now = self.now();
        if let Some(path) = self.xrc() {
            if let Some(lane) = path.lanes.get_mut(&node) {
                lane.draining.clone_from(&draining);
            }
            if draining.is_empty() {
                path.manager.machine.drained(now, node);
            }
        }
        for pe in draining {
            if !self.drain_if_idle(pe) {
                self.attention.push(pe);
            }
        }
    }

    fn lane_closed(&mut self, node: u32, qpn: Qpn) {
        let Some(path) = self.xrc() else { return };
        let Some(lane) = path.lanes.get_mut(&node) else {
            return;
        };
        if lane.open.is_none_or(|(open, _)| open != qpn) {
            return;
        }
        lane.open = None;
        lane.broken = None;
        lane.draining.clear();
        for pe in lane.members.clone() {
            if let Some(peer) = self.peers.get_mut(&pe) {
                peer.broken = None;
                if peer.open == Some(qpn) {
                    (peer.open, peer.draining) = (None, false);
                }
            }
            // Also of those that were forgotten meanwhile.
            self.lose_all(pe);
        }
    }
}

/// An initiator answers nobody.
const INIT_INI: QpAttr = QpAttr::Init {
    access: Access::NONE,
    qkey: None,
};
