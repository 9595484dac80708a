//! The driver's part in XRC connections: queue pairs that all peers of a node share.
//!
//! Operations are counted per peer, as with RC: one queue pair completes in order, so do the
//! operations of one peer among them, and whoever waits for a peer need not wait for its node.

use super::domain::XrcPath;
use super::messages::INIT;
use super::path::Path;
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::xrc::{Action, Remote};
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
                self.node_opened(node, direct, linked);
            }
            Action::Known { pe, .. } => {
                if self.manager.way(pe).is_some_and(|way| !way.draining) {
                    self.opened(pe);
                }
                self.notify = true;
            }
            Action::Drain { node } => self.drain_node(node),
            Action::DestroyIni { node, qpn } => {
                self.destroy_qp(qpn);
                self.node_closed(node);
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
            // What that means for operations is seen in the connection.
            Action::PeerRestarted { .. } | Action::PeerLeft { .. } => {}
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

    /// The queue pair to the node of `direct` may be used, for all its peers that are known.
    fn node_opened(&mut self, node: u32, direct: u32, linked: Result<(), VerbsError>) {
        for pe in self.members(node) {
            if self.manager.way(pe).is_some() {
                self.opened(pe);
            }
        }
        if let Err(e) = linked {
            self.broke(direct, ConnError::verbs("connect a queue pair")(e));
        }
    }

    /// Lets the operations on the queue pair to `node` complete, and none begin.
    fn drain_node(&mut self, node: u32) {
        if let Some(pe) = self.members(node).first()
            && !self.drain_if_idle(*pe)
        {
            self.attention.push(*pe);
        }
    }

    /// The queue pair to `node` is gone, and what was under way on it is lost.
    fn node_closed(&mut self, node: u32) {
        for pe in self.members(node) {
            self.lose_all(pe);
        }
    }

    fn members(&mut self, node: u32) -> Vec<u32> {
        let path = self.xrc();
        path.map_or_else(Vec::new, |path| {
            path.manager.machine.members(node).collect()
        })
    }
}

/// An initiator answers nobody.
const INIT_INI: QpAttr = QpAttr::Init {
    access: Access::NONE,
    qkey: None,
};
