//! Work requests: what is refused before anything happens, and where the others wait.

#![forbid(unsafe_code)]

use super::machine::Engine;
use crate::limits::MAX_MSG;
use crate::memory::mr::Memory;
use crate::qp::{Qp, Service};
use crate::queues::receive::{Received, RecvWqe};
use crate::queues::send::{Done, Wqe};
use shmem_verbs::provider::checks::{self, Poster};
use shmem_verbs::{Mtu, QpState, Qpn, RecvWr, SendWr, Srq, VerbsError, WcOpcode, WcStatus};

/// From so many waiting requests on, a post does not wait for an acknowledgement to send.
const BATCH: usize = 64;

/// When a post wants its packets to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doorbell {
    /// At once.
    Now,
    /// With the next acknowledgement, poll, or full batch: others of the same queue pair are
    /// in flight, so that one of these is certain to come.
    Later,
}

impl<M: Memory> Engine<M> {
    /// Appends to a send queue. Nothing is sent before the next [`Engine::poll_transmit`].
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::post_send`].
    pub fn post_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<Doorbell, VerbsError> {
        let mtu = self.port.active_mtu;
        let qp = self.qps.get_mut(qpn.0).ok_or(VerbsError::NoSuchQp(qpn))?;
        check_send(qp, wr, mtu)?;
        if matches!(qp.state, QpState::Err | QpState::Sqe) {
            let (opcode, status) = (WcOpcode::from(&wr.op), WcStatus::WrFlushErr);
            self.done.push(Done {
                wr_id: wr.wr_id,
                opcode,
                status,
                byte_len: 0,
            });
            self.report(qpn);
            return Ok(Doorbell::Later);
        }
        let wqe = Wqe::new(wr, qp.init.sq_sig_all);
        let long = self.streams.from().is_some_and(|from| wqe.len >= from);
        let len = wqe.len;
        let doorbell = match &mut qp.service {
            Service::Ud(ud) => {
                ud.sq.push_back(wqe);
                Doorbell::Now
            }
            Service::Rc(rc) => {
                let Some(requester) = &mut rc.requester else {
                    return Err(VerbsError::NoSuchQp(qpn));
                };
                requester.post(wqe);
                let answers = rc.turns.holds();
                if answers || requester.is_quiet() || requester.backlog() >= BATCH {
                    Doorbell::Now
                } else {
                    Doorbell::Later
                }
            }
        };
        if long {
            self.want_stream(qpn, len);
        }
        self.mark_ready(qpn);
        Ok(doorbell)
    }

    /// Appends to a receive queue.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::post_recv`].
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        let qp = self.qps.get_mut(qpn.0).ok_or(VerbsError::NoSuchQp(qpn))?;
        let poster = checks::Poster {
            qpn,
            init: &qp.init,
            state: qp.state,
            may_read: false,
        };
        checks::check_recv(poster, wr)?;
        if qp.state == QpState::Err {
            self.receive_ended(qpn, &Received::new(wr.wr_id, WcStatus::WrFlushErr));
            return Ok(());
        }
        let depth = qp.init.max_recv_wr;
        if qp.rq.len() >= depth as usize {
            return Err(VerbsError::QueueFull {
                qpn,
                queue: "receive",
                depth,
            });
        }
        qp.rq.push_back(RecvWqe::new(wr));
        Ok(())
    }

    /// Appends a receive.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::post_srq_recv`].
    pub fn post_srq_recv(&mut self, srq: Srq, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        self.srqs.find(srq)?.post(wr)
    }
}

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
    use super::*;
    use crate::VecMemory;
    use shmem_verbs::{Access, AddressVector, Psn, Rkey, Sge};
    use shmem_verbs::{QpInit, QpType, RcDest, RcStart, SendOp};

    /// It would wait for ever: no READ may ever be outstanding.
    #[test]
    fn a_read_is_refused_where_none_was_agreed_on() {
        let av = AddressVector::default();
        let mut engine = Engine::new(av, Mtu::M256, 1, VecMemory::new(0x1000, 64));
        let mr = engine.reg_mr(0x1000, 64, Access::ALL).unwrap();
        let cq = engine.create_cq(4).unwrap();
        let qp = engine.create_qp(&QpInit::new(QpType::Rc, cq)).unwrap();
        let dest = RcDest {
            max_dest_rd_atomic: 0,
            ..RcDest::new(av, qp, Psn(0), Mtu::M256)
        };
        for attr in RcStart::new(dest, Psn(0)).attrs() {
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
            SendOp::fetch_add(raddr, rkey, 1),
        ] {
            let refused = post(op).unwrap_err().to_string();
            assert!(refused.contains("max_rd_atomic"), "{refused}");
        }
        let write = SendOp::write(raddr, rkey);
        assert!(post(write).is_ok());
    }
}
