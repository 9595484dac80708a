//! What every implementation refuses before anything happens.
//!
//! A device answers most mistakes with a bare "invalid argument", and some not at all; these checks
//! say what was wrong, and the same on all implementations.

#![forbid(unsafe_code)]

use crate::{
    Access, Mtu, PortInfo, Psn, Qkey, QpAttr, QpInit, QpState, QpType, Qpn, RcDest, RecvWr, SendOp,
    SendWr, Sge, SrqInit, VerbsError,
};

/// Refuses what is not from `min` to `max`.
pub fn in_range(
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
pub fn sge_count(sges: &[Sge], max: u32) -> Result<(), VerbsError> {
    let count = sges.len();
    match count <= max as usize {
        true => Ok(()),
        false => Err(VerbsError::TooManySges { count, max }),
    }
}

/// Bytes of all buffers together.
pub fn total(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.len)).sum()
}

/// Checks the depth of a new completion queue.
pub fn check_cq(depth: u32, port: &PortInfo) -> Result<(), VerbsError> {
    let allowed = "1 to the port's max_cqe";
    in_range("depth of a CQ", depth, 1, port.max_cqe, allowed)
}

/// Checks the limits of a new shared receive queue.
pub fn check_srq(init: &SrqInit, port: &PortInfo) -> Result<(), VerbsError> {
    let allowed = "1 to the port's max_srq_wr";
    in_range("max_wr", init.max_wr, 1, port.max_srq_wr, allowed)?;
    in_range("max_sge", init.max_sge, 0, port.max_sge, UP_TO_MAX_SGE)
}

/// Checks range and rights of a registration.
pub fn check_registration(addr: u64, len: u64, access: Access) -> Result<(), VerbsError> {
    let bad = |why| {
        Err(VerbsError::BadRegistration {
            addr,
            len,
            access,
            why,
        })
    };
    if len == 0 {
        return bad("an empty region has no use");
    }
    if addr.checked_add(len).is_none() {
        return bad("the range wraps the address space");
    }
    let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    if access.intersects(writes) && !access.contains(Access::LOCAL_WRITE) {
        return bad("remote writes and atomics need LOCAL_WRITE, too");
    }
    Ok(())
}

const UP_TO_MAX_SGE: &str = "0 to the port's max_sge";

/// Checks the limits of a new queue pair.
pub fn check_init(init: &QpInit, port: &PortInfo) -> Result<(), VerbsError> {
    let allowed = "0 to the port's max_qp_wr";
    in_range("max_send_wr", init.max_send_wr, 0, port.max_qp_wr, allowed)?;
    in_range("max_recv_wr", init.max_recv_wr, 0, port.max_qp_wr, allowed)?;
    in_range(
        "max_send_sge",
        init.max_send_sge,
        0,
        port.max_sge,
        UP_TO_MAX_SGE,
    )?;
    in_range(
        "max_recv_sge",
        init.max_recv_sge,
        0,
        port.max_sge,
        UP_TO_MAX_SGE,
    )?;
    let allowed = "0 to the port's max_inline";
    in_range("max_inline", init.max_inline, 0, port.max_inline, allowed)?;
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
pub fn check_dest(dest: &RcDest, port: &PortInfo) -> Result<(), VerbsError> {
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
        UP_TO_MAX_RD_ATOMIC,
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

const UP_TO_MAX_RD_ATOMIC: &str = "0 to the port's max_rd_atomic";

/// Checks the key of a UD queue pair.
pub fn check_qkey(qkey: Qkey) -> Result<(), VerbsError> {
    let allowed = "31 bits: bit 31 is for privileged keys";
    in_range("qkey", qkey.0, 0, i32::MAX as u32, allowed)
}

/// Checks what RTS takes.
pub fn check_rts(ty: QpType, attr: &QpAttr, port: &PortInfo) -> Result<(), VerbsError> {
    let QpAttr::Rts {
        sq_psn,
        timeout,
        retry_cnt,
        rnr_retry,
        max_rd_atomic,
    } = *attr
    else {
        return Ok(());
    };
    in_range("sq_psn", sq_psn.0, 0, Psn::MASK, "24 bits")?;
    if ty == QpType::Ud {
        return Ok(());
    }
    in_range("timeout", timeout.into(), 0, 31, "0 to 31")?;
    in_range("retry_cnt", retry_cnt.into(), 0, 7, "0 to 7")?;
    in_range("rnr_retry", rnr_retry.into(), 0, 7, "0 to 7")?;
    let max = port.max_rd_atomic.into();
    in_range(
        "max_rd_atomic",
        max_rd_atomic.into(),
        0,
        max,
        UP_TO_MAX_RD_ATOMIC,
    )
}

/// What the checks of posts need to know of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Poster<'a> {
    /// Its number.
    pub qpn: Qpn,
    /// As what it was created.
    pub init: &'a QpInit,
    /// Its state.
    pub state: QpState,
    /// READs and atomics were agreed on.
    pub may_read: bool,
}

/// Checks whether the queue pair may take `wr`, if there is room. A full queue is no matter of
/// this one.
pub fn check_send(
    qp: Poster<'_>,
    wr: &SendWr<'_>,
    port_mtu: Mtu,
    max_msg: u64,
) -> Result<(), VerbsError> {
    let (qpn, ty, what) = (qp.qpn, qp.init.ty, wr.op.name());
    let fits = match ty {
        QpType::Ud => matches!(wr.op, SendOp::UdSend { .. }),
        QpType::Rc | QpType::XrcIni => !matches!(wr.op, SendOp::UdSend { .. }),
        QpType::XrcTgt => false,
    };
    if !fits {
        return Err(VerbsError::WrongType { qpn, ty, what });
    }
    if !matches!(qp.state, QpState::Rts | QpState::Sqe | QpState::Err) {
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
    if wr.op.writes_local() && !qp.may_read {
        let allowed = "1 or more at RTS, for READs and atomics";
        return invalid("max_rd_atomic", 0, allowed);
    }
    let too_long = |len, max| Err(VerbsError::TooLong { what, len, max });
    let len = match wr.inline {
        None => {
            sge_count(wr.sges, qp.init.max_send_sge)?;
            total(wr.sges)
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
        _ if len > max_msg => return too_long(len, max_msg),
        _ => {}
    }
    Ok(())
}

/// Checks whether the queue pair may take a receive, if there is room.
pub fn check_recv(qp: Poster<'_>, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
    let qpn = qp.qpn;
    if let ty @ (QpType::XrcIni | QpType::XrcTgt) = qp.init.ty {
        let what = "receive queue of its own";
        return Err(VerbsError::WrongType { qpn, ty, what });
    }
    if let Some(srq) = qp.init.srq {
        return Err(VerbsError::SharedReceives { qpn, srq });
    }
    sge_count(wr.sges, qp.init.max_recv_sge)?;
    if qp.state == QpState::Reset {
        return Err(VerbsError::WrongState {
            qpn,
            what: "a receive",
            state: QpState::Reset,
            hint: "move it to INIT first",
        });
    }
    Ok(())
}
