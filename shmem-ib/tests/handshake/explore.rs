//! Visits all states that a model reaches, in whatever order things happen.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use shmem_ib::connect::manager::Manager;
use shmem_ib::connect::message::Message;
use siphasher::sip128::SipHasher24;

use crate::world::encoded;

/// A few endpoints and their network, with budgets for what goes wrong.
pub(crate) trait Model: Clone {
    /// Something that may happen next.
    type Step: Copy + Debug;

    /// Two states with the same fingerprint behave the same.
    fn fingerprint(&self) -> u128;

    /// All that may happen next.
    fn steps(&self) -> Vec<Self::Step>;

    fn apply(&mut self, step: Self::Step);
}

/// Visits every reachable state once, of which each must settle when nothing goes wrong any more; returns how many
/// there are.
pub(crate) fn explore<M: Model>(name: &str, start: M, assert_settles: fn(M)) -> usize {
    let look = |state: &M, _| {
        assert_settles(state.clone());
        true
    };
    let states = visit(name, start, look, |_, _| {}).states();
    println!("{name}: {states} states");
    states
}

/// Visits every reachable state once. States have numbers from 0. `look` is called with each, and says whether to go on
/// from there; `edge` with each step from one state to another.
pub(crate) fn visit<M: Model>(
    name: &str,
    start: M,
    mut look: impl FnMut(&M, u32) -> bool,
    mut edge: impl FnMut(u32, u32),
) -> Origins<M::Step> {
    let mut numbers = HashMap::from([(start.fingerprint(), 0)]);
    let mut origins = Origins::new();
    let mut stack = Vec::new();
    if look(&start, 0) {
        stack.push((start, 0));
    }
    while let Some((state, from)) = stack.pop() {
        for step in state.steps() {
            let mut next = state.clone();
            let check = AssertUnwindSafe(|| {
                next.apply(step);
                let new = numbers.len() as u32;
                let number = *numbers.entry(next.fingerprint()).or_insert(new);
                let go_on = number == new && look(&next, number);
                (number, number == new, go_on)
            });
            let (number, new, go_on) = catch_unwind(check).unwrap_or_else(|panic| {
                origins.tell(name, from, step);
                resume_unwind(panic);
            });
            if new {
                origins.add(from, step);
            }
            if go_on {
                stack.push((next, number));
            }
            if number != from {
                edge(from, number);
            }
        }
    }
    origins
}

/// The messages of a network, which has no order, and how often it may still fail.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) messages: Vec<Message>,
    pub(crate) losses: u8,
    pub(crate) repeats: u8,
}

/// What a network may do with one of its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnTheWay {
    Deliver(usize),
    Repeat(usize),
    Lose(usize),
}

impl Network {
    pub(crate) const fn new(losses: u8, repeats: u8) -> Self {
        Self {
            messages: Vec::new(),
            losses,
            repeats,
        }
    }

    /// All that may happen to messages. Equal ones are not told apart.
    pub(crate) fn steps(&self) -> impl Iterator<Item = OnTheWay> + '_ {
        let first = move |i: &usize| !self.messages[..*i].contains(&self.messages[*i]);
        (0..self.messages.len()).filter(first).flat_map(move |i| {
            let repeat = (self.repeats > 0).then_some(OnTheWay::Repeat(i));
            let lose = (self.losses > 0).then_some(OnTheWay::Lose(i));
            [Some(OnTheWay::Deliver(i)), repeat, lose]
                .into_iter()
                .flatten()
        })
    }

    /// Lets it happen; returns the message that arrives.
    pub(crate) fn apply(&mut self, step: OnTheWay) -> Option<Message> {
        match step {
            OnTheWay::Deliver(i) => Some(self.messages.remove(i)),
            OnTheWay::Repeat(i) => {
                self.repeats -= 1;
                Some(self.messages[i].clone())
            }
            OnTheWay::Lose(i) => {
                self.losses -= 1;
                self.messages.remove(i);
                None
            }
        }
    }
}

impl Hash for Network {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let one = |message: &Message| {
            let mut hasher = SipHasher24::new();
            message.hash(&mut hasher);
            hasher.finish()
        };
        let mut all: Vec<u64> = self.messages.iter().map(one).collect();
        all.sort_unstable();
        (all, self.losses, self.repeats).hash(hasher);
    }
}

/// A message reaches a manager, as bytes.
pub(crate) fn receive(manager: &mut Manager, message: &Message) {
    let bytes = encoded(manager, message);
    manager.handle_datagram(0, &bytes).expect("of this job");
}

/// How each state was reached first: from which state, and by which step. States have numbers from 0.
pub(crate) struct Origins<S>(Vec<Option<(u32, S)>>);

impl<S: Copy + Debug> Origins<S> {
    /// With the first state.
    fn new() -> Self {
        Self(vec![None])
    }

    /// The next new state.
    fn add(&mut self, from: u32, step: S) {
        self.0.push(Some((from, step)));
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
    fn tell(&self, name: &str, state: u32, last: S) {
        let path = self.path_to(state);
        eprintln!("{name}: the schedule was {path:#?}, then {last:?}");
    }
}
