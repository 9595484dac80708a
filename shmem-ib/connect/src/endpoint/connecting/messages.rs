//! Connection messages on their way in and out, and what becomes of a connection: it opens, fails, or
//! breaks.

use std::time::Duration;

use crate::endpoint::atomics::by_owner::books::ANSWER_SLOTS;
use crate::endpoint::awaited::LinkChange;
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::interface::Failure;
use crate::message::{MAX_LEN, Message, packet_key};
use crate::{Route, UdAddress};
use shmem_verbs::{
    Access, Completion, Hca, Psn, QpAttr, QpInit, QpType, Qpn, VerbsError, WcStatus,
};

/// Datagrams kept until the job's identity is known.
const SEALED_MAX: usize = 64;

pub(super) const INIT: QpAttr = QpAttr::Init {
    access: Access::ALL,
    qkey: None,
};

impl<H: Hca> Driver<H> {
    /// A datagram has arrived.
    pub(crate) fn datagram(&mut self, slot: u32, completion: &Completion) {
        let Some(ud) = &self.ud else { return };
        match completion.status {
            WcStatus::Success => {}
            WcStatus::WrFlushErr => return,
            status => return self.datagrams_failed("receiving", status),
        }
        let (bytes, len) = ud.received(slot, completion);
        // The slot was taken from the queue by this completion, so there is room for it.
        let _ = ud.post_receive(&*self.hca, slot);
        match &mut self.sealed {
            None => self.datagram_in(&bytes[..len]),
            // As for one that finds no receive: it will be sent again.
            Some(sealed) if sealed.len() == SEALED_MAX => {}
            Some(sealed) => sealed.push((bytes, len)),
        }
    }

    /// A datagram has left, or could not.
    pub(crate) fn datagram_sent(&mut self, slot: u32, completion: &Completion) {
        if let Some(ud) = &mut self.ud {
            ud.sent(slot);
        }
        if !matches!(completion.status, WcStatus::Success | WcStatus::WrFlushErr) {
            self.datagrams_failed("sending", completion.status);
        }
    }

    fn datagram_in(&mut self, bytes: &[u8]) {
        let now = self.now();
        // What is not for us is dropped silently, and counted by the manager.
        let _ = self.manager.handle_datagram(now, bytes);
        self.act();
    }

    /// From here on messages can be read and written.
    pub(crate) fn set_identity(&mut self, job_id: [u8; 16], job_key: &'static [u8; 32]) {
        let Some(sealed) = self.sealed.take() else {
            return;
        };
        // Branches that are made later have it from there.
        (self.config.job_id, self.config.job_key) = (job_id, job_key);
        let by_owner = self.owner.is_some();
        let identity = self.config.identity(job_id, job_key, by_owner);
        self.hca.set_key(packet_key(job_key));
        self.manager.set_identity(&identity);
        for (bytes, len) in sealed {
            self.datagram_in(&bytes[..len]);
        }
    }

    pub(crate) fn send(&mut self, to: &UdAddress, message: &Message) {
        let mut bytes = [0; MAX_LEN];
        let len = self.manager.encode(message, &mut bytes);
        if let Some(ud) = &mut self.ud {
            ud.send(&*self.hca, to, &bytes[..len]);
        }
    }

    pub(crate) fn qp_init(&self, ty: QpType) -> QpInit {
        QpInit {
            max_send_wr: self.config.sq_depth + self.owner.as_ref().map_or(0, |_| ANSWER_SLOTS),
            max_inline: self.copies.inline as u32,
            ..QpInit::new(ty, self.completions.cq)
        }
    }

    pub(crate) fn create_qp(&mut self, init: &QpInit, attr: QpAttr) -> Result<Qpn, VerbsError> {
        let qpn = self.hca.create_qp(init)?;
        if let Err(e) = self.hca.modify_qp(qpn, &attr) {
            let _ = self.hca.destroy_qp(qpn);
            return Err(e);
        }
        self.qps.made();
        Ok(qpn)
    }

    /// Moves a queue pair from RTR to RTS.
    pub(crate) fn start_sending(
        &self,
        qpn: Qpn,
        sq_psn: Psn,
        max_rd_atomic: u8,
    ) -> Result<(), VerbsError> {
        let rts = QpAttr::Rts {
            sq_psn,
            timeout: self.config.rc_timeout,
            retry_cnt: self.config.rc_retry,
            // Without owners there are no SENDs: one would be a mistake.
            rnr_retry: self.owner.as_ref().map_or(0, |_| self.config.rnr_retry),
            max_rd_atomic,
        };
        self.hca.modify_qp(qpn, &rts)
    }

    pub(crate) fn destroy_qp(&mut self, qpn: Qpn) -> bool {
        self.take_last_receives(qpn);
        self.sends.held.forget(qpn);
        let gone = self.hca.destroy_qp(qpn).is_ok();
        self.qps.destroyed(qpn, gone);
        gone
    }

    /// The connection to `pe` is open, and was wanted `since` then.
    pub(super) fn opened(&mut self, pe: u32, since: Option<u64>) {
        let took = since.map(|since| self.now().saturating_sub(since));
        self.tell_link(pe, LinkChange::Opened { took });
        let peer = self.peers.entry(pe).or_default();
        peer.entitled = peer.waiters;
        peer.used = self.sends.used();
        self.notices.happened = true;
    }

    pub(crate) fn connect_failed(&mut self, pe: u32, failure: Failure) {
        let name = self.describe(pe);
        let lane = self.hca.port().lane;
        let peer = self.peers.entry(pe).or_default();
        peer.failures += 1;
        peer.failure = Some(match failure {
            Failure::Silence { nanos, sent } => ConnError::Unreachable {
                peer: name,
                address: peer.address.map_or_else(|| "?".into(), |a| a.to_string()),
                sent,
                silent: Duration::from_millis(nanos / 1_000_000),
                lane,
            },
            Failure::QueuePair(why) => ConnError::QueuePair { peer: name, why },
            Failure::PeerLeft => ConnError::PeerLeft { peer: name },
        });
        self.notices.happened = true;
    }

    /// The connection to `pe` is beyond repair, and so it is for all who share it.
    pub(crate) fn broke(&mut self, pe: u32, error: ConnError) {
        if let Some(qpn) = self.manager.broke(pe) {
            self.qps.broken.entry(qpn).or_insert(error);
        }
        self.qps.changes += 1;
        self.expect_no_answers(pe);
        self.notices.happened = true;
    }

    /// Why a queue pair that is in error is.
    pub(crate) fn why_broken(&self, qpn: Qpn) -> ConnError {
        let why = self.qps.broken.get(&qpn).cloned();
        why.unwrap_or_else(|| self.over())
    }

    /// The connection to `pe`, if it is open and sound. While it makes room for another, nothing may be
    /// begun over it, but by threads that have waited for it.
    #[inline]
    pub(crate) fn sound(&self, pe: u32) -> Result<Option<Route<'_>>, ConnError> {
        if self.life.closing {
            return Err(self.over());
        }
        match self.manager.route(pe) {
            Some(route) if route.broken || route.left => Err(self.why_not(pe, &route)),
            Some(route) => Ok(Some(route)),
            None => match self.manager.in_error(pe) {
                Some(qpn) => Err(self.why_broken(qpn)),
                None => Ok(None),
            },
        }
    }

    #[cold]
    fn why_not(&self, pe: u32, route: &Route<'_>) -> ConnError {
        if route.broken {
            return self.why_broken(route.qpn);
        }
        let peer = self.describe(pe);
        ConnError::PeerLeft { peer }
    }

    /// The connection to `pe`, if it is sound and operations may begin over it.
    #[inline]
    pub(crate) fn usable(&self, pe: u32) -> Result<Option<Route<'_>>, ConnError> {
        Ok(self.sound(pe)?.filter(|route| !route.draining))
    }
}
