//! Posting, the hot path: look the queue pair up, check, translate on the stack, hand over.

use std::mem::{self, MaybeUninit, align_of, offset_of, size_of};
use std::ptr;

use rdma_sys::{
    ibv_post_recv, ibv_post_send, ibv_post_srq_recv, ibv_recv_wr, ibv_send_flags, ibv_send_wr,
    ibv_sge,
};

use super::error::io_error;
use super::hca::{Port, VerbsHca};
use super::map;
use super::objects::Ah;
use super::qp::Qp;
use shmem_verbs::provider::checks;
use shmem_verbs::{Lkey, Qpn, RecvWr, SendOp, SendWr, Sge, Srq, VerbsError};

// A list of local buffers is handed over as it is.
const _: () = assert!(
    size_of::<Sge>() == size_of::<ibv_sge>()
        && align_of::<Sge>() == align_of::<ibv_sge>()
        && offset_of!(Sge, addr) == offset_of!(ibv_sge, addr)
        && offset_of!(Sge, len) == offset_of!(ibv_sge, length)
        && offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey)
        && size_of::<Lkey>() == 4
);

fn list(sges: &[Sge]) -> *mut ibv_sge {
    // The library takes a mutable pointer and only reads.
    sges.as_ptr().cast_mut().cast()
}

impl VerbsHca {
    /// See [`shmem_verbs::Hca::post_send`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(super) unsafe fn send(&self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), VerbsError> {
        let qp = self.qps.get(qpn.0).ok_or(VerbsError::NoSuchQp(qpn))?;
        let Port {
            info: port,
            origin,
            pd,
            ..
        } = &self.port;
        checks::check_send(qp.poster(), wr, port.active_mtu, port.max_msg)?;
        match (&wr.op, &qp.datagrams) {
            (SendOp::UdSend { av, .. }, Some(datagrams)) => {
                let ah = self.address_handles.to(av, pd, origin).map_err(|errno| {
                    let from = origin.gid;
                    io_error(format!("no way from {from} to {av} for datagrams"), errno)
                })?;
                // SAFETY: the caller's promise about the buffers.
                datagrams.send(wr.wr_id, ah, |ah| unsafe { post(&qp, wr, Some(ah)) })
            }
            // SAFETY: the same.
            _ => unsafe { post(&qp, wr, None) },
        }
    }

    /// See [`shmem_verbs::Hca::post_recv`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn receive(&self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        let qp = self.qps.get(qpn.0).ok_or(VerbsError::NoSuchQp(qpn))?;
        checks::check_recv(qp.poster(), wr)?;
        let mut raw = receive_wr(wr);
        let mut bad = ptr::null_mut();
        let mut post = || {
            // SAFETY: the queue pair is open while it is in use here; the buffers are valid by the
            // caller's promise, and the list lives longer than the call.
            match unsafe { ibv_post_recv(qp.raw(), &mut raw, &mut bad) } {
                0 => Ok(()),
                libc::ENOMEM => Err(VerbsError::QueueFull {
                    qpn,
                    queue: "receive",
                    depth: qp.granted.recv_wr,
                }),
                errno => {
                    let what = format!("the driver refuses a receive for QP {qpn}");
                    Err(io_error(what, errno))
                }
            }
        };
        match &qp.datagrams {
            Some(datagrams) => datagrams.receive(wr, post),
            None => post(),
        }
    }

    /// See [`shmem_verbs::Hca::post_srq_recv`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn receive_shared(
        &self,
        number: Srq,
        wr: &RecvWr<'_>,
    ) -> Result<(), VerbsError> {
        let srq = self.srqs.get(number.0);
        let srq = srq.ok_or(VerbsError::NoSuchSrq(number))?;
        checks::sge_count(wr.sges, srq.init.max_sge)?;
        let mut raw = receive_wr(wr);
        let mut bad = ptr::null_mut();
        // SAFETY: as in `receive`.
        match unsafe { ibv_post_srq_recv(srq.raw(), &mut raw, &mut bad) } {
            0 => Ok(()),
            libc::ENOMEM => Err(VerbsError::Exhausted {
                what: "places in the shared receive queue",
                limit: srq.init.max_wr,
            }),
            errno => {
                let what = format!("the driver refuses a receive for {number:?}");
                Err(io_error(what, errno))
            }
        }
    }
}

fn receive_wr(wr: &RecvWr<'_>) -> ibv_recv_wr {
    ibv_recv_wr {
        wr_id: wr.wr_id,
        next: ptr::null_mut(),
        sg_list: list(wr.sges),
        num_sge: wr.sges.len() as i32,
    }
}

/// Requests that are handed over at once; longer lists go in parts.
const LIST: usize = 16;

impl VerbsHca {
    /// See [`shmem_verbs::Hca::post_send_list`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn send_list(
        &self,
        qpn: Qpn,
        wrs: &[SendWr<'_>],
    ) -> Result<(), (usize, VerbsError)> {
        let qp = self.qps.get(qpn.0);
        let qp = qp.ok_or((0, VerbsError::NoSuchQp(qpn)))?;
        let port = &self.port.info;
        if qp.datagrams.is_some() {
            // Each has a way of its own.
            drop(qp);
            for (i, wr) in wrs.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { self.send(qpn, wr) }.map_err(|error| (i, error))?;
            }
            return Ok(());
        }
        for (part, wrs) in wrs.chunks(LIST).enumerate() {
            let mut raw = [const { MaybeUninit::<ibv_send_wr>::zeroed() }; LIST];
            let mut inline = [NOTHING; LIST];
            let first = raw.as_mut_ptr().cast::<ibv_send_wr>();
            for (i, wr) in wrs.iter().enumerate() {
                checks::check_send(qp.poster(), wr, port.active_mtu, port.max_msg)
                    .map_err(|error| (part * LIST, error))?;
                // SAFETY: within the array, of which zero is valid; nothing else refers to the entry.
                let entry = unsafe { &mut *first.add(i) };
                fill(entry, &mut inline[i], wr, None);
                if i + 1 < wrs.len() {
                    // SAFETY: there is a next one in the array.
                    entry.next = unsafe { first.add(i + 1) };
                }
            }
            let mut bad = ptr::null_mut();
            // SAFETY: as in `post`.
            let errno = unsafe { ibv_post_send(qp.raw(), first, &mut bad) };
            if errno != 0 {
                // The driver says which one it did not take; if it does not, it took none.
                let at = (bad as usize).wrapping_sub(first as usize) / size_of::<ibv_send_wr>();
                let at = if at < wrs.len() { at } else { 0 };
                return Err((part * LIST + at, refused(&qp, &wrs[at], errno)));
            }
        }
        Ok(())
    }
}

const NOTHING: ibv_sge = ibv_sge {
    addr: 0,
    length: 0,
    lkey: 0,
};

/// Translates a request into one that is zero. `inline` is its local buffer if it brings its payload along.
#[inline]
fn fill(raw: &mut ibv_send_wr, inline: &mut ibv_sge, wr: &SendWr<'_>, ah: Option<&Ah>) {
    raw.wr_id = wr.wr_id;
    raw.opcode = map::wr_opcode(&wr.op);
    let flag = |wanted: bool, flag: u32| if wanted { flag } else { 0 };
    raw.send_flags = flag(wr.signaled, ibv_send_flags::IBV_SEND_SIGNALED)
        | flag(wr.fence, ibv_send_flags::IBV_SEND_FENCE)
        | flag(wr.inline.is_some(), ibv_send_flags::IBV_SEND_INLINE);
    match wr.inline {
        // Without a byte there is nothing to list: drivers differ in how they like empty entries.
        Some([]) => {}
        Some(data) => {
            inline.addr = data.as_ptr().expose_provenance() as u64;
            inline.length = data.len() as u32;
            raw.sg_list = inline;
            raw.num_sge = 1;
        }
        None => {
            raw.sg_list = list(wr.sges);
            raw.num_sge = wr.sges.len() as i32;
        }
    }
    let word = &mut raw.__bindgen_anon_1;
    match wr.op {
        SendOp::UdSend { qpn, qkey, imm, .. } => {
            raw.wr.ud.ah = ah.map_or(ptr::null_mut(), Ah::raw);
            raw.wr.ud.remote_qpn = qpn.0;
            raw.wr.ud.remote_qkey = qkey.0;
            word.imm_data = imm.unwrap_or(0).to_be();
        }
        SendOp::Send { imm } => word.imm_data = imm.unwrap_or(0).to_be(),
        SendOp::Write { raddr, rkey, imm } => {
            raw.wr.rdma.remote_addr = raddr;
            raw.wr.rdma.rkey = rkey.0;
            word.imm_data = imm.unwrap_or(0).to_be();
        }
        SendOp::Read { raddr, rkey } => {
            raw.wr.rdma.remote_addr = raddr;
            raw.wr.rdma.rkey = rkey.0;
        }
        SendOp::FetchAdd { raddr, rkey, add } => {
            raw.wr.atomic.remote_addr = raddr;
            raw.wr.atomic.compare_add = add;
            raw.wr.atomic.rkey = rkey.0;
        }
        SendOp::CmpSwap {
            raddr,
            rkey,
            compare,
            swap,
        } => {
            raw.wr.atomic.remote_addr = raddr;
            raw.wr.atomic.compare_add = compare;
            raw.wr.atomic.swap = swap;
            raw.wr.atomic.rkey = rkey.0;
        }
    }
    if let Some(srqn) = wr.srqn {
        raw.qp_type.xrc.remote_srqn = srqn.0;
    }
}

/// Hands a checked request over.
///
/// # Safety
/// As [`shmem_verbs::Hca::post_send`].
#[inline]
unsafe fn post(qp: &Qp, wr: &SendWr<'_>, ah: Option<&Ah>) -> Result<(), VerbsError> {
    // SAFETY: numbers, pointers, and unions of such, for which zero is valid.
    let mut raw: ibv_send_wr = unsafe { mem::zeroed() };
    let mut inline = NOTHING;
    fill(&mut raw, &mut inline, wr, ah);
    let mut bad = ptr::null_mut();
    // SAFETY: the queue pair is open while it is in use here; the buffers are valid by the
    // caller's promise, and everything that the request points to lives longer than the call.
    match unsafe { ibv_post_send(qp.raw(), &mut raw, &mut bad) } {
        0 => Ok(()),
        errno => Err(refused(qp, wr, errno)),
    }
}

#[cold]
fn refused(qp: &Qp, wr: &SendWr<'_>, errno: i32) -> VerbsError {
    match errno {
        libc::ENOMEM => VerbsError::QueueFull {
            qpn: qp.qpn,
            queue: "send",
            depth: qp.granted.send_wr,
        },
        errno => {
            let what = format!("the driver refuses a {} on QP {}", wr.op.name(), qp.qpn);
            io_error(what, errno)
        }
    }
}
