//! Visits all states that a model reaches, in whatever order things happen.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use siphasher::sip128::SipHasher24;

/// A few endpoints and their network, with budgets for what goes wrong.
pub(crate) trait Model: Clone {
    /// Something that may happen next.
    type Step: Copy + Debug;

    /// Two states with the same fingerprint behave the same.
    fn fingerprint(&self) -> u128;

    /// All that may happen next.
    fn steps(&self) -> Vec<Self::Step>;

    fn apply(&mut self, step: Self::Step);

    /// Nothing goes wrong any more: everything must settle.
    fn assert_settles(self);
}

/// Visits every reachable state once; returns how many there are.
pub(crate) fn explore<M: Model>(name: &str, start: M) -> usize {
    let mut seen = HashSet::from([start.fingerprint()]);
    let mut origins = Origins::new();
    let mut stack = vec![(start, 0)];
    while let Some((state, number)) = stack.pop() {
        for step in state.steps() {
            let mut next = state.clone();
            let check = AssertUnwindSafe(|| {
                next.apply(step);
                let new = seen.insert(next.fingerprint());
                if new {
                    next.clone().assert_settles();
                }
                new
            });
            match catch_unwind(check) {
                Ok(true) => stack.push((next, origins.add(number, step))),
                Ok(false) => {}
                Err(panic) => {
                    origins.tell(name, number, step);
                    resume_unwind(panic);
                }
            }
        }
    }
    println!("{name}: {} states", seen.len());
    seen.len()
}

/// Fingerprints of the messages of a network, sorted, because a network has no order.
pub(crate) fn unordered<M: Hash>(messages: &[M]) -> Vec<u64> {
    let one = |message: &M| {
        let mut hasher = SipHasher24::new();
        message.hash(&mut hasher);
        hasher.finish()
    };
    let mut all: Vec<u64> = messages.iter().map(one).collect();
    all.sort_unstable();
    all
}

/// How each state was reached first: from which state, and by which step. States have numbers from 0.
pub(crate) struct Origins<S>(Vec<Option<(u32, S)>>);

impl<S: Copy + Debug> Origins<S> {
    /// With the first state.
    pub(crate) fn new() -> Self {
        Self(vec![None])
    }

    /// Returns the number of a new state.
    pub(crate) fn add(&mut self, from: u32, step: S) -> u32 {
        self.0.push(Some((from, step)));
        self.0.len() as u32 - 1
    }

    pub(crate) fn states(&self) -> usize {
        self.0.len()
    }

    /// The steps that lead to a state.
    pub(crate) fn path_to(&self, mut state: u32) -> Vec<S> {
        let mut path = Vec::new();
        while let Some((from, step)) = self.0[state as usize] {
            path.push(step);
            state = from;
        }
        path.reverse();
        path
    }

    /// Prints the steps to a failure, of which `last` comes after the state.
    pub(crate) fn tell(&self, name: &str, state: u32, last: S) {
        let path = self.path_to(state);
        eprintln!("{name}: the schedule was {path:#?}, then {last:?}");
    }
}
