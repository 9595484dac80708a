//! Queue pairs: making them, moving them from state to state.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdma_sys::{ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr};

use super::context::{Pd, extended};
use super::datagrams::Datagrams;
use super::error::{io_error, last_errno};
use super::map::{self, Origin};
use super::objects::{CqObject, PD, SrqObject, XRCD, XrcdObject, owner, qp_attr};
use crate::quirks::Quirks;
use shmem_verbs::provider::checks::{self, Poster};
use shmem_verbs::{PortInfo, QpAttr, QpInit, QpState, QpType, Qpn, VerbsError, transitions};

owner! {
    /// A queue pair.
    Qp(ibv_qp) {
        pd: Arc<Pd>,
        qpn: Qpn,
        init: QpInit,
        granted: Granted,
        // State at the last look, as the number that `map::qp_state` takes.
        state: AtomicU8,
        // READs and atomics were agreed on.
        may_read: AtomicBool,
        // Held while it moves, so that check and move are one.
        moving: Mutex<()>,
        // Of a UD queue pair: what has to be known of requests under way.
        datagrams: Option<Datagrams>,
        _held: Held,
    }
    closes with |this, raw| (this.pd.context.library.destroy_qp)(raw)
}

/// What the device has given, at least what was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) send_wr: u32,
    pub(super) recv_wr: u32,
    pub(super) inline: u32,
}

/// What a queue pair uses, which therefore stays.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) send_cq: Option<Arc<CqObject>>,
    pub(super) recv_cq: Option<Arc<CqObject>>,
    pub(super) srq: Option<Arc<SrqObject>>,
    pub(super) xrcd: Option<Arc<XrcdObject>>,
}

/// Attributes of which none is set.
pub(super) fn blank_attr() -> ibv_qp_attr {
    // SAFETY: numbers, for which zero is valid.
    unsafe { mem::zeroed() }
}

impl Qp {
    /// Makes a queue pair; its limits are checked already.
    ///
    /// # Errors
    /// The number with which the device refuses.
    pub(super) fn create(pd: &Arc<Pd>, init: &QpInit, held: Held) -> Result<Self, i32> {
        let mut attr = qp_attr(map::qp_type(init.ty));
        let cq = |cq: &Option<Arc<CqObject>>| cq.as_ref().map_or(ptr::null_mut(), |cq| cq.raw());
        let target = init.ty == QpType::XrcTgt;
        if target {
            attr.comp_mask = XRCD;
            attr.xrcd = held.xrcd.as_ref().map_or(ptr::null_mut(), |x| x.raw());
        } else {
            attr.comp_mask = PD;
            attr.pd = pd.raw.as_ptr();
            attr.send_cq = cq(&held.send_cq);
            attr.recv_cq = cq(&held.recv_cq);
            attr.srq = held.srq.as_ref().map_or(ptr::null_mut(), |s| s.raw());
            attr.cap.max_send_wr = init.max_send_wr.max(1);
            attr.cap.max_send_sge = init.max_send_sge.max(1);
            attr.cap.max_inline_data = init.max_inline;
        }
        let own_receives = matches!(init.ty, QpType::Rc | QpType::Ud) && init.srq.is_none();
        if own_receives {
            attr.cap.max_recv_wr = init.max_recv_wr;
            attr.cap.max_recv_sge = init.max_recv_sge.max(1);
        }
        attr.sq_sig_all = init.sq_sig_all.into();
        let context = &pd.context;
        let raw = match init.ty {
            QpType::Rc | QpType::Ud => {
                // The extended attributes begin with the plain ones.
                let plain = (&raw mut attr).cast::<ibv_qp_init_attr>();
                // SAFETY: domain and queues are open, and the new object will hold them.
                unsafe { (context.library.create_qp)(pd.raw.as_ptr(), plain) }
            }
            QpType::XrcIni | QpType::XrcTgt => {
                let Some(create) = extended!(context, create_qp_ex) else {
                    return Err(libc::EOPNOTSUPP);
                };
                // SAFETY: as above.
                unsafe { create(context.raw.as_ptr(), &mut attr) }
            }
        };
        let Some(raw) = ptr::NonNull::new(raw) else {
            return Err(last_errno());
        };
        // SAFETY: made just now; its number never changes.
        let qpn = Qpn(unsafe { (*raw.as_ptr()).qp_num });
        let granted = Granted {
            send_wr: attr.cap.max_send_wr,
            recv_wr: attr.cap.max_recv_wr,
            inline: attr.cap.max_inline_data,
        };
        Ok(Self {
            raw: Some(raw),
            pd: Arc::clone(pd),
            qpn,
            init: *init,
            granted,
            state: AtomicU8::new(0),
            may_read: AtomicBool::new(true),
            moving: Mutex::new(()),
            datagrams: (init.ty == QpType::Ud)
                .then(|| Datagrams::new(granted.send_wr, granted.recv_wr)),
            _held: held,
        })
    }

    /// The state as far as posts depend on it: what the device does by itself leads from one state
    /// in which sends may be posted to another.
    pub(super) fn posting_state(&self) -> QpState {
        // Relaxed: a post that races with a move sees either state.
        map::qp_state(self.state.load(Ordering::Relaxed).into())
    }

    /// For the checks of posts.
    pub(super) fn poster(&self) -> Poster<'_> {
        Poster {
            qpn: self.qpn,
            init: &self.init,
            state: self.posting_state(),
            may_read: self.may_read.load(Ordering::Relaxed),
        }
    }

    /// The state as the device has it.
    fn query(&self) -> Result<QpState, VerbsError> {
        let mut attr = blank_attr();
        // SAFETY: pointers and numbers, for which zero is valid.
        let mut init: ibv_qp_init_attr = unsafe { mem::zeroed() };
        let mask = ibv_qp_attr_mask::IBV_QP_STATE as i32;
        let query = self.pd.context.library.query_qp;
        // SAFETY: the queue pair is open, and both structures are written.
        match unsafe { query(self.raw(), &mut attr, mask, &mut init) } {
            0 => Ok(map::qp_state(attr.qp_state)),
            errno => Err(io_error(format!("cannot query QP {}", self.qpn), errno)),
        }
    }

    /// Moves it to another state.
    pub(super) fn modify(
        &self,
        attr: &QpAttr,
        port: &PortInfo,
        origin: &Origin,
        quirks: Quirks,
    ) -> Result<(), VerbsError> {
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        let (qpn, ty) = (self.qpn, self.init.ty);
        let from = match (attr, self.posting_state()) {
            // The device may have moved it since.
            (QpAttr::Rts { .. }, _) | (_, QpState::Rtr | QpState::Rts | QpState::Sqe) => {
                self.query()?
            }
            (_, known) => known,
        };
        transitions::check(qpn, ty, from, attr)?;
        match attr {
            QpAttr::Init {
                qkey: Some(qkey), ..
            } => checks::check_qkey(*qkey)?,
            QpAttr::Rtr { dest: Some(dest) } => checks::check_dest(dest, port)?,
            QpAttr::Rts { .. } => checks::check_rts(ty, attr, port)?,
            _ => {}
        }
        let mut raw_attr = blank_attr();
        let mask = map::transition(ty, attr, origin, quirks, &mut raw_attr);
        let modify = self.pd.context.library.modify_qp;
        // SAFETY: the queue pair is open, the attributes of the mask are set.
        let errno = unsafe { modify(self.raw(), &mut raw_attr, mask as i32) };
        if errno != 0 {
            let way = match attr {
                QpAttr::Rtr { dest: Some(dest) } => {
                    format!(" towards {} QP {}", dest.av, dest.qpn)
                }
                _ => String::new(),
            };
            let to = attr.target();
            let what = format!("cannot move QP {qpn} ({ty:?}) from {from:?} to {to:?}{way}");
            return Err(io_error(what, errno));
        }
        self.state.store(raw_attr.qp_state as u8, Ordering::Relaxed);
        match attr {
            QpAttr::Rts { max_rd_atomic, .. } => {
                let may_read = ty == QpType::Ud || *max_rd_atomic > 0;
                self.may_read.store(may_read, Ordering::Relaxed);
            }
            QpAttr::Reset => {
                if let Some(datagrams) = &self.datagrams {
                    datagrams.forget();
                }
            }
            _ => {}
        }
        Ok(())
    }
}
