//! What the software HCA refuses of a send request before anything happens.

#![forbid(unsafe_code)]

use super::engine::MAX_MSG;
use super::qp::{Qp, Service};
use shmem_verbs::provider::checks::{self, Poster};
use shmem_verbs::{Mtu, QpState, SendWr, VerbsError};

/// Checks whether `qp` may take `wr`.
pub(crate) fn check_send(qp: &Qp, wr: &SendWr<'_>, port_mtu: Mtu) -> Result<(), VerbsError> {
    let may_read = match &qp.service {
        Service::Rc(rc) => rc.requester.as_ref().is_none_or(|r| r.may_read()),
        Service::Ud(_) => true,
    };
    let poster = Poster {
        qpn: qp.qpn,
        init: &qp.init,
        state: qp.state,
        may_read,
    };
    checks::check_send(poster, wr, port_mtu, MAX_MSG)?;
    let depth = qp.init.max_send_wr;
    let flushes = matches!(qp.state, QpState::Err | QpState::Sqe);
    if !flushes && qp.send_queue_len() >= depth as usize {
        return Err(VerbsError::QueueFull {
            qpn: qp.qpn,
            queue: "send",
            depth,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::engine::Engine;
    use super::*;
    use crate::VecMemory;
    use shmem_verbs::{Access, AddressVector, Psn, QpAttr, Rkey, Sge};
    use shmem_verbs::{QpInit, QpType, RcDest, SendOp};

    /// It would wait for ever: no READ may ever be outstanding.
    #[test]
    fn a_read_is_refused_where_none_was_agreed_on() {
        let av = AddressVector::default();
        let mut engine = Engine::new(av, Mtu::M256, 1, VecMemory::new(0x1000, 64));
        let mr = engine.reg_mr(0x1000, 64, Access::ALL).unwrap();
        let cq = engine.create_cq(4).unwrap();
        let qp = engine.create_qp(&QpInit::new(QpType::Rc, cq)).unwrap();
        let dest = RcDest {
            av,
            qpn: qp,
            rq_psn: Psn(0),
            mtu: Mtu::M256,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
        };
        for attr in [
            QpAttr::Init {
                access: Access::ALL,
                qkey: None,
            },
            QpAttr::Rtr { dest: Some(dest) },
            QpAttr::Rts {
                sq_psn: Psn(0),
                timeout: 14,
                retry_cnt: 7,
                rnr_retry: 7,
                max_rd_atomic: 0,
            },
        ] {
            engine.modify_qp(qp, &attr).unwrap();
        }
        let (raddr, rkey) = (mr.addr, Rkey(mr.rkey.0));
        let sges = [Sge {
            addr: mr.addr,
            len: 8,
            lkey: mr.lkey,
        }];
        let mut post = |op| engine.post_send(qp, &SendWr::new(1, op, &sges));
        for op in [
            SendOp::Read { raddr, rkey },
            SendOp::FetchAdd {
                raddr,
                rkey,
                add: 1,
            },
        ] {
            let refused = post(op).unwrap_err().to_string();
            assert!(refused.contains("max_rd_atomic"), "{refused}");
        }
        let write = SendOp::Write {
            raddr,
            rkey,
            imm: None,
        };
        assert!(post(write).is_ok());
    }
}
