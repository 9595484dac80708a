//! One-sided operations: where their local side lives, posting, and waiting.
//!
//! Verbs moves data only from and to registered memory. Three kinds of local buffers occur:
//! * inside the symmetric segment: registered once, used in place;
//! * small ones elsewhere: a put is copied into the work request (inline) or into a slot of
//!   the endpoint's pool, a get arrives in such a slot and is copied out when it completes;
//! * large ones elsewhere: registered for the time of the operation.
//!
//! Operations towards one PE are executed there in the order in which they were started, since
//! all of them use one queue pair. Between PEs there is no order but [`Context::quiet`].

use std::time::Instant;

use super::buffers::{Pool, Slot, copy};
use super::context::{Context, ContextId};
use super::driver::Driver;
use super::error::ConnError;
use super::ops::{Failed, Holds, Op, OpId, OpKind};
use super::peer::Peer;
use super::posting::Posted;
use super::wait::Locked;
use shmem_verbs::{Access, Hca, Lkey, Qpn, Rkey, SendOp, Sge};

/// Longest payload that is ever put into a work request, whatever the device allows.
pub(super) const INLINE_MAX: usize = 256;
/// Longest work request: a multiple of every page and MTU.
const CHUNK: usize = 16 << 20;

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
        let mut op = new_op(self.id, OpKind::Put, pe, offset, len);
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
        let mut op = new_op(self.id, OpKind::Get, pe, offset, len);
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

pub(super) fn new_op(ctx: ContextId, kind: OpKind, pe: u32, offset: u64, len: usize) -> Op {
    Op {
        ctx,
        kind,
        pe,
        segment: 0,
        offset,
        len: len as u64,
        pending: 0,
        posting: true,
        begun: false,
        asks: false,
        composed: false,
        fetch: None,
        holds: Holds::Nothing,
        waited: false,
        failed: None,
        result: 0,
    }
}

/// The remote side of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) pe: u32,
    segment: u8,
    /// The connection over which the address and the key are valid.
    pub(super) qpn: Qpn,
    /// They are valid as long as this is the peer's [`reach`](Peer::reach).
    pub(super) reach: u32,
    pub(super) raddr: u64,
    pub(super) rkey: Rkey,
}

impl Target {
    /// The peer itself, for a message that touches none of its memory.
    pub(super) const fn nothing_of(pe: u32, peer: &Peer, qpn: Qpn) -> Self {
        Self {
            pe,
            segment: 0,
            qpn,
            reach: peer.reach(),
            raddr: 0,
            rkey: Rkey(0),
        }
    }
}

impl<H: Hca> Driver<H> {
    /// The key of a local range, if one of the own segments covers it.
    fn lkey(&self, addr: u64, len: usize) -> Option<Lkey> {
        self.segments.iter().find_map(|s| s.covers(addr, len))
    }

    /// The remote side for a range, if the connection is open and the segment is known.
    fn target(
        &self,
        pe: u32,
        segment: u8,
        kind: OpKind,
        offset: u64,
        len: usize,
    ) -> Result<Option<Target>, ConnError> {
        let Some(peer) = self.usable(pe)? else {
            return Ok(None);
        };
        self.target_on(peer, pe, segment, kind, offset, len)
    }

    /// The same for a connection that may be draining.
    pub(super) fn target_on(
        &self,
        peer: &Peer,
        pe: u32,
        segment: u8,
        kind: OpKind,
        offset: u64,
        len: usize,
    ) -> Result<Option<Target>, ConnError> {
        let len = len as u64;
        let (Some(qpn), Some(its)) = (peer.open, peer.segment(segment)) else {
            return Ok(None);
        };
        if offset.checked_add(len).is_none_or(|end| end > its.size) {
            let (op, peer, size) = (kind.name(), self.describe(pe), its.size);
            return Err(ConnError::OutOfRange {
                op,
                peer,
                offset,
                len,
                size,
            });
        }
        Ok(Some(Target {
            pe,
            segment,
            qpn,
            reach: peer.reach(),
            raddr: its.address + offset,
            rkey: its.rkey,
        }))
    }
}

impl<H: Hca> Locked<'_, H> {
    /// Connects if need be; returns the remote side for a range. The caller may post to it as long
    /// as it keeps the lock.
    pub(super) fn connected(
        &mut self,
        pe: u32,
        segment: u8,
        kind: OpKind,
        offset: u64,
        len: usize,
    ) -> Result<Target, ConnError> {
        if let Some(target) = self.target(pe, segment, kind, offset, len)? {
            return Ok(target);
        }
        let mut missing_since = None;
        loop {
            self.ensure_open(pe)?;
            if let Some(peer) = self.peers.get(&pe)
                && let Some(target) = self.target_on(peer, pe, segment, kind, offset, len)?
            {
                return Ok(target);
            }
            // It may have registered this segment, and the word of that be on its way.
            let since = *missing_since.get_or_insert_with(Instant::now);
            let deadline = self.config.connect_deadline;
            let found = self.wait_until(|d| {
                if d.closing {
                    return Some(true);
                }
                let now = d.now();
                d.manager.refresh(now, pe);
                d.act();
                let over = since.elapsed() >= deadline;
                let known = d
                    .peers
                    .get(&pe)
                    .is_none_or(|peer| peer.segment(segment).is_some() || peer.open.is_none());
                (known || over).then_some(!over)
            });
            if !found {
                return Err(ConnError::NoSegment {
                    peer: self.describe(pe),
                    segment,
                    waited: deadline,
                });
            }
        }
    }

    /// A slot of the pool, waiting until one is free.
    pub(super) fn slot(&mut self, len: usize) -> Result<Slot, ConnError> {
        self.wait_until(|d| {
            if d.closing {
                Some(Err(d.over()))
            } else {
                d.take_slot(len)
            }
        })
    }

    /// Starts an operation of one work request.
    ///
    /// # Safety
    /// The local buffer stays valid until the operation completes.
    pub(super) unsafe fn start(
        &mut self,
        op: Op,
        target: &mut Target,
        what: SendOp,
        sge: Sge,
        inline: Option<&[u8]>,
    ) -> Result<OpId, ConnError> {
        let id = self.ops.insert(op);
        // SAFETY: by the caller's promise.
        unsafe { self.post_one(id, target, what, sge, inline)? };
        self.all_posted(id);
        Ok(id)
    }

    /// Starts an operation on a buffer of any length where it is: with `lkey` if it is
    /// registered, else with a registration for the time of the operation.
    ///
    /// # Safety
    /// The buffer stays valid until the operation completes: for reading if `make` yields
    /// writes, else for writing.
    unsafe fn start_in_place(
        &mut self,
        mut op: Op,
        target: &mut Target,
        buffer: *mut u8,
        lkey: Option<Lkey>,
        make: impl Fn(u64) -> SendOp,
    ) -> Result<OpId, ConnError> {
        let len = op.len as usize;
        let lkey = match lkey {
            Some(lkey) => lkey,
            None => {
                let access = if make(0).writes_local() {
                    Access::LOCAL_WRITE
                } else {
                    Access::NONE
                };
                // SAFETY: by the caller's promise; the registration ends with the operation.
                let mr = unsafe { self.hca().reg_mr(buffer, len, access) }
                    .map_err(ConnError::verbs("register the buffer of a large transfer"))?;
                op.holds = Holds::Registration(mr);
                mr.lkey
            }
        };
        let id = self.ops.insert(op);
        let addr = buffer.expose_provenance() as u64;
        for at in (0..len).step_by(CHUNK) {
            let sge = Sge {
                addr: addr + at as u64,
                len: CHUNK.min(len - at) as u32,
                lkey,
            };
            let raddr = target.raddr + at as u64;
            let what = make(raddr).aimed_at(raddr, target.rkey);
            // SAFETY: by the caller's promise.
            unsafe { self.post_one(id, target, what, sge, None)? };
        }
        self.all_posted(id);
        Ok(id)
    }

    /// Posts one work request of operation `id`, waiting for room in the queue. If the connection
    /// has made room for another before anything of the operation was posted, it opens again, and
    /// `target` changes; so it does if the peer's memory has changed since. If posting fails, the
    /// operation is over when this returns.
    ///
    /// # Safety
    /// The local buffer stays valid until the operation completes.
    pub(super) unsafe fn post_one(
        &mut self,
        id: OpId,
        target: &mut Target,
        mut what: SendOp,
        sge: Sge,
        inline: Option<&[u8]>,
    ) -> Result<(), ConnError> {
        let mut backoff = self.backoff();
        loop {
            // SAFETY: by the caller's promise.
            match unsafe { self.post(id, target, what, sge, inline) } {
                Ok(Posted::Yes) => return Ok(()),
                Ok(Posted::NoRoom) => {
                    if !self.poll() {
                        self.pause(&mut backoff);
                    }
                }
                Ok(Posted::Elsewhere) => match self.retarget(id, target) {
                    Ok(()) => what = what.aimed_at(target.raddr, target.rkey),
                    Err(error) => {
                        self.abandon(id);
                        return Err(error);
                    }
                },
                Err(error) => {
                    self.abandon(id);
                    return Err(error);
                }
            }
        }
    }

    /// Connects again, or looks where the memory is now, for an operation of which nothing was posted.
    fn retarget(&mut self, id: OpId, target: &mut Target) -> Result<(), ConnError> {
        let Some(op) = self.ops.get_mut(id) else {
            return Err(self.over());
        };
        let (kind, offset, len) = (op.kind, op.offset, op.len as usize);
        *target = self.connected(target.pe, target.segment, kind, offset, len)?;
        Ok(())
    }

    /// Ends an operation that cannot be posted as a whole: waits until the HCA has let go of
    /// its buffer, and forgets it.
    pub(super) fn abandon(&mut self, id: OpId) {
        self.wait_until(|d| {
            d.ops
                .get_mut(id)
                .is_none_or(|op| op.pending == 0)
                .then_some(())
        });
        if let Some(op) = self.ops.get_mut(id) {
            op.waited = true;
            op.failed.get_or_insert(Failed::Lost);
        }
        self.all_posted(id);
        self.ops.remove(id);
    }

    /// Waits for an operation that was started with `waited`.
    pub(super) fn result(&mut self, id: OpId) -> Result<u64, ConnError> {
        self.wait_until(|d| {
            d.ops
                .get_mut(id)
                .is_none_or(|op| op.is_done())
                .then_some(())
        });
        let Some(op) = self.ops.remove(id) else {
            return Err(self.over());
        };
        match op.failed {
            Some(failed) => Err(self.explain_or_cause(&op, failed)),
            None => Ok(op.result),
        }
    }
}
