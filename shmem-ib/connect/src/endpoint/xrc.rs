//! What a PE has for XRC besides queue pairs: its node's XRC domain, and a receive queue that names it.

use std::os::fd::{AsFd, OwnedFd};

use super::driver::{Driver, INIT};
use super::error::ConnError;
use crate::interface::Link;
use shmem_verbs::{
    Cq, Hca, QpAttr, QpInit, QpType, Qpn, RcDest, Srq, SrqInit, SrqKind, SrqNum, VerbsError, Xrcd,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct XrcDomain {
    xrcd: Xrcd,
    srq: Srq,
    pub(super) srqn: SrqNum,
}

impl XrcDomain {
    /// Joins the XRC domain of the node, with a receive queue that stays empty: nobody sends, it is
    /// only a name for this process.
    pub(super) fn new<H: Hca>(hca: &H, cq: Cq, file: Option<&OwnedFd>) -> Result<Self, ConnError> {
        let xrcd = hca
            .open_xrcd(file.map(AsFd::as_fd))
            .map_err(ConnError::verbs("open the XRC domain of the node"))?;
        let init = SrqInit {
            max_wr: 1,
            max_sge: 1,
            kind: SrqKind::Xrc { xrcd, cq },
        };
        let create = || {
            let srq = hca.create_srq(&init)?;
            let srqn = hca.srq_num(srq).inspect_err(|_| {
                let _ = hca.destroy_srq(srq);
            })?;
            Ok((srq, srqn))
        };
        let (srq, srqn) = create().map_err(|e| {
            let _ = hca.close_xrcd(xrcd);
            ConnError::verbs("create an XRC receive queue")(e)
        })?;
        Ok(Self { xrcd, srq, srqn })
    }

    pub(super) fn release<H: Hca>(&self, hca: &H) {
        let _ = hca.destroy_srq(self.srq);
        let _ = hca.close_xrcd(self.xrcd);
    }
}

impl<H: Hca> Driver<H> {
    /// Makes the target for an initiator, ready to receive.
    pub(super) fn create_target(&mut self, link: &Link) -> Result<Qpn, VerbsError> {
        let init = QpInit {
            xrcd: self.xrc.as_ref().map(|domain| domain.xrcd),
            max_send_wr: 0,
            ..QpInit::new(QpType::XrcTgt, self.cq)
        };
        let qpn = self.create_qp(&init, INIT)?;
        if let Err(e) = self.ready_to_receive(qpn, link, 0) {
            self.destroy_qp(qpn);
            return Err(e);
        }
        Ok(qpn)
    }

    /// Moves a queue pair from INIT to RTR.
    pub(super) fn ready_to_receive(
        &self,
        qpn: Qpn,
        link: &Link,
        min_rnr_timer: u8,
    ) -> Result<(), VerbsError> {
        let dest = RcDest {
            av: link.av,
            qpn: link.qpn,
            rq_psn: link.psn,
            mtu: link.mtu,
            max_dest_rd_atomic: link.max_dest_rd_atomic,
            min_rnr_timer,
        };
        self.hca().modify_qp(qpn, &QpAttr::Rtr { dest: Some(dest) })
    }
}
