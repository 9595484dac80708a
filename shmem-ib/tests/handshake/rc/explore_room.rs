//! All schedules of a few endpoints that have too few queue pairs: every order of deliveries,
//! timeouts, threads and RDMA operations, with some messages lost or repeated.
//!
//! The whole graph of states is built. Safety is checked at every step: queue pairs agree, none is
//! destroyed under an operation, none is executed twice, nobody has more queue pairs than allowed.
//! Liveness is a property of the graph: from every state one is reached in which all programs have
//! ended. In a finite graph this excludes livelock, too: whoever goes round in circles passes the
//! way out infinitely often, and takes it as soon as deliveries are not arranged to prevent just
//! that.
//!
//! Timeouts are not limited in number. To keep the graph finite, a message that is on its way is
//! not sent again, timers act only while few messages are on their way, and the clock stands
//! still, with all timers due.

use std::hash::Hash;

use shmem_ib::connect::interface::{Action, Failure, Local};
use shmem_ib::connect::manager::{Manager, Timer, Usage};
use shmem_ib::verbs::Qpn;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::explore::{Model, Network, OnTheWay, receive, visit};
use crate::rc::fabric::{Delivery, Fabric};
use crate::world::{ALWAYS_DUE, address, identity, local, memory};

/// Nobody makes more queue pairs towards one peer: if generations grew for ever, the graph would
/// not be finite.
const MOST_GENERATIONS: u32 = 12;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Posted,
    Executed,
}

/// The operation that a program waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Op {
    to: u32,
    qpn: Qpn,
    stage: Stage,
}

/// What the driver counts of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Peer {
    waiters: u32,
    entitled: u32,
    made: u32,
}

#[derive(Clone)]
struct Pe {
    manager: Manager,
    /// Whom the program uses, the last first.
    todo: Vec<u32>,
    op: Option<Op>,
    waits_for: Option<u32>,
    peers: Vec<Peer>,
}

impl Pe {
    /// The queue pair over which the program may begin an operation towards `to`.
    fn usable(&self, to: u32) -> Option<Qpn> {
        let entitled = self.waits_for.is_some() && self.peers[to as usize].entitled > 0;
        let route = self.manager.route(to)?;
        (!route.draining || entitled).then_some(route.qpn)
    }
}

#[derive(Clone)]
struct State {
    pes: Vec<Pe>,
    network: Network,
    fabric: Fabric,
    /// With so many messages on their way no timer acts.
    crowd: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The program goes on.
    Run(usize),
    /// Its operation is executed, or acknowledged, or fails.
    Operation(usize),
    /// One thing that is due at an endpoint happens.
    Timeout(usize, Timer),
    Network(OnTheWay),
}

impl State {
    fn new(cap: u32, programs: &[&[u32]], (losses, repeats, crowd): Budget) -> Self {
        let n = programs.len();
        let pes = (0u32..).zip(programs).map(|(pe, program)| Pe {
            manager: manager(pe, n, cap),
            todo: program.iter().rev().copied().collect(),
            op: None,
            waits_for: None,
            peers: vec![Peer::default(); n],
        });
        Self {
            pes: pes.collect(),
            network: Network::new(losses, repeats),
            fabric: Fabric::limited(cap),
            crowd,
        }
    }

    fn is_good(&self) -> bool {
        self.pes
            .iter()
            .all(|pe| pe.todo.is_empty() && pe.op.is_none())
    }

    /// The timers of an endpoint that may act.
    fn due(&self, pe: &Pe) -> Vec<Timer> {
        if self.network.messages.len() < self.crowd {
            pe.manager.due()
        } else {
            Vec::new()
        }
    }

    fn several_due(&self) -> bool {
        self.pes.iter().any(|pe| self.due(pe).len() > 1)
    }

    fn can_run(&self, pe: &Pe) -> bool {
        let Some(to) = pe.todo.last() else {
            return false;
        };
        pe.op.is_none() && (pe.usable(*to).is_some() || !pe.manager.is_wanted(*to))
    }

    fn run(&mut self, i: usize) {
        let pe = &mut self.pes[i];
        let to = *pe.todo.last().expect("it can run");
        let usable = pe.usable(to);
        let peer = &mut pe.peers[to as usize];
        match usable {
            Some(qpn) => {
                if pe.waits_for.take().is_some() {
                    peer.waiters -= 1;
                    peer.entitled = peer.entitled.saturating_sub(1).min(peer.waiters);
                    pe.manager.usage_changed();
                }
                pe.todo.pop();
                pe.op = Some(Op {
                    to,
                    qpn,
                    stage: Stage::Posted,
                });
            }
            None => {
                if pe.waits_for.replace(to).is_none() {
                    peer.waiters += 1;
                }
                pe.manager.connect(0, to, to, address(to));
            }
        }
        self.act(i);
    }

    fn go_on(&mut self, i: usize) {
        let op = self.pes[i].op.as_mut().expect("it is under way");
        if op.stage == Stage::Posted {
            match self.fabric.deliver(op.qpn) {
                Delivery::To(owner, _) => {
                    assert_eq!(owner, op.to);
                    op.stage = Stage::Executed;
                    return;
                }
                Delivery::NoReceiver => {
                    panic!("PE {i} uses a queue pair whose other end is gone")
                }
                Delivery::SenderGone => panic!("the operation of PE {i} is lost"),
            }
        }
        self.pes[i].op = None;
        self.act(i);
    }

    /// A drain that may have come to its end; returns whether it has.
    fn drain_if_idle(&mut self, i: usize, to: u32) -> bool {
        let pe = &mut self.pes[i];
        let busy = pe.op.is_some_and(|op| op.to == to) || pe.peers[to as usize].entitled > 0;
        let Some(route) = pe.manager.route(to).filter(|route| route.draining && !busy) else {
            return false;
        };
        let qpn = route.qpn;
        pe.manager.drained(0, to, qpn);
        assert!(pe.manager.route(to).is_none(), "it is drained");
        true
    }

    fn act(&mut self, i: usize) {
        loop {
            while let Some((to, action)) = self.pes[i].manager.poll_action() {
                self.execute(i, to, action);
            }
            let mut all = 0..self.pes.len() as u32;
            if all.any(|to| self.drain_if_idle(i, to)) {
                continue;
            }
            let Pe {
                manager, peers, op, ..
            } = &mut self.pes[i];
            if !manager.is_short() {
                return;
            }
            manager.make_room(0, |to| Usage {
                stamp: 0,
                busy: op.is_some_and(|op| op.to == to),
                pinned: peers[to as usize].entitled > 0,
            });
        }
    }

    fn execute(&mut self, i: usize, to: u32, action: Action) {
        let me = i as u32;
        let pe = &mut self.pes[i];
        let peer = &mut pe.peers[to as usize];
        match action {
            Action::Send { to: at, message } => {
                assert_eq!(at, address(to));
                if !self.network.messages.contains(&message) {
                    self.network.messages.push(message);
                }
            }
            Action::CreateQp => {
                peer.made += 1;
                assert!(peer.made <= MOST_GENERATIONS, "no end of queue pairs");
                let number = (me * 16 + to) * 16 + peer.made;
                let qpn = self.fabric.create_numbered(me, to, number);
                pe.manager.qp_created(0, to, qpn);
            }
            Action::LinkQp { qpn, sq_psn, link } => self.fabric.link(me, qpn, sq_psn, &link),
            Action::ResetQp(qpn) => self.fabric.reset(me, qpn),
            Action::DestroyQp(qpn) => {
                self.fabric.destroy(me, qpn);
                assert!(
                    pe.op.is_none_or(|op| op.qpn != qpn),
                    "a queue pair of PE {i} is destroyed under its operation"
                );
            }
            Action::Opened { .. } => {
                peer.entitled = peer.waiters;
                let route = pe.manager.route(to).expect("it is open");
                self.fabric.open(me, route.qpn);
            }
            Action::Drain(qpn) => {
                let route = pe.manager.route(to).expect("it drains");
                assert!(route.qpn == qpn && route.draining);
                self.drain_if_idle(i, to);
                self.pes[i].manager.busy(0, to);
            }
            Action::Failed(Failure::Silence { .. }) => panic!("nobody is ever silent for so long"),
            other => panic!("PE {i} towards PE {to}: {other:?}"),
        }
    }
}

impl Model for State {
    type Step = Step;

    fn fingerprint(&self) -> u128 {
        let mut hasher = SipHasher24::new();
        for pe in &self.pes {
            (&pe.manager, &pe.todo).hash(&mut hasher);
            (pe.op, pe.waits_for, &pe.peers).hash(&mut hasher);
        }
        (&self.network, &self.fabric).hash(&mut hasher);
        hasher.finish128().as_u128()
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (i, pe) in self.pes.iter().enumerate() {
            if self.can_run(pe) {
                steps.push(Step::Run(i));
            }
            if pe.op.is_some() {
                steps.push(Step::Operation(i));
            }
            let due = self.due(pe).into_iter();
            steps.extend(due.map(|timer| Step::Timeout(i, timer)));
        }
        steps.extend(self.network.steps().map(Step::Network));
        steps
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Run(i) => self.run(i),
            Step::Operation(i) => self.go_on(i),
            Step::Timeout(i, timer) => {
                self.pes[i].manager.fire(0, timer);
                self.act(i);
            }
            Step::Network(step) => {
                if let Some(message) = self.network.apply(step) {
                    let i = message.dst_pe as usize;
                    receive(&mut self.pes[i].manager, &message);
                    self.act(i);
                }
            }
        }
    }
}

fn manager(pe: u32, n: usize, cap: u32) -> Manager {
    let local = Local {
        memory: Some(memory(pe)),
        max_qps: cap,
        retry: ALWAYS_DUE,
        ..local(pe)
    };
    Manager::new(&identity(n as u32), local, u64::from(pe) << 32 | 1)
}

/// How large a graph is.
struct Explored {
    states: usize,
    /// States in which several timers of one endpoint may act, in any order.
    several_due: usize,
}

/// Builds the graph of all states, up to those in which all programs have ended.
fn explore(name: &str, start: State) -> Explored {
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut good: Vec<u32> = Vec::new();
    let mut several_due = 0;
    let look = |state: &State, number| {
        several_due += usize::from(!state.is_good() && state.several_due());
        good.extend(state.is_good().then_some(number));
        !state.is_good()
    };
    let origins = visit(name, start, look, |from, to| edges.push((to, from)));
    let states = origins.states();
    println!(
        "{name}: {states} states, {several_due} with several timers, {} ends, {} steps",
        good.len(),
        edges.len()
    );
    if let Some(stuck) = cannot_end(states, edges, good) {
        let path = origins.path_to(stuck);
        panic!("{name}: no way to the end after {path:#?}");
    }
    Explored {
        states,
        several_due,
    }
}

/// A state from which no good one is reached. `edges` lead backwards.
fn cannot_end(states: usize, mut edges: Vec<(u32, u32)>, good: Vec<u32>) -> Option<u32> {
    edges.sort_unstable();
    let mut ends = vec![false; states];
    let mut todo = good;
    todo.iter().for_each(|state| ends[*state as usize] = true);
    while let Some(state) = todo.pop() {
        let first = edges.partition_point(|(to, _)| *to < state);
        for (_, from) in edges[first..].iter().take_while(|(to, _)| *to == state) {
            if !std::mem::replace(&mut ends[*from as usize], true) {
                todo.push(*from);
            }
        }
    }
    (0u32..)
        .zip(ends)
        .find(|(_, ends)| !ends)
        .map(|(state, _)| state)
}

/// How many messages may be lost and repeated, and how many on their way keep timers from acting.
type Budget = (u8, u8, usize);

#[test]
fn two_endpoints_lose_three_messages() {
    for (name, cap, programs, budget) in [
        (
            "two, three losses, a repeat",
            0,
            [&[1][..], &[0]],
            (3, 1, 3),
        ),
        ("two, twice", 0, [&[1, 1], &[0, 0]], (2, 1, 2)),
        ("two, twice, one QP", 1, [&[1, 1], &[0, 0]], (3, 1, 2)),
    ] {
        assert!(explore(name, State::new(cap, &programs, budget)).states > 10_000);
    }
}

#[test]
#[ignore = "nightly: a search of ten seconds and more"]
fn three_endpoints_with_one_queue_pair_each() {
    for (name, programs, budget) in [
        ("one at two", [&[1, 2][..], &[], &[]], (3, 1, 3)),
        ("two at one", [&[2], &[2], &[]], (2, 1, 2)),
        ("a chain", [&[1], &[2], &[]], (2, 1, 3)),
        ("there and back", [&[1, 2], &[0], &[]], (2, 0, 2)),
    ] {
        assert!(explore(name, State::new(1, &programs, budget)).states > 1_000);
    }
}

/// Of one endpoint two things are due at a time: it asks a peer for a connection while it drains another.
#[test]
#[ignore = "nightly: a hundred thousand states"]
fn four_endpoints_with_two_queue_pairs_each() {
    let start = State::new(2, &[&[2], &[0], &[], &[0]], (1, 0, 3));
    let explored = explore("asks and drains", start);
    assert!(explored.states > 100_000 && explored.several_due > 1_000);
}

#[test]
#[ignore = "nightly: four hundred thousand states"]
fn a_circle_with_one_queue_pair_each() {
    let start = State::new(1, &[&[1], &[2], &[0]], (0, 0, 1));
    assert!(explore("a circle", start).states > 400_000);
}

#[test]
#[ignore = "nightly: a hundred thousand states"]
fn two_want_two_with_one_queue_pair_each() {
    let start = State::new(1, &[&[1, 2], &[2], &[]], (0, 0, 2));
    assert!(explore("two want two", start).states > 100_000);
}
