//! Puts and gets, and where their local side lives.
//!
//! Verbs moves data only from and to registered memory. Three kinds of local buffers occur:
//! * inside the symmetric segment: registered once, used in place;
//! * small ones elsewhere: a put is copied into the work request (inline) or into a slot of
//!   the endpoint's pool, a get arrives in such a slot and is copied out when it completes;
//! * large ones elsewhere: registered for the time of the operation.
//!
//! Operations towards one PE are executed there in the order in which they were started, since
//! all of them use one queue pair. Between PEs there is no order but [`Context::quiet`].

use super::context::Context;
use super::post::Target;
use super::table::{Holds, Op, OpKind};
use crate::endpoint::buffers::{INLINE_MAX, Pool, copy};
use crate::endpoint::error::ConnError;
use shmem_verbs::{Hca, SendOp, Sge};

impl<H: Hca> Context<'_, H> {
    /// Writes `len` bytes from `src` to `offset` of a segment of `pe`, connecting at first
    /// contact. The data is at the target when [`quiet`](Self::quiet) has returned.
    ///
    /// With `src_stays` false, `src` may be changed as soon as this returns. With `src_stays`
    /// true it must keep its content until `quiet`, and nothing is copied if that can be avoided.
    ///
    /// # Errors
    /// The peer cannot be reached, the range is not inside its segment, or this or an earlier
    /// operation on the connection failed.
    ///
    /// # Safety
    /// `src` is valid for reading `len` bytes until this returns, or until `quiet` if
    /// `src_stays`. What the target does with the memory meanwhile is up to the program.
    pub unsafe fn put(
        self,
        pe: u32,
        segment: u8,
        offset: u64,
        src: *const u8,
        len: usize,
        src_stays: bool,
    ) -> Result<(), ConnError> {
        let mut locked = self.endpoint.lock();
        let mut target = locked.connected(pe, segment, OpKind::Put, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let Target { raddr, rkey, .. } = target;
        let write = |raddr: u64| SendOp::Write {
            raddr,
            rkey,
            imm: None,
        };
        let mut op = Op::new(self.id, OpKind::Put, pe, offset, len);
        if len <= locked.max_inline {
            let mut bytes = [0; INLINE_MAX];
            // SAFETY: `src` by the caller's promise; `bytes` is long enough.
            unsafe { copy(src, bytes.as_mut_ptr(), len) };
            let inline = Some(&bytes[..len]);
            // SAFETY: inline data is copied while posting, there is no other buffer.
            return unsafe { locked.start(op, &mut target, write(raddr), Sge::default(), inline) }
                .map(drop);
        }
        let lkey = locked.lkey(src.expose_provenance() as u64, len);
        let in_place = src_stays && lkey.is_some();
        if !in_place && len <= Pool::MAX {
            let slot = locked.slot(len)?;
            let (place, sge) = locked.pool.place(slot, len);
            // SAFETY: `src` by the caller's promise; the slot is ours and long enough.
            unsafe { copy(src, place, len) };
            op.holds = Holds::Slot(slot);
            // SAFETY: the slot is held until the operation completes.
            return unsafe { locked.start(op, &mut target, write(raddr), sge, None) }.map(drop);
        }
        op.waited = !src_stays;
        // SAFETY: `src` by the caller's promise: this waits for the end of the operation, or
        // the caller does.
        let id = unsafe { locked.start_in_place(op, &mut target, src.cast_mut(), lkey, write)? };
        if src_stays {
            Ok(())
        } else {
            locked.result(id).map(drop)
        }
    }

    /// Reads `len` bytes at `offset` of a segment of `pe` into `dst`, connecting at first
    /// contact. With `blocking` the data is there when this returns, else after
    /// [`quiet`](Self::quiet).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// `dst` is valid for writing `len` bytes, and not borrowed, until this returns, or until
    /// `quiet` if not `blocking`.
    pub unsafe fn get(
        self,
        pe: u32,
        segment: u8,
        offset: u64,
        dst: *mut u8,
        len: usize,
        blocking: bool,
    ) -> Result<(), ConnError> {
        let mut locked = self.endpoint.lock();
        let mut target = locked.connected(pe, segment, OpKind::Get, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let Target { raddr, rkey, .. } = target;
        let read = |raddr: u64| SendOp::Read { raddr, rkey };
        let mut op = Op::new(self.id, OpKind::Get, pe, offset, len);
        op.waited = blocking;
        let addr = dst.expose_provenance();
        let lkey = locked.lkey(addr as u64, len);
        let id = if lkey.is_none() && len <= Pool::MAX {
            let slot = locked.slot(len)?;
            let (_, sge) = locked.pool.place(slot, len);
            op.holds = Holds::CopyOut {
                slot,
                dst: addr,
                len,
            };
            // SAFETY: the slot is held until the operation completes.
            unsafe { locked.start(op, &mut target, read(raddr), sge, None)? }
        } else {
            // SAFETY: `dst` by the caller's promise, for as long as the operation lasts.
            unsafe { locked.start_in_place(op, &mut target, dst, lkey, read)? }
        };
        if blocking {
            locked.result(id).map(drop)
        } else {
            Ok(())
        }
    }
}
