//! What a PE has for XRC besides queue pairs: the domain of its node, and a receive queue.

use std::os::fd::{AsFd, OwnedFd};

use crate::endpoint::error::ConnError;
use shmem_verbs::{Cq, Hca, Srq, SrqInit, SrqKind, SrqNum, Xrcd};

/// This PE in the XRC domain of its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XrcDomain {
    pub(super) xrcd: Xrcd,
    srq: Srq,
    /// How requests of peers name this PE.
    pub(crate) srqn: SrqNum,
}

impl XrcDomain {
    /// Joins the domain of the node, with a receive queue that stays empty: nobody sends, it is
    /// only a name for this process.
    pub(crate) fn new<H: Hca>(hca: &H, cq: Cq, file: Option<&OwnedFd>) -> Result<Self, ConnError> {
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

    pub(crate) fn release<H: Hca>(&self, hca: &H) {
        let _ = hca.destroy_srq(self.srq);
        let _ = hca.close_xrcd(self.xrcd);
    }
}
