//! Points in what a context has started towards a peer, for who waits for less than all of it.

use std::task::Waker;

use super::accounts::{ContextId, Mark};
use super::context::{Context, has_reached};
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use shmem_verbs::Hca;

/// All that a context had started towards a peer at some moment; see [`Context::point`].
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pe: u32,
    /// Nothing that was posted is under way without it.
    mark: Option<Mark>,
    /// Atomics of several steps were among it. They complete in an order of their own, in which no point can be
    /// named: all that are under way are waited for.
    composed: bool,
}

impl<H: Hca> Context<'_, H> {
    /// The moment after everything that this context has started towards `pe`. `None` if nothing of it is
    /// under way.
    pub fn point(self, pe: u32) -> Option<Point> {
        let mut locked = self.endpoint.lock();
        // One that waits for others on its word has posted nothing yet.
        let composed = locked.has_composed(self.id, pe);
        let last = locked.accounts.of(self.id).last_towards(pe);
        let mark = last.filter(|&mark| !has_reached(locked.peers.get(&pe), mark));
        (composed || mark.is_some()).then_some(Point { pe, mark, composed })
    }

    /// Whether everything before `point` is complete. Makes progress.
    ///
    /// # Errors
    /// The first error of an operation of this context that nobody waited for since the last `quiet`.
    pub fn is_past(self, point: &Point) -> Result<bool, ConnError> {
        self.look(&mut self.endpoint.lock(), point)
    }

    fn look(self, locked: &mut Driver<H>, point: &Point) -> Result<bool, ConnError> {
        if locked.life.closed {
            return Err(locked.over());
        }
        locked.poll();
        let reached = |mark| has_reached(locked.peers.get(&point.pe), mark);
        let past = point.mark.is_none_or(reached)
            && !(point.composed && locked.has_composed(self.id, point.pe));
        locked.lost_error(self.id).map(|()| past)
    }

    /// The same; if that is not so, `waker` is woken as soon as more is complete, whichever thread finds that.
    ///
    /// # Errors
    /// As for [`is_past`](Self::is_past).
    pub fn is_past_or_wakes(self, point: &Point, waker: &Waker) -> Result<bool, ConnError> {
        // Cloning and dropping a waker run code of the program, so both happen without the lock.
        let mut own = Some(waker.clone());
        let mut locked = self.endpoint.lock();
        let past = self.look(&mut locked, point)?;
        if !past
            && !locked
                .notices
                .wakers
                .iter()
                .any(|other| other.will_wake(waker))
        {
            locked.notices.wakers.extend(own.take());
        }
        drop(locked);
        Ok(past)
    }

    /// Returns when everything before `point` is complete.
    ///
    /// # Errors
    /// As for [`is_past`](Self::is_past).
    pub fn wait_for(self, point: &Point) -> Result<(), ConnError> {
        let mut locked = self.lock()?;
        if let Some(mark) = point.mark {
            locked.wait_for_marks(&[(point.pe, mark)]);
        }
        if point.composed {
            locked.wait_for_composed(self.id, Some(point.pe));
        }
        locked.lost_error(self.id)
    }
}

impl<H: Hca> Driver<H> {
    fn has_composed(&mut self, id: ContextId, pe: u32) -> bool {
        self.accounts.of(id).composed > 0 && !self.ops.composed_of(id, Some(pe)).is_empty()
    }
}
