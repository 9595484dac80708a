//! A barrier that does not wait: OpenSHMEM has none.
//!
//! By dissemination (Hensgen, Finkel and Manber, 1988): in round `r` a PE tells the one 2^r further on that it has come,
//! and goes on to the next round when the one 2^r before has told it so. After log2 P rounds everybody has heard of
//! everybody. A word for each round counts how often it was told: a PE that is one barrier ahead adds to a count that is
//! looked at with "at least", and none can be two ahead, because it would need this PE for that.
//!
//! It says that all have come, and nothing of what they have put: who counts what was sent (the [mailbox](crate::mailbox)
//! does) needs no more, and nobody waits for acknowledgements.

use shmem::{Cmp, SymSlice};

/// Rounds for so many PEs, and words that an [`Arrival`] needs.
#[must_use]
pub fn rounds(n_pes: usize) -> usize {
    n_pes.next_power_of_two().trailing_zeros() as usize
}

/// The barrier: [`enter`](Self::enter) it, do something else, and [`test`](Self::test) whether all have.
#[derive(Debug)]
pub struct Arrival {
    /// How often each round was told.
    told: SymSlice<u64>,
    /// How many barriers there were, with the one under way.
    count: u64,
    /// The round whose word has to come; as many as there are rounds when all have come.
    round: usize,
}

impl Arrival {
    /// With words of all PEs that are zero and used for nothing else: one for each of the [`rounds`].
    ///
    /// # Panics
    /// If there are not as many.
    #[must_use]
    pub fn new(told: SymSlice<u64>) -> Self {
        let rounds = rounds(shmem::n_pes());
        assert_eq!(told.len(), rounds, "a word for each round");
        Self {
            told,
            count: 0,
            round: rounds,
        }
    }

    /// Says that this PE has come, and returns at once. All PEs call this, each time when the barrier before is
    /// complete.
    ///
    /// # Panics
    /// If it is not.
    pub fn enter(&mut self) {
        assert!(self.is_complete(), "one barrier at a time");
        self.count += 1;
        self.round = 0;
        self.tell();
    }

    /// Whether all PEs have entered. Goes on with the rounds as far as others have, and does not wait.
    pub fn test(&mut self) -> bool {
        while let Some((word, count)) = self.awaited() {
            if !shmem::test(self.told.elem(word), Cmp::Ge, count) {
                return false;
            }
            self.round += 1;
            self.tell();
        }
        true
    }

    /// The word that has to be at least so large before [`test`](Self::test) comes further: for waiting on it,
    /// and on other things at the same time. None if all have come.
    #[must_use]
    pub fn awaited(&self) -> Option<(usize, u64)> {
        (!self.is_complete()).then_some((self.round, self.count))
    }

    fn is_complete(&self) -> bool {
        self.round == self.told.len()
    }

    fn tell(&self) {
        if !self.is_complete() {
            let next = (shmem::my_pe() + (1 << self.round)) % shmem::n_pes();
            shmem::signal_add(self.told.elem(self.round), 1, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rounds;

    #[test]
    fn rounds_reach_everybody() {
        let expected = [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (16, 4), (17, 5)];
        for (n_pes, needed) in expected {
            assert_eq!(rounds(n_pes), needed);
            assert!(1 << rounds(n_pes) >= n_pes);
        }
    }
}
