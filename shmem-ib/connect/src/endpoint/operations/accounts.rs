//! What each context has under way, so that its quiet waits for nothing else.
//!
//! The operations of all contexts towards a peer share one connection, and complete in order there. So
//! a context's own are complete when the last of them is, and for each peer it is enough to know
//! how far that one stands in the sequence of all operations towards it ([`Mark`]).

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;

use crate::endpoint::error::ConnError;

/// Names a context of an endpoint. Contexts need not be made: one that was never used has nothing
/// under way. Small numbers, as what is kept per context lies in a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ContextId(u16);

impl ContextId {
    /// The one of operations that name none.
    pub const DEFAULT: Self = Self(0);

    /// The context of this number.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// A point in the sequence of operations towards a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) posted: u64,
    pub(crate) asked: u64,
}

impl Mark {
    /// The same point for who need not hear of answers.
    pub(crate) const fn without_answers(self) -> Self {
        Self { asked: 0, ..self }
    }
}

/// One context's account.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// For each peer that was used since the last quiet: the last operation towards it.
    last: HashMap<u32, Mark>,
    /// The same for puts that read the program's memory and may do so until
    /// [`release_sources`](super::context::Context::release_sources).
    reading: HashMap<u32, Mark>,
    /// Atomics of several steps, which complete in an order of their own.
    pub(crate) composed: u32,
    /// First failure of an operation that nobody waited for.
    pub(crate) lost_error: Option<ConnError>,
}

impl Account {
    /// An operation towards `pe` was posted, which stands at `mark`.
    pub(crate) fn note(&mut self, pe: u32, mark: Mark) {
        self.last.insert(pe, mark);
    }

    /// Where the last operation towards each peer stands.
    pub(crate) fn last(&self) -> impl Iterator<Item = (u32, Mark)> {
        self.last.iter().map(|(pe, mark)| (*pe, *mark))
    }

    /// The same for one peer.
    pub(crate) fn last_towards(&self, pe: u32) -> Option<Mark> {
        self.last.get(&pe).copied()
    }

    /// The last operation towards `pe`, which stands at `mark`, reads the program's memory.
    pub(crate) fn note_reading(&mut self, pe: u32, mark: Mark) {
        self.reading.insert(pe, mark);
    }

    /// Where the last operation of those towards each peer stands.
    pub(crate) fn reading(&self) -> impl Iterator<Item = (u32, Mark)> {
        self.reading.iter().map(|(pe, mark)| (*pe, *mark))
    }

    /// Forgets the peers of which nothing is missing.
    pub(crate) fn settle(&mut self, complete: impl Fn(u32, Mark) -> bool) {
        self.last.retain(|pe, mark| !complete(*pe, *mark));
        self.reading.retain(|pe, mark| !complete(*pe, *mark));
    }
}

/// A count that is changed under the endpoint's lock, and looked at without it, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge(Arc<AtomicU64>);

impl Gauge {
    /// At least what the calling thread, or one that it has heard from, has counted up and nobody down.
    pub(crate) fn get(&self) -> u64 {
        // ORDERING(gauge): pairs with `down`: what has ended by then has ended.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn down(&self) {
        // ORDERING(gauge): pairs with `get`.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// The accounts of all contexts that were ever used.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Vec<Account>);

impl Accounts {
    /// The account of a context; opened when it is first asked for.
    pub(crate) fn of(&mut self, id: ContextId) -> &mut Account {
        let number = usize::from(id.number());
        if number >= self.0.len() {
            self.0.resize_with(number + 1, Account::default);
        }
        &mut self.0[number]
    }

    /// The contexts that were ever used.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ContextId> + use<> {
        (0..self.0.len()).map(|number| ContextId::new(number as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::peer::Peer;
    use shmem_verbs::rng::Rng;

    #[test]
    fn an_account_knows_the_last_operation_only() {
        let mut accounts = Accounts::default();
        let (mut peer, id) = (Peer::default(), ContextId::new(3));
        for _ in 0..5 {
            peer.posted += 1;
            accounts.of(id).note(7, peer.mark());
        }
        assert_eq!(accounts.of(ContextId::DEFAULT).last().count(), 0);
        let mark = accounts.of(id).last_towards(7).expect("it was used");
        peer.completed = 4;
        assert!(!peer.has_reached(mark));
        accounts.of(id).settle(|_, mark| peer.has_reached(mark));
        assert_eq!(accounts.of(id).last().count(), 1);
        peer.completed = 5;
        accounts.of(id).settle(|_, mark| peer.has_reached(mark));
        assert_eq!(accounts.of(id).last().count(), 0);
    }

    #[test]
    fn sources_wait_for_requests_that_read_them_alone() {
        let mut accounts = Accounts::default();
        let (mut peer, id) = (Peer::default(), ContextId::new(1));
        (peer.posted, peer.requests.asked) = (3, 2);
        let account = accounts.of(id);
        account.note(7, peer.mark());
        assert_eq!(account.reading().count(), 0);
        account.note_reading(7, peer.mark().without_answers());
        // One more, of which the source was copied.
        peer.posted = 4;
        account.note(7, peer.mark());
        peer.completed = 3;
        let reached = |_: u32, mark| peer.has_reached(mark);
        assert!(account.reading().all(|(pe, mark)| reached(pe, mark)));
        account.settle(reached);
        assert_eq!((account.reading().count(), account.last().count()), (0, 1));
    }

    /// Random operations of several contexts towards several peers that complete in order: a context
    /// counts as complete exactly when all operations up to its last are, and so all its own.
    #[test]
    fn a_context_is_complete_when_its_operations_are() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut accounts = Accounts::default();
            let mut peers: Vec<Peer> = (0..4).map(|_| Peer::default()).collect();
            // Of each peer, the contexts of its operations in order.
            let mut sent: Vec<Vec<u16>> = vec![Vec::new(); peers.len()];
            for _ in 0..400 {
                let pe = rng.below(peers.len() as u64) as usize;
                if rng.below(2) == 0 {
                    let ctx = rng.below(5) as u16;
                    peers[pe].posted += 1;
                    sent[pe].push(ctx);
                    let mark = peers[pe].mark();
                    accounts.of(ContextId::new(ctx)).note(pe as u32, mark);
                } else if peers[pe].completed < peers[pe].posted {
                    peers[pe].completed += 1;
                }
                for ctx in 0..5 {
                    let reached = |pe: u32, mark| peers[pe as usize].has_reached(mark);
                    let account = accounts.of(ContextId::new(ctx));
                    let complete = account.last().all(|(pe, mark)| reached(pe, mark));
                    let own = peers.iter().zip(&sent).all(|(peer, sent)| {
                        let left = &sent[peer.completed as usize..];
                        !left.contains(&ctx)
                    });
                    assert_eq!(complete, own, "seed {seed}, context {ctx}");
                    if rng.below(10) == 0 {
                        account.settle(reached);
                    }
                }
            }
        }
    }
}
