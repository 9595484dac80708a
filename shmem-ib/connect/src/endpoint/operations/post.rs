//! Where operations are posted: all work requests of the program go through [`Driver::post`].
//!
//! An operation needs a remote side ([`Target`]), perhaps a slot for its data, and room in the queue; who
//! starts it waits for each of these without the lock, after which another may be missing again. So
//! `post` checks the target when everything else is there, and sends the caller back if the
//! connection is another by then.

use std::time::Instant;

use super::held::{Held, Request};
use super::sends::Sends;
use super::silent::{Last, may_be_silent};
use super::table::{CHUNK, Failed, Holds, Op, OpId, OpKind};
use crate::Route;
use crate::endpoint::awaited::Awaited;
use crate::endpoint::buffers::Slot;
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::endpoint::lock::Locked;
use crate::endpoint::peer::Peer;
use crate::endpoint::wr_id::Whose;
use shmem_verbs::{Access, Hca, Lkey, Qpn, Rkey, SendOp, SendWr, Sge, SrqNum, VerbsError};

/// The remote side of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) pe: u32,
    segment: u8,
    /// The connection over which the address and the key are valid.
    qpn: Qpn,
    srqn: Option<SrqNum>,
    /// They are valid at least as long as this is the driver's count of changes.
    changes: u64,
    pub(crate) raddr: u64,
    pub(crate) rkey: Rkey,
}

impl Target {
    /// So many bytes further.
    pub(crate) const fn at(&self, bytes: usize) -> Self {
        Self {
            raddr: self.raddr + bytes as u64,
            ..*self
        }
    }
}

/// What became of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Posted {
    Yes,
    /// The queue is full.
    NoRoom,
    /// The connection is no more for which the operation was meant, and nothing of it has been posted.
    Elsewhere,
}

impl<H: Hca> Driver<H> {
    /// The key of a local range, if one of the own segments covers it.
    pub(super) fn lkey(&self, addr: u64, len: usize) -> Option<Lkey> {
        self.segments.iter().find_map(|s| s.covers(addr, len))
    }

    /// The remote side for a range, if operations on it may begin: the connection is open and the
    /// segment known.
    #[inline]
    fn target(
        &self,
        pe: u32,
        segment: u8,
        kind: OpKind,
        offset: u64,
        len: usize,
    ) -> Result<Option<Target>, ConnError> {
        match self.usable(pe)? {
            Some(route) => self.target_over(&route, pe, segment, kind, offset, len),
            None => Ok(None),
        }
    }

    /// The same over a connection that may be draining.
    pub(crate) fn target_anyway(
        &self,
        pe: u32,
        segment: u8,
        kind: OpKind,
        offset: u64,
        len: usize,
    ) -> Result<Option<Target>, ConnError> {
        match self.sound(pe)? {
            Some(route) => self.target_over(&route, pe, segment, kind, offset, len),
            None => Ok(None),
        }
    }

    fn target_over(
        &self,
        route: &Route<'_>,
        pe: u32,
        segment: u8,
        kind: OpKind,
        offset: u64,
        len: usize,
    ) -> Result<Option<Target>, ConnError> {
        let len = len as u64;
        let Some(its) = route.segment(segment) else {
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
            raddr: its.address + offset,
            rkey: its.rkey,
            ..self.target_of_nothing(pe, segment, route)
        }))
    }

    /// The peer itself, for a message that touches none of its memory.
    pub(crate) const fn target_of_nothing(
        &self,
        pe: u32,
        segment: u8,
        route: &Route<'_>,
    ) -> Target {
        Target {
            pe,
            segment,
            qpn: route.qpn,
            srqn: route.srqn,
            changes: self.qps.changes,
            raddr: 0,
            rkey: Rkey(0),
        }
    }

    /// Whether the connection of a target is still there. If so its address and key are valid, since peers
    /// only ever add segments.
    #[cold]
    fn still_leads(&self, target: &Target) -> Result<bool, ConnError> {
        let route = self.sound(target.pe)?;
        Ok(route.is_some_and(|route| route.qpn == target.qpn))
    }

    /// A slot of the pool for `len` bytes, if one is free.
    pub(crate) fn take_slot(&mut self, len: usize) -> Option<Result<Slot, ConnError>> {
        let taken = self.pool.take(&*self.hca, len);
        taken
            .map_err(ConnError::verbs("register a buffer for copies"))
            .transpose()
    }

    /// Whether a work request of operation `id` may be posted now, as far as the endpoint as a whole decides that.
    #[inline]
    fn may_post(&mut self, id: OpId, target: &Target) -> Result<Posted, ConnError> {
        if self.life.closing {
            return Err(self.over());
        }
        if target.changes != self.qps.changes && !self.still_leads(target)? {
            return match self.ops.get(id) {
                Some(op) if op.begun => Err(self.explain(op, Failed::Lost)),
                Some(_) => Ok(Posted::Elsewhere),
                None => Err(self.over()),
            };
        }
        if !self.sends.held.is_empty() && !self.sends.held.is_for(target.pe, target.qpn) {
            self.ring();
            if !self.sends.held.is_empty() {
                return Ok(Posted::NoRoom);
            }
        }
        match self.sends.in_flight >= self.most_in_flight() {
            true => Ok(Posted::NoRoom),
            false => Ok(Posted::Yes),
        }
    }

    /// Posts one work request of operation `id`, and tells whether there was room. `target` may be from
    /// before the lock was given up.
    ///
    /// # Safety
    /// As [`Hca::post_send`]: the local buffer stays valid until the operation completes.
    pub(crate) unsafe fn post(
        &mut self,
        id: OpId,
        target: &Target,
        what: SendOp,
        sge: Sge,
        inline: Option<&[u8]>,
    ) -> Result<Posted, ConnError> {
        match self.may_post(id, target)? {
            Posted::Yes => {}
            not => return Ok(not),
        }
        let (pe, qpn) = (target.pe, target.qpn);
        let (Some(op), Some(peer)) = (self.ops.get_mut(id), self.peers.get_mut(&pe)) else {
            return Err(self.over());
        };
        // Places are left for answers, and for those to us.
        let full = || peer.is_full(self.config.sq_depth);
        if self.owner.is_some() && (full() || op.asks && !peer.requests.has_room()) {
            return Ok(Posted::NoRoom);
        }
        let under_way = peer.posted - peer.completed;
        let sends = &mut self.sends;
        let silent = may_be_silent(op)
            && (sends.telling).is_silent(&peer.silent, under_way, sends.in_flight);
        // With room for it in the queue, since nobody is told if there is none.
        let waits = op.stays
            && Held::may_wait(under_way, self.config.sq_depth)
            && sends.held.takes(pe, qpn);
        if waits || !sends.held.is_empty() {
            let source = inline.filter(|_| !op.stays).map_or(sge, |data| Sge {
                addr: data.as_ptr().expose_provenance() as u64,
                len: data.len() as u32,
                lkey: Lkey(0),
            });
            let request = Request {
                id,
                what,
                source,
                inline: inline.is_some(),
                tells: !silent,
                srqn: target.srqn,
            };
            sends.held.push(pe, qpn, request);
            if !waits {
                if let Err(error) = sends.held.ring(&*self.hca) {
                    return Err(self.life.fail(error));
                }
                if !sends.held.is_empty() {
                    sends.held.pop();
                    return Ok(Posted::NoRoom);
                }
            }
        } else {
            let wr = SendWr {
                inline,
                signaled: !silent,
                srqn: target.srqn,
                ..SendWr::new(
                    Whose::Operation(id).to_wr_id(),
                    what,
                    std::slice::from_ref(&sge),
                )
            };
            // SAFETY: by the caller's promise.
            match unsafe { self.hca.post_send(qpn, &wr) } {
                Ok(()) => {}
                Err(VerbsError::QueueFull { .. }) => return Ok(Posted::NoRoom),
                Err(e) => return Err(ConnError::verbs("post an operation")(e)),
            }
        }
        sends.note(id, op, peer, target, silent);
        if op.asks {
            op.pending += 1;
            peer.requests.asked += 1;
            self.unanswered += 1;
        }
        self.accounts.of(op.ctx).note(pe, peer.mark());
        Ok(Posted::Yes)
    }
}

impl Sends {
    /// A work request of an operation was posted, or is held.
    #[inline]
    fn note(&mut self, id: OpId, op: &mut Op, peer: &mut Peer, target: &Target, silent: bool) {
        self.posted();
        peer.posted += 1;
        peer.used = self.used();
        if silent {
            self.silent += 1;
            if !peer.silent.is_uncovered() {
                self.uncovered.push(target.pe);
            }
            op.silent = true;
            op.covers = peer.silent.push(id);
            peer.last = Some(Last {
                ctx: op.ctx,
                qpn: target.qpn,
                srqn: target.srqn,
                raddr: target.raddr,
                rkey: target.rkey,
            });
        } else if op.pending == 0 {
            op.covers = peer.silent.cover();
        }
        op.pending += 1;
        op.begun = true;
    }
}

impl<H: Hca> Locked<'_, H> {
    /// Connects if need be; returns the remote side for a range. The caller may post to it as long
    /// as it keeps the lock.
    pub(crate) fn connected(
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
            if let Some(target) = self.target_anyway(pe, segment, kind, offset, len)? {
                return Ok(target);
            }
            // It may have registered this segment, and the word of that be on its way.
            let since = *missing_since.get_or_insert_with(Instant::now);
            let deadline = self.config.connect_deadline;
            let found = self.wait_until(
                |_| Awaited::Memory(pe),
                |d| {
                    if d.life.closing {
                        return Some(true);
                    }
                    let now = d.now();
                    d.manager.refresh(now, pe);
                    d.act();
                    let over = since.elapsed() >= deadline;
                    let route = d.manager.route(pe);
                    let known = route.is_none_or(|route| route.segment(segment).is_some());
                    (known || over).then_some(!over)
                },
            );
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
    pub(crate) fn slot(&mut self, len: usize) -> Result<Slot, ConnError> {
        self.wait_until(
            |_| Awaited::Room,
            |d| {
                if d.life.closing {
                    Some(Err(d.over()))
                } else {
                    d.take_slot(len)
                }
            },
        )
    }

    /// Starts an operation of one work request.
    ///
    /// # Safety
    /// The local buffer stays valid until the operation completes.
    pub(crate) unsafe fn start(
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
    pub(super) unsafe fn start_in_place(
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
    /// `target` changes. If posting fails, the operation is over when this returns.
    ///
    /// # Safety
    /// The local buffer stays valid until the operation completes.
    pub(crate) unsafe fn post_one(
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
                        let pe = target.pe;
                        self.pause(&mut backoff, |_| Awaited::Operation(pe));
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

    /// Connects again, for an operation of which nothing was posted.
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
    pub(crate) fn abandon(&mut self, id: OpId) {
        self.wait_until(
            |d| d.awaited(id),
            |d| {
                d.ops
                    .get_mut(id)
                    .is_none_or(|op| op.pending == 0)
                    .then_some(())
            },
        );
        if let Some(op) = self.ops.get_mut(id) {
            op.waited = true;
            op.failed.get_or_insert(Failed::Lost);
        }
        self.all_posted(id);
        self.ops.remove(id);
    }
}
