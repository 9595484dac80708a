//! Puts and gets, and where their local side lives.
//!
//! Verbs moves data only from and to registered memory. Three kinds of local buffers occur:
//! * inside the symmetric segment: registered once, used in place;
//! * small ones elsewhere: a put is copied into the work request (inline) or into slots of
//!   the endpoint's pool, a get arrives in such slots and is copied out when it completes;
//! * large ones elsewhere: registered for the time of the operation.
//!
//! What is small depends on the device. Where memory is pinned, a registration and its end are two calls of
//! the system and of the device's firmware, and copying up to [`COPIED`] costs less; slot after slot, so that the
//! first is on its way while the next is filled. The software HCA only writes down where a buffer lies.
//! Registrations are not kept for the next use: the program may unmap a buffer and map another one at its
//! address, of which nothing here would hear, and the device would go on with the old pages. (Others
//! replace `munmap` in the program to hear of it.) Slots have no such hazard, and their number is a bound.
//!
//! Operations towards one PE are executed there in the order in which they were started, since
//! all of them use one queue pair. Between PEs there is no order but [`Context::quiet`].

use smallvec::SmallVec;

use super::accounts::ContextId;
use super::context::Context;
use super::held::HELD_BYTES;
use super::post::Target;
use super::table::{Holds, Op, OpId, OpKind};
use crate::endpoint::buffers::{COPIED, INLINE_MAX, Pool};
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::endpoint::lock::Locked;
use shmem_verbs::memory::copy;
use shmem_verbs::{Hca, SendOp, Sge};

/// How long the source of a put keeps its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Until the put returns.
    UntilReturn,
    /// Until [`Context::release_sources`] returns. What is short is copied all the same, so that this need
    /// not wait for the peer; what is long is sent from where it is.
    UntilRelease,
    /// Until [`Context::quiet`] returns. Nothing is copied if that can be avoided.
    UntilQuiet,
}

impl<H: Hca> Context<'_, H> {
    /// Writes `len` bytes from `src` to `offset` of a segment of `pe`, connecting at first
    /// contact. The data is at the target when [`quiet`](Self::quiet) has returned. Gives whether the source may
    /// still be read: never with [`Source::UntilReturn`].
    ///
    /// # Errors
    /// The peer cannot be reached, the range is not inside its segment, or this or an earlier
    /// operation on the connection failed.
    ///
    /// # Safety
    /// `src` is valid for reading `len` bytes, and keeps its content, for as long as `stays` says. What the
    /// target does with the memory meanwhile is up to the program.
    pub unsafe fn put(
        self,
        pe: u32,
        segment: u8,
        offset: u64,
        src: *const u8,
        len: usize,
        stays: Source,
    ) -> Result<bool, ConnError> {
        let mut locked = self.endpoint.lock();
        let mut target = locked.connected(pe, segment, OpKind::Put, offset, len)?;
        if len == 0 {
            return Ok(false);
        }
        let Target { raddr, rkey, .. } = target;
        let write = |raddr: u64| SendOp::write(raddr, rkey);
        let mut op = Op::new(self.id, OpKind::Put, pe, offset, len);
        if len <= locked.copies.inline {
            let mut bytes = [0; INLINE_MAX];
            // SAFETY: `src` by the caller's promise; `bytes` is long enough.
            unsafe { copy(src, bytes.as_mut_ptr(), len) };
            let inline = Some(&bytes[..len]);
            op.stays = stays != Source::UntilReturn;
            let source = Sge {
                addr: src.expose_provenance() as u64,
                len: len as u32,
                ..Sge::default()
            };
            // SAFETY: inline data is copied while posting; if it is held before, its source stays.
            unsafe { locked.start(op, &mut target, write(raddr), source, inline)? };
            return Ok(!locked.sends.held.is_empty());
        }
        let lkey = locked.lkey(src.expose_provenance() as u64, len);
        let slot = match stays {
            _ if len > Pool::MAX => None,
            Source::UntilQuiet if lkey.is_some() => None,
            // Rather than wait for a slot.
            Source::UntilRelease if lkey.is_some() => locked.take_slot(len).transpose()?,
            _ => Some(locked.slot(len)?),
        };
        if let Some(slot) = slot {
            let (place, sge) = locked.pool.place(slot, len);
            // SAFETY: `src` by the caller's promise; the slot is ours and long enough.
            unsafe { copy(src, place, len) };
            op.holds = Holds::Slot(slot);
            // SAFETY: the slot is held until the operation completes.
            unsafe { locked.start(op, &mut target, write(raddr), sge, None)? };
            return Ok(false);
        }
        if lkey.is_none() && len <= locked.copies.buffer {
            // SAFETY: `src` by the caller's promise.
            return unsafe { locked.put_copied(&op, &target, src) }.map(|()| false);
        }
        op.waited = stays == Source::UntilReturn;
        op.stays = !op.waited && lkey.is_some() && len <= HELD_BYTES;
        // SAFETY: `src` by the caller's promise: this waits for the end of the operation, or
        // the caller does.
        let id = unsafe { locked.start_in_place(op, &mut target, src.cast_mut(), lkey, write)? };
        match stays {
            Source::UntilReturn => return locked.result(id).map(|_| false),
            Source::UntilRelease => locked.note_reading(self.id, pe),
            Source::UntilQuiet => {}
        }
        Ok(true)
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
        if lkey.is_none() && len > Pool::MAX && len <= locked.copies.buffer {
            // SAFETY: `dst` by the caller's promise.
            return unsafe { locked.get_copied(&op, &target, dst) };
        }
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

impl<H: Hca> Driver<H> {
    /// The last operation of a context towards `pe` reads the program's memory.
    fn note_reading(&mut self, id: ContextId, pe: u32) {
        if let Some(peer) = self.peers.get(&pe) {
            let mark = peer.mark().without_answers();
            self.accounts.of(id).note_reading(pe, mark);
        }
    }
}

/// The pieces of an operation that goes through slots: offset and length.
fn pieces(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len)
        .step_by(Pool::MAX)
        .map(move |at| (at, Pool::MAX.min(len - at)))
}

impl<H: Hca> Locked<'_, H> {
    /// Puts a buffer by slots. It may be changed when this returns.
    ///
    /// # Safety
    /// `src` is valid for reading `op.len` bytes until this returns.
    unsafe fn put_copied(
        &mut self,
        op: &Op,
        target: &Target,
        src: *const u8,
    ) -> Result<(), ConnError> {
        for (at, len) in pieces(op.len as usize) {
            let slot = self.slot(len)?;
            let (place, sge) = self.pool.place(slot, len);
            // SAFETY: the source by the caller's promise; the slot is ours and long enough.
            unsafe { copy(src.add(at), place, len) };
            let mut piece = op.piece(at, len);
            piece.holds = Holds::Slot(slot);
            let mut target = target.at(at);
            let write = SendOp::write(target.raddr, target.rkey);
            // SAFETY: the slot is held until the operation completes.
            unsafe { self.start(piece, &mut target, write, sge, None)? };
        }
        Ok(())
    }

    /// Gets into a buffer by slots; waits for the end if `op` is waited for.
    ///
    /// # Safety
    /// `dst` is valid for writing `op.len` bytes, and not borrowed, until this returns, or, if `op` is not waited
    /// for, until it has completed.
    unsafe fn get_copied(
        &mut self,
        op: &Op,
        target: &Target,
        dst: *mut u8,
    ) -> Result<(), ConnError> {
        let mut started = SmallVec::<[OpId; COPIED / Pool::MAX]>::new();
        let mut result = Ok(());
        for (at, len) in pieces(op.len as usize) {
            let begun = self.slot(len).and_then(|slot| {
                let (_, sge) = self.pool.place(slot, len);
                let mut piece = op.piece(at, len);
                piece.holds = Holds::CopyOut {
                    slot,
                    dst: dst.expose_provenance() + at,
                    len,
                };
                let mut target = target.at(at);
                let read = SendOp::Read {
                    raddr: target.raddr,
                    rkey: target.rkey,
                };
                // SAFETY: the slot is held until the operation completes.
                unsafe { self.start(piece, &mut target, read, sge, None) }
            });
            match begun {
                Ok(id) => started.push(id),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if op.waited {
            // All, whatever has failed: until then the buffer is written.
            for id in started {
                result = result.and(self.result(id).map(drop));
            }
        }
        result
    }
}
