//! What a verb refuses before anything happens.

#![forbid(unsafe_code)]

use super::engine::{MAX_INLINE, MAX_MSG, MAX_QP_WR, MAX_SGE};
use super::qp::{Qp, Service};
use super::sge;
use crate::verbs::{
    Mtu, PortInfo, Psn, QpInit, QpState, QpType, RcDest, SendOp, SendWr, Sge, VerbsError,
};

pub(crate) fn in_range(
    what: &'static str,
    value: u32,
    min: u32,
    max: u32,
    allowed: &'static str,
) -> Result<(), VerbsError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(VerbsError::InvalidAttr {
        what,
        value: value.into(),
        allowed,
    })
}

/// Whether a list is as short as its queue was created for.
pub(crate) fn sge_count(sges: &[Sge], max: u32) -> Result<(), VerbsError> {
    let count = sges.len();
    match count <= max as usize {
        true => Ok(()),
        false => Err(VerbsError::TooManySges { count, max }),
    }
}

/// Checks the limits of a new queue pair.
pub(crate) fn check_init(init: &QpInit) -> Result<(), VerbsError> {
    in_range("max_send_wr", init.max_send_wr, 0, MAX_QP_WR, "0 to 2^15")?;
    in_range("max_recv_wr", init.max_recv_wr, 0, MAX_QP_WR, "0 to 2^15")?;
    in_range("max_send_sge", init.max_send_sge, 0, MAX_SGE, "0 to 16")?;
    in_range("max_recv_sge", init.max_recv_sge, 0, MAX_SGE, "0 to 16")?;
    in_range("max_inline", init.max_inline, 0, MAX_INLINE, "0 to 1024")?;
    let invalid = |what, value: u32, allowed| {
        Err(VerbsError::InvalidAttr {
            what,
            value: value.into(),
            allowed,
        })
    };
    if matches!(init.ty, QpType::XrcIni | QpType::XrcTgt) {
        let allowed = "0: XRC queue pairs have no receive queue";
        in_range("max_recv_wr", init.max_recv_wr, 0, 0, allowed)?;
        if let Some(srq) = init.srq {
            return invalid("srq", srq.0, "none: XRC packets name it");
        }
    }
    match (init.ty, init.xrcd) {
        (QpType::XrcTgt, None) => invalid("xrcd", 0, "a domain, which every XRC target needs"),
        (QpType::XrcTgt, Some(_)) | (_, None) => Ok(()),
        (_, Some(xrcd)) => invalid("xrcd", xrcd.0, "only XRC targets have a domain"),
    }
}

/// Checks what RTR takes.
pub(crate) fn check_dest(dest: &RcDest, port: &PortInfo) -> Result<(), VerbsError> {
    in_range("rq_psn", dest.rq_psn.0, 0, Psn::MASK, "24 bits")?;
    in_range(
        "destination qpn",
        dest.qpn.0,
        2,
        Psn::MASK,
        "24 bits, above 1",
    )?;
    in_range("min_rnr_timer", dest.min_rnr_timer.into(), 0, 31, "0 to 31")?;
    let max = port.max_rd_atomic.into();
    in_range(
        "max_dest_rd_atomic",
        dest.max_dest_rd_atomic.into(),
        0,
        max,
        "0 to 128",
    )?;
    let (mtu, active) = (dest.mtu.bytes() as u32, port.active_mtu.bytes() as u32);
    in_range(
        "path mtu",
        mtu,
        256,
        active,
        "at most the active MTU of the port",
    )
}

/// Checks whether `qp` may take `wr`.
pub(crate) fn check_send(qp: &Qp, wr: &SendWr<'_>, port_mtu: Mtu) -> Result<(), VerbsError> {
    let (qpn, ty, what) = (qp.qpn, qp.init.ty, wr.op.name());
    let fits = match ty {
        QpType::Ud => matches!(wr.op, SendOp::UdSend { .. }),
        QpType::Rc | QpType::XrcIni => !matches!(wr.op, SendOp::UdSend { .. }),
        QpType::XrcTgt => false,
    };
    if !fits {
        return Err(VerbsError::WrongType { qpn, ty, what });
    }
    if !matches!(
        qp.state,
        QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err
    ) {
        let hint = "move it to RTS first";
        return Err(VerbsError::WrongState {
            qpn,
            what,
            state: qp.state,
            hint,
        });
    }
    let invalid = |what, value, allowed| {
        Err(VerbsError::InvalidAttr {
            what,
            value,
            allowed,
        })
    };
    if wr.srqn.is_some() != (ty == QpType::XrcIni) {
        let value = wr.srqn.map_or(0, |n| n.0.into());
        return invalid("srqn", value, "for XRC initiators, and only for them");
    }
    if let Service::Rc(rc) = &qp.service
        && wr.op.writes_local()
        && rc.requester.as_ref().is_some_and(|r| !r.may_read())
    {
        let allowed = "1 or more at RTS, for READs and atomics";
        return invalid("max_rd_atomic", 0, allowed);
    }
    let too_long = |len, max| Err(VerbsError::TooLong { what, len, max });
    let len = match wr.inline {
        None => {
            sge_count(wr.sges, qp.init.max_send_sge)?;
            sge::total(wr.sges)
        }
        Some(data) => {
            let len = data.len() as u64;
            if wr.op.writes_local() {
                return invalid("inline", len, "inline payload is for sends and writes");
            }
            if len > u64::from(qp.init.max_inline) {
                return too_long(len, qp.init.max_inline.into());
            }
            len
        }
    };
    match wr.op {
        SendOp::UdSend { .. } if len > port_mtu.bytes() as u64 => {
            return too_long(len, port_mtu.bytes() as u64);
        }
        SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. } if len != 8 => {
            return invalid("length of an atomic", len, "8, the size of the word");
        }
        _ if len > MAX_MSG => return too_long(len, MAX_MSG),
        _ => {}
    }
    let depth = qp.init.max_send_wr;
    let flushes = matches!(qp.state, QpState::Err | QpState::Sqe);
    if !flushes && qp.send_queue_len() >= depth as usize {
        return Err(VerbsError::QueueFull {
            qpn,
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
    use crate::sim::VecMemory;
    use crate::verbs::{Access, AddressVector, Psn, QpAttr, Rkey, Sge};

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
