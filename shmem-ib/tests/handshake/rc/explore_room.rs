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

use std::collections::HashMap;
use std::hash::Hash;

use shmem_ib::connect::UdAddress;
use shmem_ib::connect::interface::{Action, Failure, Local};
use shmem_ib::connect::manager::{Identity, Manager, Timer, Usage};
use shmem_ib::connect::message::{Codec, MAX_LEN, Memory, Message, Segment};
use shmem_ib::connect::retry::RetryPolicy;
use shmem_ib::verbs::{Mtu, Qpn};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::explore::{Origins, unordered};
use crate::rc::fabric::{Delivery, Fabric};

const JOB_ID: [u8; 16] = [1; 16];
const JOB_KEY: [u8; 32] = [2; 32];
/// Nobody makes more queue pairs towards one peer: if generations grew for ever, the graph would
/// not be finite.
const MOST_GENERATIONS: u32 = 12;

/// How often each fault may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Budget {
    losses: u8,
    repeats: u8,
    /// With so many messages on their way no timer acts.
    crowd: u8,
}

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
        let way = self.manager.way(to)?;
        (!way.draining || entitled).then_some(way.qpn)
    }
}

#[derive(Clone)]
struct State {
    pes: Vec<Pe>,
    network: Vec<Message>,
    fabric: Fabric,
    budget: Budget,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The program goes on.
    Run(usize),
    /// Its operation is executed, or acknowledged, or fails.
    Network(usize),
    /// One thing that is due at an endpoint happens.
    Timeout(usize, Timer),
    Deliver(usize),
    Repeat(usize),
    Lose(usize),
}

impl State {
    fn new(cap: u32, programs: &[&[u32]], budget: Budget) -> Self {
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
            network: Vec::new(),
            fabric: Fabric::limited(cap),
            budget,
        }
    }

    /// Two states with the same fingerprint behave the same.
    fn fingerprint(&self) -> u128 {
        let mut hasher = SipHasher24::new();
        for pe in &self.pes {
            (&pe.manager, &pe.todo).hash(&mut hasher);
            (pe.op, pe.waits_for, &pe.peers).hash(&mut hasher);
        }
        (unordered(&self.network), &self.fabric, self.budget).hash(&mut hasher);
        hasher.finish128().as_u128()
    }

    fn is_good(&self) -> bool {
        self.pes
            .iter()
            .all(|pe| pe.todo.is_empty() && pe.op.is_none())
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (i, pe) in self.pes.iter().enumerate() {
            if self.can_run(pe) {
                steps.push(Step::Run(i));
            }
            if pe.op.is_some() {
                steps.push(Step::Network(i));
            }
            let due = self.due(pe).into_iter();
            steps.extend(due.map(|timer| Step::Timeout(i, timer)));
        }
        for i in 0..self.network.len() {
            steps.push(Step::Deliver(i));
            if self.budget.repeats > 0 {
                steps.push(Step::Repeat(i));
            }
            if self.budget.losses > 0 {
                steps.push(Step::Lose(i));
            }
        }
        steps
    }

    /// The timers of an endpoint that may act.
    fn due(&self, pe: &Pe) -> Vec<Timer> {
        if self.network.len() < self.budget.crowd.into() {
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

    fn apply(&mut self, step: Step) {
        match step {
            Step::Run(i) => self.run(i),
            Step::Network(i) => self.go_on(i),
            Step::Timeout(i, timer) => {
                self.pes[i].manager.fire(0, timer);
                self.act(i);
            }
            Step::Deliver(at) => {
                let message = self.network.swap_remove(at);
                self.deliver(&message);
            }
            Step::Repeat(at) => {
                self.budget.repeats -= 1;
                let message = self.network[at].clone();
                self.deliver(&message);
            }
            Step::Lose(at) => {
                self.budget.losses -= 1;
                self.network.swap_remove(at);
            }
        }
    }

    fn deliver(&mut self, message: &Message) {
        let mut buf = [0; MAX_LEN];
        let len = Codec::new(&JOB_ID, &JOB_KEY).encode(message, &mut buf);
        let i = message.dst_pe as usize;
        self.pes[i].manager.handle_datagram(0, &buf[..len]).unwrap();
        self.act(i);
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
        let Some(way) = pe.manager.way(to).filter(|way| way.draining && !busy) else {
            return false;
        };
        let qpn = way.qpn;
        pe.manager.drained(0, to, qpn);
        assert!(pe.manager.way(to).is_none(), "it is drained");
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
                if !self.network.contains(&message) {
                    self.network.push(message);
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
                let way = pe.manager.way(to).expect("it is open");
                self.fabric.open(me, way.qpn);
            }
            Action::Drain(qpn) => {
                let way = pe.manager.way(to).expect("it drains");
                assert!(way.qpn == qpn && way.draining);
                self.drain_if_idle(i, to);
                self.pes[i].manager.busy(0, to);
            }
            Action::Failed(Failure::Silence { .. }) => panic!("nobody is ever silent for so long"),
            other => panic!("PE {i} towards PE {to}: {other:?}"),
        }
    }
}

fn manager(pe: u32, n: usize, cap: u32) -> Manager {
    let identity = Identity {
        job_id: JOB_ID,
        job_key: &JOB_KEY,
        n_pes: n as u32,
    };
    let memory = Memory {
        segments: std::iter::once(Segment::default()).collect(),
        ..Memory::default()
    };
    let local = Local {
        pe,
        ud: address(pe),
        mtu: Mtu::M1024,
        max_rd_atomic: 1,
        memory: Some(memory),
        max_qps: cap,
        leaving: false,
        retry: RetryPolicy {
            initial: 0,
            max: 0,
            silence: u64::MAX,
            bye: 0,
        },
    };
    Manager::new(&identity, local, u64::from(pe) << 32 | 1)
}

fn address(pe: u32) -> UdAddress {
    UdAddress {
        udp_port: 1 + pe as u16,
        ..UdAddress::default()
    }
}

/// How large a graph is.
struct Explored {
    states: usize,
    /// States in which several timers of one endpoint may act, in any order.
    several_due: usize,
}

/// Builds the graph of all states.
fn explore(name: &str, start: State) -> Explored {
    let mut numbers = HashMap::from([(start.fingerprint(), 0u32)]);
    let mut origins = Origins::new();
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut good: Vec<u32> = Vec::new();
    let mut several_due = 0;
    let mut stack = vec![(start, 0u32)];
    while let Some((state, number)) = stack.pop() {
        if state.is_good() {
            good.push(number);
            continue;
        }
        several_due += usize::from(state.several_due());
        for step in state.steps() {
            let mut next = state.clone();
            let apply = std::panic::AssertUnwindSafe(|| next.apply(step));
            if let Err(panic) = std::panic::catch_unwind(apply) {
                origins.tell(name, number, step);
                std::panic::resume_unwind(panic);
            }
            let new = numbers.len() as u32;
            let to = *numbers.entry(next.fingerprint()).or_insert(new);
            if to == new {
                stack.push((next, origins.add(number, step)));
            }
            if to != number {
                edges.push((to, number));
            }
        }
    }
    println!(
        "{name}: {} states, {several_due} with several timers, {} ends, {} steps",
        origins.states(),
        good.len(),
        edges.len()
    );
    if let Some(stuck) = cannot_end(origins.states(), edges, good) {
        let path = origins.path_to(stuck);
        panic!("{name}: no way to the end after {path:#?}");
    }
    Explored {
        states: origins.states(),
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

const fn budget(losses: u8, repeats: u8, crowd: u8) -> Budget {
    Budget {
        losses,
        repeats,
        crowd,
    }
}

#[test]
fn two_endpoints_lose_three_messages() {
    for (name, cap, programs, budget) in [
        (
            "two, three losses, a repeat",
            0,
            [&[1][..], &[0]],
            budget(3, 1, 3),
        ),
        ("two, twice", 0, [&[1, 1], &[0, 0]], budget(2, 1, 2)),
        ("two, twice, one QP", 1, [&[1, 1], &[0, 0]], budget(3, 1, 2)),
    ] {
        assert!(explore(name, State::new(cap, &programs, budget)).states > 10_000);
    }
}

#[test]
#[ignore = "nightly: a search of ten seconds and more"]
fn three_endpoints_with_one_queue_pair_each() {
    for (name, programs, budget) in [
        ("one at two", [&[1, 2][..], &[], &[]], budget(3, 1, 3)),
        ("two at one", [&[2], &[2], &[]], budget(2, 1, 2)),
        ("a chain", [&[1], &[2], &[]], budget(2, 1, 3)),
        ("there and back", [&[1, 2], &[0], &[]], budget(2, 0, 2)),
    ] {
        assert!(explore(name, State::new(1, &programs, budget)).states > 1_000);
    }
}

/// Of one endpoint two things are due at a time: it asks a peer for a connection while it drains another.
#[test]
#[ignore = "nightly: a hundred thousand states"]
fn four_endpoints_with_two_queue_pairs_each() {
    let start = State::new(2, &[&[2], &[0], &[], &[0]], budget(1, 0, 3));
    let explored = explore("asks and drains", start);
    assert!(explored.states > 100_000 && explored.several_due > 1_000);
}

#[test]
#[ignore = "nightly: four hundred thousand states"]
fn a_circle_with_one_queue_pair_each() {
    let start = State::new(1, &[&[1], &[2], &[0]], budget(0, 0, 1));
    assert!(explore("a circle", start).states > 400_000);
}

#[test]
#[ignore = "nightly: a hundred thousand states"]
fn two_want_two_with_one_queue_pair_each() {
    let start = State::new(1, &[&[1, 2], &[2], &[]], budget(0, 0, 2));
    assert!(explore("two want two", start).states > 100_000);
}
