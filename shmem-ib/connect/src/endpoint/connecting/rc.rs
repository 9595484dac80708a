//! The driver's part in RC connections: a queue pair per peer.

use super::messages::INIT;
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::handshake::{Action, Link};
use shmem_verbs::{Hca, QpAttr, QpInit, QpType, Qpn, RcDest, VerbsError};

/// How long a peer whose message finds no receive waits: 0.16 ms. Receives are missing only while
/// whoever makes progress here is behind, which takes about so long to change.
const RNR_TIMER: u8 = 8;

impl<H: Hca> Driver<H> {
    /// Executes one action of the state machine towards `pe`.
    pub(crate) fn act_rc(&mut self, pe: u32, action: Action) {
        let now = self.now();
        match action {
            Action::Send { to, message } => self.send(&to, &message),
            Action::CreateQp => {
                let created = self.receives().and_then(|srq| {
                    let init = QpInit {
                        srq,
                        ..self.qp_init(QpType::Rc)
                    };
                    self.create_qp(&init, INIT)
                });
                self.manager.rc(|m| match created {
                    Ok(qpn) => m.qp_created(now, pe, qpn),
                    Err(e) => m.qp_failed(now, pe, e.to_string()),
                });
            }
            Action::LinkQp(link) => {
                if let Err(e) = self.link_qp(&link) {
                    self.broke(pe, ConnError::verbs("connect a queue pair")(e));
                }
                self.posts += 1;
                let inbound = self.hca().inbound_mark(link.qpn).unwrap_or_default();
                let peer = self.peers.entry(pe).or_default();
                peer.inbound = inbound;
                peer.used = self.posts;
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
                self.closed(pe, qpn);
            }
            Action::Opened { .. } => {
                self.peers.entry(pe).or_default().acknowledge = None;
                self.opened(pe);
            }
            Action::Drain(_) => {
                if !self.drain_if_idle(pe) {
                    self.attention.push(pe);
                    self.manager.rc(|m| m.busy(now, pe));
                }
            }
            Action::SegmentsChanged { revision, .. } => {
                self.notify = true;
                let peer = self.peers.entry(pe).or_default();
                // What is posted in part goes on with the keys that it began with.
                if peer.is_idle() && !self.ops.is_being_posted(pe) {
                    self.manager.rc(|m| m.segments_applied(now, pe, revision));
                } else {
                    peer.acknowledge = Some((peer.mark(), revision));
                    self.attention.push(pe);
                }
            }
            Action::Failed(failure) => self.connect_failed(pe, failure),
            // Its consequences come as actions of their own.
            Action::PeerRestarted { .. } => {}
            Action::PeerLeft { waits } => {
                if waits && self.peers.get(&pe).is_some_and(|peer| !peer.is_idle()) {
                    self.manager.rc(|m| m.busy(now, pe));
                }
            }
        }
    }

    fn link_qp(&self, link: &Link) -> Result<(), VerbsError> {
        let dest = RcDest {
            av: link.peer_av,
            qpn: link.peer_qpn,
            rq_psn: link.rq_psn,
            mtu: link.mtu,
            max_dest_rd_atomic: link.max_dest_rd_atomic,
            min_rnr_timer: RNR_TIMER,
        };
        self.hca()
            .modify_qp(link.qpn, &QpAttr::Rtr { dest: Some(dest) })?;
        self.start_sending(link.qpn, link.sq_psn, link.max_rd_atomic)
    }

    /// The queue pair for operations towards `pe` is gone, and what was under way is lost.
    fn closed(&mut self, pe: u32, qpn: Qpn) {
        if let Some(owner) = &mut self.owner {
            owner.gone(pe, qpn);
        }
        self.lose_all(pe);
    }
}
