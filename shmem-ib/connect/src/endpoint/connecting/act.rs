//! What the state machines of connections ask for, done on the HCA: queue pairs are made, linked, and
//! destroyed, one per peer, or with XRC one per node.
//!
//! Operations are counted per peer in either case: one queue pair completes in order, so do the
//! operations of one peer among them, and whoever waits for a peer need not wait for its node.

use super::messages::INIT;
use crate::endpoint::awaited::LinkChange;
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::interface::{Action, Link};
use shmem_verbs::{Access, Hca, Psn, QpAttr, QpInit, QpType, Qpn, RcDest, VerbsError};

/// An XRC initiator answers nobody.
const INIT_INITIATOR: QpAttr = QpAttr::Init {
    access: Access::NONE,
    qkey: None,
};

impl<H: Hca> Driver<H> {
    /// Does what the manager wants done.
    pub(crate) fn act(&mut self) {
        while let Some((pe, action)) = self.manager.poll_action() {
            self.qps.changes += 1;
            self.perform(pe, action);
        }
    }

    /// Does one thing for the sake of `pe`.
    fn perform(&mut self, pe: u32, action: Action) {
        let now = self.now();
        match action {
            Action::Send { to, message } => self.send(&to, &message),
            Action::CreateQp => match self.create_initiating() {
                Ok(qpn) => self.manager.qp_created(now, pe, qpn),
                Err(e) => self.manager.qp_failed(now, pe, e.to_string()),
            },
            Action::CreateTarget(link) => {
                let created = self.create_target(&link);
                self.manager.target_created(now, pe, created.ok());
            }
            Action::LinkQp { qpn, sq_psn, link } => {
                if let Err(e) = self.link_qp(qpn, sq_psn, &link) {
                    self.broke(pe, ConnError::verbs("connect a queue pair")(e));
                }
                let inbound = self.hca().inbound_mark(qpn).unwrap_or_default();
                let peer = self.peers.entry(pe).or_default();
                peer.inbound = inbound;
                peer.used = self.sends.used();
            }
            Action::ResetQp(qpn) => {
                self.take_last_receives(qpn);
                if let Some(owner) = &mut self.owner {
                    owner.gone(pe, qpn);
                }
                let reset = self
                    .hca()
                    .modify_qp(qpn, &QpAttr::Reset)
                    .and_then(|()| self.hca().modify_qp(qpn, &INIT));
                if let Err(e) = reset {
                    self.broke(pe, ConnError::verbs("reset a queue pair")(e));
                }
            }
            Action::DestroyQp(qpn) => {
                self.destroy_qp(qpn);
                self.tell_link(pe, LinkChange::Closed);
                if let Some(owner) = &mut self.owner {
                    owner.gone(pe, qpn);
                }
                for sharer in self.manager.sharers(pe) {
                    self.lose_all(sharer);
                }
            }
            Action::DestroyTarget(qpn) => {
                self.destroy_qp(qpn);
            }
            Action::Opened { since } => self.opened(pe, since),
            Action::Drain(_) => {
                if !self.drain_if_idle(pe) {
                    self.attention.push(pe);
                    self.manager.busy(now, pe);
                }
            }
            Action::SegmentsAdded => self.notices.happened = true,
            Action::Failed(failure) => self.connect_failed(pe, failure),
            Action::PeerLeft { waits } => {
                if waits && self.peers.get(&pe).is_some_and(|peer| !peer.is_idle()) {
                    self.manager.busy(now, pe);
                }
            }
        }
    }

    /// A queue pair in INIT, for operations of ours.
    fn create_initiating(&mut self) -> Result<Qpn, VerbsError> {
        if self.xrc.is_some() {
            let init = self.qp_init(QpType::XrcIni);
            return self.create_qp(&init, INIT_INITIATOR);
        }
        let init = QpInit {
            srq: self.receives()?,
            ..self.qp_init(QpType::Rc)
        };
        self.create_qp(&init, INIT)
    }

    /// The target for an initiator of a peer, ready to receive.
    fn create_target(&mut self, link: &Link) -> Result<Qpn, VerbsError> {
        let init = QpInit {
            xrcd: self.xrc.as_ref().map(|domain| domain.xrcd),
            max_send_wr: 0,
            ..QpInit::new(QpType::XrcTgt, self.completions.cq)
        };
        let qpn = self.create_qp(&init, INIT)?;
        if let Err(e) = self.ready_to_receive(qpn, link) {
            self.destroy_qp(qpn);
            return Err(e);
        }
        Ok(qpn)
    }

    fn link_qp(&self, qpn: Qpn, sq_psn: Psn, link: &Link) -> Result<(), VerbsError> {
        self.ready_to_receive(qpn, link)?;
        self.start_sending(qpn, sq_psn, link.max_rd_atomic)
    }

    /// Moves a queue pair from INIT to RTR.
    fn ready_to_receive(&self, qpn: Qpn, link: &Link) -> Result<(), VerbsError> {
        let dest = RcDest {
            av: link.av,
            qpn: link.qpn,
            rq_psn: link.psn,
            mtu: link.mtu,
            max_dest_rd_atomic: link.max_dest_rd_atomic,
            min_rnr_timer: self.config.rnr_timer,
        };
        self.hca().modify_qp(qpn, &QpAttr::Rtr { dest: Some(dest) })
    }
}
