//! What the machines of connections ask for, done on the HCA.

use super::driver::{Driver, INIT, INIT_INITIATOR};
use super::error::ConnError;
use crate::interface::{Action, Link};
use crate::message::Memory;
use shmem_verbs::{Hca, Psn, QpAttr, QpInit, QpType, Qpn, VerbsError};

/// How long a peer whose message finds no receive waits: 0.16 ms. Receives are missing only while
/// whoever makes progress here is behind, which takes about so long to change.
const RNR_TIMER: u8 = 8;

impl<H: Hca> Driver<H> {
    /// Executes one action for the sake of `pe`.
    pub(super) fn perform(&mut self, pe: u32, action: Action) {
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
                    self.broke_over(pe, qpn, ConnError::verbs("connect a queue pair")(e));
                }
                self.posts += 1;
                let inbound = self.hca().inbound_mark(qpn).unwrap_or_default();
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
                    self.broke_over(pe, qpn, ConnError::verbs("reset a queue pair")(e));
                }
            }
            Action::DestroyQp(qpn) => {
                self.destroy_qp(qpn);
                self.closed(pe, qpn);
            }
            Action::Opened { qpn, memory } => {
                self.reaches(pe, memory);
                self.opened(pe, qpn);
            }
            Action::Drain(qpn) => {
                let peer = self.peers.entry(pe).or_default();
                peer.draining = peer.open == Some(qpn);
                if !peer.draining {
                    self.manager.drained(now, pe, qpn);
                } else if !self.drain_if_idle(pe) {
                    self.attention.push(pe);
                    self.manager.busy(now, pe);
                }
            }
            Action::SegmentsAdded(memory) => {
                self.reaches(pe, memory);
                self.notify = true;
            }
            Action::Failed(failure) => self.connect_failed(pe, failure),
            Action::PeerLeft { waits } => {
                let peer = self.peers.entry(pe).or_default();
                peer.left = true;
                if waits && !peer.is_idle() {
                    self.manager.busy(now, pe);
                }
            }
        }
    }

    /// What is known of the peer's memory.
    fn reaches(&mut self, pe: u32, memory: Memory) {
        let over_xrc = self.xrc.is_some();
        let peer = self.peers.entry(pe).or_default();
        peer.reaches(memory.segments);
        peer.srqn = over_xrc.then_some(memory.srqn);
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

    fn link_qp(&self, qpn: Qpn, sq_psn: Psn, link: &Link) -> Result<(), VerbsError> {
        self.ready_to_receive(qpn, link, RNR_TIMER)?;
        self.start_sending(qpn, sq_psn, link.max_rd_atomic)
    }

    /// Queue pair `qpn`, which was made for the sake of `pe`, is gone, and what was under way on it is
    /// lost.
    fn closed(&mut self, pe: u32, qpn: Qpn) {
        if let Some(owner) = &mut self.owner {
            owner.gone(pe, qpn);
        }
        self.broken_qps.remove(&qpn);
        for pe in self.reached_over(pe, qpn) {
            if let Some(peer) = self.peers.get_mut(&pe) {
                peer.open = None;
                peer.draining = false;
                peer.broken = None;
            }
            self.lose_all(pe);
        }
    }

    /// The peers that are reached over a queue pair that was made for the sake of `pe`: with XRC also
    /// others of its node.
    pub(super) fn reached_over(&self, pe: u32, qpn: Qpn) -> Vec<u32> {
        let over = |peer: &super::peer::Peer| peer.open == Some(qpn);
        if self.xrc.is_some() {
            let all = self.peers.iter().filter(|(_, peer)| over(peer));
            let mut all: Vec<u32> = all.map(|(pe, _)| *pe).collect();
            all.sort_unstable();
            return all;
        }
        let one = self.peers.get(&pe).filter(|peer| over(peer));
        one.map(|_| pe).into_iter().collect()
    }
}
