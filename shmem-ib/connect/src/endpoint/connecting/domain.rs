//! What a PE has for XRC besides queue pairs: the domain of its node, and a receive queue.

use std::os::fd::{AsFd, OwnedFd};

use crate::endpoint::error::ConnError;
use crate::message::Segments;
use crate::xrc::{Manager, Memory};
use shmem_verbs::{Cq, Hca, Srq, SrqInit, SrqKind, SrqNum, Xrcd};

/// What a PE has for XRC.
#[derive(Debug)]
pub(crate) struct XrcPath {
    pub(crate) manager: Manager,
    pub(super) domain: Xrcd,
    srq: Srq,
    srqn: SrqNum,
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
        })
    }

    pub(crate) fn ready(&mut self, now: u64, segments: Segments) {
        let srqn = self.srqn;
        self.manager.machine.ready(now, Memory { srqn, segments });
    }

    pub(crate) fn release<H: Hca>(&self, hca: &H) {
        let _ = hca.destroy_srq(self.srq);
        let _ = hca.close_xrcd(self.domain);
    }
}
