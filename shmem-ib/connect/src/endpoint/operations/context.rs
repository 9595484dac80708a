//! Contexts: separate streams of operations, each of which completes by itself.
//!
//! Contexts share connections, so they cost nothing but their accounts (`accounts.rs`), and the
//! number of connections does not grow with them.

use smallvec::SmallVec;

use super::accounts::{ContextId, Mark};
use super::table::OpId;
use crate::endpoint::awaited::Awaited;
use crate::endpoint::driver::Driver;
use crate::endpoint::error::ConnError;
use crate::endpoint::lock::{Endpoint, Locked};
use crate::endpoint::peer::Peer;
use shmem_verbs::Hca;

/// The operations of one context of an endpoint; see [`Endpoint::context`].
#[derive(Debug)]
pub struct Context<'a, H: Hca> {
    pub(crate) endpoint: &'a Endpoint<H>,
    pub(crate) id: ContextId,
}

impl<H: Hca> Clone for Context<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Hca> Copy for Context<'_, H> {}

impl<H: Hca> Endpoint<H> {
    /// The operations of a context.
    #[inline]
    #[must_use]
    pub const fn context(&self, id: ContextId) -> Context<'_, H> {
        Context { endpoint: self, id }
    }

    /// [`Context::quiet`] of all contexts, those of its branches included.
    ///
    /// # Errors
    /// The first error of an operation that nobody waited for and no quiet has told of.
    pub fn quiet_all(&self) -> Result<(), ConnError> {
        let mut locked = self.lock();
        let (ids, branches) = (locked.accounts.ids(), locked.branches().clone());
        drop(locked);
        let mut result = Ok(());
        for branch in branches {
            result = result.and(branch.quiet_all());
        }
        for id in ids {
            result = result.and(self.context(id).quiet());
        }
        result
    }
}

impl<'a, H: Hca> Context<'a, H> {
    /// The endpoint, if it is open still.
    pub(super) fn lock(self) -> Result<Locked<'a, H>, ConnError> {
        let locked = self.endpoint.lock();
        match locked.life.closed {
            true => Err(locked.over()),
            false => Ok(locked),
        }
    }

    /// Returns when every operation of this context that was started before, by any thread, is
    /// complete at its target.
    ///
    /// # Errors
    /// The first error of an operation of this context that nobody waited for since the last `quiet`.
    pub fn quiet(self) -> Result<(), ConnError> {
        let mut locked = self.lock()?;
        if locked.is_busy() {
            locked.wait_for_context(self.id, None);
        }
        self.settled(&mut locked)
    }

    /// Forgets what is complete, and tells of the first error.
    fn settled(self, locked: &mut Driver<H>) -> Result<(), ConnError> {
        let account = locked.accounts.of(self.id);
        let peers = &locked.peers;
        account.settle(|pe, mark| has_reached(peers.get(&pe), mark));
        account.lost_error.take().map_or(Ok(()), Err)
    }

    /// Returns when every operation of this context towards `pe` that was started before, by any
    /// thread, is complete at its target. Its errors are those of [`quiet`](Self::quiet), too.
    ///
    /// # Errors
    /// The first error of an operation of this context that nobody waited for since the last `quiet`.
    pub fn quiet_towards(self, pe: u32) -> Result<(), ConnError> {
        let mut locked = self.lock()?;
        if locked.is_busy() {
            locked.wait_for_context(self.id, Some(pe));
        }
        locked.lost_error(self.id)
    }

    /// Returns when the sources of all puts of this context that were started before with
    /// [`Source::UntilRelease`](super::put_get::Source::UntilRelease), by any thread, may be changed. That a put has
    /// arrived it does not say: where the source was copied, nothing is waited for.
    ///
    /// # Errors
    /// The first error of an operation of this context that nobody waited for since the last `quiet`.
    pub fn release_sources(self) -> Result<(), ConnError> {
        self.release(None)
    }

    /// [`release_sources`](Self::release_sources) of the puts towards one peer.
    ///
    /// # Errors
    /// As of that.
    pub fn release_sources_towards(self, pe: u32) -> Result<(), ConnError> {
        self.release(Some(pe))
    }

    fn release(self, towards: Option<u32>) -> Result<(), ConnError> {
        let mut locked = self.lock()?;
        // The device copies what is short while it is told.
        if !locked.sends.held.is_empty() {
            locked.ring();
            locked.wait_until(|_| Awaited::Room, |d| d.sends.held.is_empty().then_some(()));
        }
        let reading = locked.accounts.of(self.id).reading();
        let marks: SmallVec<[(u32, Mark); 16]> = reading
            .filter(|&(pe, _)| towards.is_none_or(|only| only == pe))
            .collect();
        if marks.is_empty() {
            return Ok(());
        }
        locked.wait_for_marks(&marks);
        self.settled(&mut locked)
    }

    /// Returns when what this context starts towards any PE from now on is executed after what it has
    /// started towards it before. Connections deliver in order, so this waits for atomics only that
    /// owners have still to execute, or that are made of several steps. Their errors are those of
    /// [`quiet`](Self::quiet).
    pub fn fence(self) {
        if !self.endpoint.by_owner && self.endpoint.composed.get() == 0 {
            return;
        }
        let mut locked = self.endpoint.lock();
        if locked.unanswered > 0 {
            let asked: SmallVec<[(u32, Mark); 16]> = locked.accounts.of(self.id).last().collect();
            for (i, &(pe, mark)) in asked.iter().enumerate() {
                let more = asked.len() - i - 1;
                locked.wait_until(
                    |d| d.left(pe, mark, more),
                    |d| {
                        let peer = d.peers.get(&pe);
                        let answered = peer.is_none_or(|p| p.requests.answered >= mark.asked);
                        answered.then_some(())
                    },
                );
            }
        }
        locked.wait_for_composed(self.id, None);
    }
}

pub(super) fn has_reached(peer: Option<&Peer>, mark: Mark) -> bool {
    peer.is_none_or(|peer| peer.has_reached(mark))
}

impl<H: Hca> Driver<H> {
    /// Gives the error that a context still owes, once.
    pub(super) fn lost_error(&mut self, id: ContextId) -> Result<(), ConnError> {
        self.accounts.of(id).lost_error.take().map_or(Ok(()), Err)
    }
}

impl<H: Hca> Locked<'_, H> {
    /// Waits until what a context has started, towards one peer or all, is complete. What other
    /// threads start from now on is not waited for.
    fn wait_for_context(&mut self, id: ContextId, towards: Option<u32>) {
        let account = self.accounts.of(id);
        let marks: SmallVec<[(u32, Mark); 16]> = match towards {
            Some(pe) => account
                .last_towards(pe)
                .map(|mark| (pe, mark))
                .into_iter()
                .collect(),
            None => account.last().collect(),
        };
        self.wait_for_marks(&marks);
        self.wait_for_composed(id, towards);
    }

    /// Waits until everything before some points towards some peers is complete.
    pub(super) fn wait_for_marks(&mut self, marks: &[(u32, Mark)]) {
        for (i, &(pe, mark)) in marks.iter().enumerate() {
            let left = |d: &Driver<H>| d.left(pe, mark, marks.len() - i - 1);
            self.wait_until(left, |d| has_reached(d.peers.get(&pe), mark).then_some(()));
        }
    }

    /// The same for its atomics of several steps.
    pub(super) fn wait_for_composed(&mut self, id: ContextId, towards: Option<u32>) {
        if self.accounts.of(id).composed == 0 {
            return;
        }
        let meant: Vec<OpId> = self.ops.composed_of(id, towards);
        for op in meant {
            self.wait_until(
                |d| d.awaited(op),
                |d| {
                    let left = d.ops.get_mut(op).is_some_and(|op| op.composed);
                    (!left).then_some(())
                },
            );
        }
    }
}
