//! The numbers by which the endpoint tells the contexts of this PE apart.

use std::sync::{Mutex, MutexGuard, PoisonError};

use shmem_ib::connect::endpoint::ContextId;

use crate::network::Stream;

/// Most contexts of a PE at a time, with the default one. Each costs a few words; a program that
/// needs more has most likely forgotten to destroy them.
pub const MAX_CONTEXTS: u16 = 1024;

/// The numbers in use.
#[derive(Debug)]
pub(super) struct Numbers(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Numbers from here on were never used.
    next: u16,
    /// Numbers below it that are free again.
    released: Vec<u16>,
}

impl State {
    const UNUSED: Self = Self {
        next: Stream::RUNTIME.id().number() + 1,
        released: Vec::new(),
    };
}

/// Those of this process.
pub(super) static NUMBERS: Numbers = Numbers::new();

impl Numbers {
    const fn new() -> Self {
        Self(Mutex::new(State::UNUSED))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only the default context has a number from now on.
    pub(super) fn renew(&self) {
        *self.state() = State::UNUSED;
    }

    pub(super) fn take(&self) -> Option<ContextId> {
        let mut state = self.state();
        let number = state.released.pop().or_else(|| {
            let fresh = state.next;
            (fresh <= MAX_CONTEXTS).then(|| {
                state.next += 1;
                fresh
            })
        });
        number.map(ContextId::new)
    }

    pub(super) fn release(&self, id: ContextId) {
        self.state().released.push(id.number());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_run_out_and_come_back() {
        let numbers = Numbers::new();
        let all: Vec<ContextId> = std::iter::from_fn(|| numbers.take()).collect();
        assert_eq!(all.len(), usize::from(MAX_CONTEXTS) - 1);
        assert!(
            all.iter()
                .all(|id| ![ContextId::DEFAULT, Stream::RUNTIME.id()].contains(id))
        );
        numbers.release(all[7]);
        assert_eq!(numbers.take(), Some(all[7]));
        assert_eq!(numbers.take(), None);
        numbers.renew();
        assert_eq!(numbers.take(), Some(ContextId::new(2)));
    }
}
