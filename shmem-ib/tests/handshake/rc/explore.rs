//! All schedules of two endpoints within small budgets: every order of deliveries, every loss
//! and repetition of messages, timeouts and impatience at any moment.
//!
//! From every state that is reached the network becomes kind, and then every connection that
//! is wanted must open, with both sides in agreement.

use std::hash::Hash;

use shmem_ib::connect::ConnectStats;
use shmem_ib::connect::handshake::{Handshake, Phase};
use shmem_ib::connect::interface::{Action, Actions, EventContext, Failure, Local};
use shmem_ib::connect::retry::RetryPolicy;
use shmem_ib::rng::Rng;
use shmem_ib::verbs::Qpn;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::explore::{Model, Network, OnTheWay, explore};
use crate::rc::fabric::{Delivery, Fabric};
use crate::world::{ALWAYS_DUE, address, local, memory};

/// How often each event that makes the state space infinite may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Budget {
    timeouts: u8,
    /// How often a side takes the other for dead, which may just be slow.
    give_ups: u8,
    /// RDMA operations.
    posts: u8,
    /// Sides that leave in order.
    leaves: u8,
}

#[derive(Clone)]
struct Side {
    ready: bool,
    wants: bool,
    /// The queue pair of an operation that is not acknowledged.
    busy: Option<Qpn>,
    leaving: bool,
    /// Its queue pairs are gone, and nobody reads its messages.
    gone: bool,
    /// Of the other side, until it is given up.
    silence: u64,
    machine: Handshake,
}

#[derive(Clone)]
struct State {
    sides: [Side; 2],
    network: Network,
    fabric: Fabric,
    budget: Budget,
    /// Whether the end is that everybody has left, rather than that all is connected.
    leaving_allowed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Connect(usize),
    Ready(usize),
    Timeout(usize),
    GiveUp(usize),
    Network(OnTheWay),
    Post(usize),
    Acknowledge(usize),
    Leave(usize),
    Go(usize),
}

impl State {
    fn new(ready: [bool; 2], budget: Budget, network: Network) -> Self {
        let side = |pe: usize| Side {
            ready: ready[pe],
            wants: false,
            busy: None,
            leaving: false,
            gone: false,
            silence: u64::MAX,
            machine: Handshake::new(1 - pe as u32),
        };
        let sides = [side(0), side(1)];
        Self {
            sides,
            network,
            fabric: Fabric::default(),
            budget,
            leaving_allowed: budget.leaves > 0,
        }
    }

    fn may_post(&self, pe: usize) -> bool {
        let side = &self.sides[pe];
        let usable = side.machine.route().is_some_and(|route| !route.left);
        usable && side.busy.is_none() && !side.leaving
    }

    fn due(&self, pe: usize) -> bool {
        !self.sides[pe].gone && self.sides[pe].machine.next_timeout(u64::MAX).is_some()
    }

    fn event(&mut self, pe: usize, event: impl FnOnce(&mut Handshake, &mut EventContext<'_>)) {
        let mut event = Some(event);
        self.with(pe, &mut |h, cx| event.take().expect("called once")(h, cx));
    }

    fn with(&mut self, pe: usize, event: &mut dyn FnMut(&mut Handshake, &mut EventContext<'_>)) {
        if self.sides[pe].gone {
            return;
        }
        let side = &mut self.sides[pe];
        let local = Local {
            max_rd_atomic: 4,
            memory: side.ready.then(|| memory(pe as u32)),
            leaving: side.leaving,
            retry: RetryPolicy {
                silence: side.silence,
                ..ALWAYS_DUE
            },
            ..local(pe as u32)
        };
        // A PSN that follows from the number of queue pairs made so far.
        let mut rng = Rng::new(self.fabric.made());
        let mut actions = Actions::new();
        let mut stats = ConnectStats::default();
        // Without a limit of queue pairs, tickets decide nothing.
        let mut clock = 0;
        let mut cx = EventContext {
            now: 0,
            local: &local,
            rng: &mut rng,
            actions: &mut actions,
            stats: &mut stats,
            clock: &mut clock,
            may_create: true,
        };
        event(&mut side.machine, &mut cx);
        for (peer, action) in actions {
            let me = pe as u32;
            assert_eq!(peer, 1 - me);
            match action {
                Action::Send { to, message } => {
                    assert_eq!(to, address(peer));
                    self.network.messages.push(message);
                }
                Action::CreateQp => {
                    let qpn = self.fabric.create(me, peer);
                    self.with(pe, &mut |h, cx| h.qp_created(cx, qpn));
                }
                Action::LinkQp { qpn, sq_psn, link } => self.fabric.link(me, qpn, sq_psn, &link),
                Action::ResetQp(qpn) => self.fabric.reset(me, qpn),
                Action::DestroyQp(qpn) => {
                    if self.fabric.destroy(me, qpn) {
                        self.sides[pe].busy = None;
                        // The wish was fulfilled once; whoever uses it next asks again.
                        self.sides[pe].wants = false;
                    }
                }
                Action::Opened { .. } => {
                    let route = self.sides[pe].machine.route().expect("it is open");
                    self.fabric.open(me, route.qpn);
                }
                Action::Failed(failure) => {
                    let left = failure == Failure::PeerLeft && self.sides[1 - pe].leaving;
                    assert!(left || self.sides[pe].silence == 0, "{failure:?}");
                    self.sides[pe].wants = false;
                }
                Action::PeerLeft { waits } => {
                    let other = &self.sides[1 - pe];
                    assert!(other.leaving && other.busy.is_none());
                    if waits && self.sides[pe].busy.is_some() {
                        self.with(pe, &mut |h, cx| h.busy(cx));
                    }
                }
                Action::Drain(_) => panic!("there is no limit"),
                Action::SegmentsAdded => panic!("there are no more"),
                Action::CreateTarget(_) | Action::DestroyTarget(_) => panic!("this is not XRC"),
            }
        }
    }

    /// Nothing is lost any more: everybody must be able to leave.
    fn assert_everybody_leaves(mut self) {
        for _ in 0..60 {
            let leaves = |s: &Side| !s.leaving && s.busy.is_none();
            let left = |s: &Side| s.leaving && !s.gone && s.machine.phase() != Phase::Parting;
            let find = |what: &dyn Fn(&Side) -> bool| (0..2).find(|pe| what(&self.sides[*pe]));
            if let Some(pe) = find(&|s| s.busy.is_some()) {
                self.apply(Step::Acknowledge(pe));
            } else if !self.network.messages.is_empty() {
                self.apply(Step::Network(OnTheWay::Deliver(0)));
            } else if let Some(pe) = find(&leaves) {
                self.apply(Step::Leave(pe));
            } else if let Some(pe) = find(&left) {
                self.apply(Step::Go(pe));
            } else {
                // Who is left has missed the BYE of one that is gone: it lingers.
                let Some(pe) = find(&|s| !s.gone) else { return };
                if self.sides[1 - pe].gone {
                    return;
                }
                self.apply(Step::Timeout(pe));
            }
        }
        panic!(
            "somebody stays: {:?} {:?}",
            self.sides[0].machine, self.sides[1].machine
        );
    }

    fn assert_settled(&self) {
        for pe in 0..2 {
            let (me, other) = (&self.sides[pe], &self.sides[1 - pe]);
            if me.wants {
                assert_eq!(me.machine.phase(), Phase::Open);
            }
            let Some((qpn, psn)) = me.machine.linked_to() else {
                continue;
            };
            if me.machine.phase() != Phase::Open {
                continue;
            }
            assert_eq!(other.machine.local_qp(), Some((qpn, psn)));
            let (my_qpn, my_psn) = me.machine.local_qp().expect("linked");
            assert_eq!(other.machine.linked_to(), Some((my_qpn, my_psn)));
        }
    }

    /// Everything wanted must open soon.
    fn assert_settles(mut self) {
        if self.leaving_allowed {
            return self.assert_everybody_leaves();
        }
        for pe in 0..2 {
            if !self.sides[pe].ready {
                self.apply(Step::Ready(pe));
            }
        }
        for _ in 0..40 {
            if !self.network.messages.is_empty() {
                self.apply(Step::Network(OnTheWay::Deliver(0)));
            } else if let Some(pe) = (0..2).find(|pe| self.due(*pe)) {
                self.apply(Step::Timeout(pe));
            } else {
                return self.assert_settled();
            }
        }
        panic!(
            "does not settle: {:?} {:?}",
            self.sides[0].machine, self.sides[1].machine
        );
    }
}

impl Model for State {
    type Step = Step;

    fn fingerprint(&self) -> u128 {
        let mut hasher = SipHasher24::new();
        for side in &self.sides {
            (side.ready, side.wants, &side.machine).hash(&mut hasher);
            (side.busy, side.leaving, side.gone).hash(&mut hasher);
        }
        (&self.network, &self.fabric, self.budget).hash(&mut hasher);
        hasher.finish128().as_u128()
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for pe in 0..2 {
            let side = &self.sides[pe];
            if side.gone {
                continue;
            }
            if !side.wants && !side.leaving {
                steps.push(Step::Connect(pe));
            }
            if !side.ready {
                steps.push(Step::Ready(pe));
            }
            if self.budget.timeouts > 0 && self.due(pe) {
                steps.push(Step::Timeout(pe));
            }
            if self.budget.give_ups > 0 && self.due(pe) {
                steps.push(Step::GiveUp(pe));
            }
            if self.budget.posts > 0 && self.may_post(pe) {
                steps.push(Step::Post(pe));
            }
            if side.busy.is_some() && !self.sides[1 - pe].gone {
                steps.push(Step::Acknowledge(pe));
            }
            if self.budget.leaves > 0 && !side.leaving && side.busy.is_none() {
                steps.push(Step::Leave(pe));
            }
            if side.leaving && side.machine.phase() != Phase::Parting {
                steps.push(Step::Go(pe));
            }
        }
        steps.extend(self.network.steps().map(Step::Network));
        steps
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Connect(pe) => {
                self.sides[pe].wants = true;
                self.event(pe, |h, cx| h.connect(cx, address(1 - pe as u32)));
            }
            Step::Ready(pe) => {
                self.sides[pe].ready = true;
                self.event(pe, Handshake::ready);
            }
            Step::Timeout(pe) => {
                self.budget.timeouts = self.budget.timeouts.saturating_sub(1);
                self.event(pe, Handshake::handle_timeout);
            }
            Step::GiveUp(pe) => {
                self.budget.give_ups -= 1;
                let patience = std::mem::take(&mut self.sides[pe].silence);
                self.event(pe, Handshake::handle_timeout);
                self.sides[pe].silence = patience;
            }
            Step::Network(step) => {
                if let Some(message) = self.network.apply(step) {
                    self.event(message.dst_pe as usize, |h, cx| {
                        h.handle_message(cx, message);
                    });
                }
            }
            Step::Post(pe) => {
                self.budget.posts -= 1;
                let route = self.sides[pe].machine.route();
                self.sides[pe].busy = route.map(|route| route.qpn);
            }
            Step::Acknowledge(pe) => {
                let qpn = self.sides[pe].busy.take().expect("it is under way");
                assert!(matches!(self.fabric.deliver(qpn), Delivery::To(..)));
            }
            Step::Leave(pe) => {
                self.budget.leaves = self.budget.leaves.saturating_sub(1);
                self.sides[pe].leaving = true;
                self.event(pe, Handshake::leave);
            }
            Step::Go(pe) => {
                // Who goes because its linger time is over is not in this model.
                assert!(
                    self.sides[1 - pe].busy.is_none(),
                    "PE {} waits in vain",
                    1 - pe
                );
                self.sides[pe].gone = true;
                self.fabric.crash(pe as u32);
            }
        }
    }
}

/// How often what may happen: timeouts, repeats, losses, and that a side gives up.
type Faults = (u8, u8, u8, u8);

/// Explores two sides that connect; returns how many states there are.
fn connecting(
    name: &str,
    ready: [bool; 2],
    (timeouts, repeats, losses, give_ups): Faults,
) -> usize {
    let budget = Budget {
        timeouts,
        give_ups,
        posts: 0,
        leaves: 0,
    };
    let start = State::new(ready, budget, Network::new(losses, repeats));
    explore(name, start, State::assert_settles)
}

#[test]
fn every_schedule_of_losses_repeats_and_timeouts() {
    assert!(connecting("both ready", [true, true], (3, 2, 2, 0)) > 1_000);
}

#[test]
fn every_schedule_with_slow_starters() {
    assert!(connecting("one slow", [true, false], (2, 1, 2, 0)) > 1_000);
    assert!(connecting("both slow", [false, false], (2, 1, 2, 0)) > 1_000);
}

#[test]
fn every_schedule_with_impatience() {
    for (name, faults) in [
        ("given up, and a timeout", (1, 0, 0, 1)),
        ("given up, and a repeat", (0, 1, 0, 1)),
        ("given up twice", (0, 0, 0, 2)),
    ] {
        assert!(connecting(name, [true, true], faults) > 1_000);
    }
}

#[test]
#[ignore = "nightly: a million states"]
fn every_schedule_with_impatience_and_faults() {
    for (name, faults, least) in [
        ("given up, and faults", (2, 1, 1, 1), 200_000),
        ("given up twice, and faults", (1, 1, 1, 2), 1_000_000),
    ] {
        assert!(connecting(name, [true, true], faults) > least);
    }
}

/// Both sides leave, at any moment, with operations under way and messages lost: whoever goes
/// leaves nobody behind who waits for an acknowledgement.
#[test]
#[ignore = "nightly: a search of ten seconds and more"]
fn every_schedule_of_leaving() {
    for (name, ready, (timeouts, repeats, losses)) in [
        ("leaving with a loss", [true, true], (1, 0, 1)),
        ("leaving with a repeat", [true, true], (0, 1, 0)),
        ("leaving before all have started", [true, false], (0, 0, 1)),
    ] {
        let budget = Budget {
            timeouts,
            give_ups: 0,
            posts: 2,
            leaves: 2,
        };
        let start = State::new(ready, budget, Network::new(losses, repeats));
        assert!(explore(name, start, State::assert_settles) > 1_000);
    }
}
