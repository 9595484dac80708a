//! Queue pairs from one state to another.

#![forbid(unsafe_code)]

use super::machine::Engine;
use crate::memory::mr::Memory;
use crate::proof::Direction;
use crate::qp::Service;
use crate::rc::requester::{Limits, Requester};
use crate::rc::responder::Responder;
use shmem_verbs::provider::checks::{check_dest, check_qkey, check_rts};
use shmem_verbs::{QpAttr, QpType, Qpn, VerbsError, transitions};

impl<M: Memory> Engine<M> {
    /// Moves a queue pair to another state.
    ///
    /// # Errors
    /// The transition is not legal or an attribute is out of range.
    pub fn modify_qp(&mut self, qpn: Qpn, attr: &QpAttr) -> Result<(), VerbsError> {
        let port = self.port;
        let qp = self.qps.get_mut(qpn.0).ok_or(VerbsError::NoSuchQp(qpn))?;
        transitions::check(qpn, qp.init.ty, qp.state, attr)?;
        match (attr, &mut qp.service) {
            (QpAttr::Init { access, qkey }, service) => {
                if let (Service::Ud(ud), Some(qkey)) = (service, qkey) {
                    check_qkey(*qkey)?;
                    ud.qkey = *qkey;
                }
                qp.access = *access;
            }
            (QpAttr::Rtr { dest: Some(dest) }, Service::Rc(rc)) => {
                check_dest(dest, &port)?;
                let mtu = dest.mtu.bytes() as u32;
                rc.responder = (qp.init.ty != QpType::XrcIni).then(|| {
                    let (rd_atomic, rnr_timer) = (dest.max_dest_rd_atomic, dest.min_rnr_timer);
                    Responder::new(dest.rq_psn, mtu, rd_atomic, rnr_timer)
                });
                if !self.interop {
                    let (own, to) = (port.av, dest.av);
                    let salt = |src, dst, to| self.proof.salt(&Direction::new(src, dst, to));
                    rc.salt_out = salt(own, to, dest.qpn);
                    rc.salt_in = salt(to, own, qpn);
                }
                rc.dest = Some(*dest);
            }
            (QpAttr::Rtr { .. }, _) => {}
            (
                QpAttr::Rts {
                    sq_psn,
                    timeout,
                    retry_cnt,
                    rnr_retry,
                    max_rd_atomic,
                },
                service,
            ) => {
                check_rts(qp.init.ty, attr, &port)?;
                match service {
                    Service::Ud(ud) => ud.psn = *sq_psn,
                    Service::Rc(rc) => {
                        let mtu = rc.dest.map_or(256, |d| d.mtu.bytes() as u32);
                        let budget = (*timeout, *retry_cnt);
                        let limits = Limits::new(mtu, *max_rd_atomic, budget, *rnr_retry);
                        let seed = self.rng.next_u64();
                        rc.first = *sq_psn;
                        rc.requester = (qp.init.ty != QpType::XrcTgt)
                            .then(|| Requester::new(*sq_psn, limits, seed));
                        if let (Some(requester), Some(from)) =
                            (&mut rc.requester, self.streams.from())
                            && qp.init.ty == QpType::Rc
                        {
                            requester.set_stream_from(from);
                        }
                    }
                }
            }
            (QpAttr::Err, _) => {
                self.fail_qp(qpn);
                return Ok(());
            }
            (QpAttr::Reset, service) => {
                if let Service::Rc(rc) = service {
                    self.streams.forget(rc);
                }
                qp.reset();
                return Ok(());
            }
        }
        qp.state = attr.target();
        Ok(())
    }
}
