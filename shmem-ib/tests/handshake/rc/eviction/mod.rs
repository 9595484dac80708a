//! Fewer queue pairs than peers, in random networks: every operation is executed exactly once
//! whatever makes room for what, and every program comes to its end. Everything follows from one
//! seed.
//!
//! A queue pair is modelled as what RC is: it executes operations in order and repeats them until
//! they are acknowledged, as long as both ends exist, and loses all that is unfinished when it is
//! destroyed. The driver here keeps the same books as the endpoint's: open, draining, threads that
//! wait, operations posted and completed.
//!
//! Besides losing, repeating and reordering datagrams, the network is cut between some endpoints,
//! one way or both ways, and heals; processes stop for seconds, or die; and each clock has its own zero
//! and speed.

mod process;

use std::collections::{BTreeMap, VecDeque};

use shmem_ib::connect::interface::Local;
use shmem_ib::connect::manager::{Identity, Manager};
use shmem_ib::connect::message::{Memory, Segment};
use shmem_ib::rng::Rng;
use shmem_ib::verbs::{Qpn, Rkey};

use crate::rc::fabric::Fabric;
use crate::world::{Faults, MS, Next, Timeline, US, identity, local, totals};

/// Faults happen until then.
const HEAL: u64 = 4_000 * MS;
/// After so long an operation without acknowledgement fails.
const GIVE_UP: u64 = 34_000 * MS;
const END: u64 = 600_000 * MS;

totals! {
    /// Sums over all runs.
    sum {
        ops,
        /// Operations that failed, since their target had crashed.
        failed = "failed operation",
        opened,
        evictions = "eviction",
        evictions_by_peer = "eviction by the peer",
        yields = "yield",
        queued = "queued request",
        reconnects = "reconnection",
        deferred = "deferred drain",
        drains,
        crashes = "crash",
        stops = "stop",
        cut = "cut connection",
        lost = "loss",
        /// First contacts that failed, since the peer had died.
        failed_contacts = "failed contact",
        segment_updates = "segment update",
    }
    most {
        /// Until all programs had ended.
        took_ms,
    }
}

impl Totals {
    pub(crate) fn assert_that_it_took_at_most_ms(&self, most: u64) {
        assert!(self.took_ms <= most, "{} ms", self.took_ms);
    }

    fn count(&mut self, manager: &Manager) {
        let s = manager.stats();
        self.opened += s.opened;
        self.evictions += s.evictions;
        self.evictions_by_peer += s.evictions_by_peer;
        self.yields += s.yields;
        self.queued += s.requests_queued;
        self.reconnects += s.reconnects;
        self.deferred += s.drains_deferred;
        self.drains += s.drains_sent;
        self.segment_updates += s.segments_received;
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Datagram {
        src: u32,
        dst: u32,
        bytes: Vec<u8>,
    },
    /// A thread looks whether it can go on.
    Run {
        pe: u32,
        thread: usize,
    },
    Execute {
        op: usize,
    },
    Complete {
        op: usize,
    },
    GiveUp {
        op: usize,
    },
    Crash {
        pe: u32,
    },
    Segments {
        pe: u32,
    },
    /// A process stands still until some time.
    Stop {
        pe: u32,
        until: u64,
    },
    /// Nothing happens, but somebody who stood still goes on.
    Wake {
        pe: u32,
    },
}

/// One RDMA operation.
#[derive(Debug)]
struct Op {
    from: u32,
    to: u32,
    qpn: Qpn,
    thread: usize,
    executed: u32,
    done: bool,
}

#[derive(Debug, Default)]
struct Thread {
    todo: VecDeque<u32>,
    /// Operations of the present batch that have not ended.
    pending: u32,
    waits_for: Option<u32>,
}

/// What the driver counts of a peer.
#[derive(Debug, Default)]
struct Peer {
    waiters: u32,
    entitled: u32,
    posted: u64,
    completed: u64,
    used: u64,
    /// Time of the last execution, and of the last completion, on the open queue pair.
    last_execution: u64,
    last_completion: u64,
    /// Of how many segments the driver was told.
    told: usize,
}

struct Pe {
    /// `None` if it is dead.
    manager: Option<Manager>,
    threads: Vec<Thread>,
    peers: BTreeMap<u32, Peer>,
    posts: u64,
    stopped_until: u64,
    clock_zero: u64,
    /// Parts per million by which its clock is fast or slow.
    drift: i64,
    segments: u8,
}

impl Pe {
    fn clock(&self, now: u64) -> u64 {
        let drift = i128::from(now) * i128::from(self.drift) / 1_000_000;
        (i128::from(self.clock_zero) + i128::from(now) + drift) as u64
    }

    /// When its clock will show `local`.
    fn real(&self, local: u64) -> u64 {
        let passed = u128::from(local.saturating_sub(self.clock_zero));
        (passed * 1_000_000).div_ceil((1_000_000 + self.drift) as u128) as u64 + 1
    }
}

/// A way along which nothing arrives for some time.
#[derive(Debug)]
struct Cut {
    from: u32,
    to: u32,
    begin: u64,
    end: u64,
}

pub(crate) struct World {
    rng: Rng,
    time: Timeline<Event>,
    pes: Vec<Pe>,
    ops: Vec<Op>,
    fabric: Fabric,
    identity: Identity,
    cap: u32,
    cuts: Vec<Cut>,
    faults: Faults,
    rc_delay: u64,
    /// When the last operation ended.
    last_end: u64,
    totals: Totals,
}

impl World {
    pub(crate) fn new(seed: u64, verbose: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0xe71c_7104);
        let n = 2 + rng.below(5) as u32;
        let cap = rng.below(4) as u32;
        let mut world = Self::bare(rng, n, cap, verbose);
        let rng = &mut world.rng;
        world.faults.loss_ppm = [0, 0, 50_000, 300_000][rng.below(4) as usize];
        world.faults.repeat_ppm = [0, 100_000][rng.below(2) as usize];
        world.faults.max_delay = [20 * US, MS, 30 * MS][rng.below(3) as usize];
        world.rc_delay = [10 * US, MS, 100 * MS][rng.below(3) as usize];
        let skewed = rng.below(2) == 0;
        for pe in &mut world.pes {
            if skewed {
                pe.clock_zero = rng.below(1 << 40);
                pe.drift = rng.below(200_001) as i64 - 100_000;
            }
        }
        let threads = 1 + rng.below(2) as usize;
        let most = 1 + rng.below(8);
        for pe in 0..n {
            for _ in 0..threads {
                let mut todo = VecDeque::new();
                for _ in 0..world.rng.below(most + 1) {
                    let other = (pe + 1 + world.rng.below(u64::from(n) - 1) as u32) % n;
                    todo.push_back(other);
                }
                world.pes[pe as usize].threads.push(Thread {
                    todo,
                    ..Thread::default()
                });
            }
        }
        world.plan_faults(n);
        world.start_all();
        world
    }

    /// Everybody uses everybody, with few queue pairs.
    pub(crate) fn storm(seed: u64, n: u32, cap: u32) -> Self {
        let rng = Rng::new(seed ^ 0x5702_0000);
        let mut world = Self::bare(rng, n, cap, false);
        world.faults.loss_ppm = [0, 50_000][(seed % 2) as usize];
        for pe in 0..n {
            let mut todo: Vec<u32> = (0..n).filter(|to| *to != pe).collect();
            for i in (1..todo.len()).rev() {
                todo.swap(i, world.rng.below(i as u64 + 1) as usize);
            }
            world.pes[pe as usize].threads.push(Thread {
                todo: todo.into(),
                ..Thread::default()
            });
        }
        world.start_all();
        world
    }

    fn bare(rng: Rng, n: u32, cap: u32, verbose: bool) -> Self {
        let pe = || Pe {
            manager: None,
            threads: Vec::new(),
            peers: BTreeMap::new(),
            posts: 0,
            stopped_until: 0,
            clock_zero: 0,
            drift: 0,
            segments: 0,
        };
        Self {
            rng,
            time: Timeline::new(verbose),
            pes: (0..n).map(|_| pe()).collect(),
            ops: Vec::new(),
            fabric: Fabric::limited(cap),
            identity: identity(n),
            cap,
            cuts: Vec::new(),
            faults: Faults {
                min_delay: 1,
                max_delay: 50 * US,
                ..Faults::default()
            },
            rc_delay: 20 * US,
            last_end: 0,
            totals: Totals::default(),
        }
    }

    fn plan_faults(&mut self, n: u32) {
        if self.rng.below(3) == 0 {
            for _ in 0..=self.rng.below(3) {
                let from = self.rng.below(n.into()) as u32;
                let to = (from + 1 + self.rng.below(u64::from(n) - 1) as u32) % n;
                let begin = self.rng.below(HEAL / 2);
                let end = begin + self.rng.below(HEAL / 2);
                self.cuts.push(Cut {
                    from,
                    to,
                    begin,
                    end,
                });
                if self.rng.below(2) == 0 {
                    self.cuts.push(Cut {
                        from: to,
                        to: from,
                        begin,
                        end,
                    });
                }
            }
        }
        if self.rng.below(4) == 0 {
            let pe = self.rng.below(n.into()) as u32;
            let at = self.rng.below(100 * MS);
            self.time.at(at, Event::Crash { pe });
        }
        for pe in 0..n {
            if self.rng.below(8) == 0 {
                let at = self.rng.below(50 * MS);
                let until = at + self.rng.below(3_000 * MS);
                self.time.at(at, Event::Stop { pe, until });
                self.totals.stops += 1;
                self.time.at(until, Event::Wake { pe });
            }
            if self.rng.below(4) == 0 {
                for _ in 0..=self.rng.below(3) {
                    let at = self.rng.below(200 * MS);
                    self.time.at(at, Event::Segments { pe });
                }
            }
        }
    }

    fn start_all(&mut self) {
        for pe in 0..self.pes.len() as u32 {
            self.start(pe);
        }
    }

    fn start(&mut self, pe: u32) {
        let seed = self.rng.next_u64();
        let me = &mut self.pes[pe as usize];
        let local = Local {
            max_qps: self.cap,
            ..local(pe)
        };
        me.manager = Some(Manager::new(&self.identity, local, seed));
        for thread in 0..self.pes[pe as usize].threads.len() {
            let at = self.time.now + self.rng.below(5 * MS);
            self.time.at(at, Event::Run { pe, thread });
        }
        let ready = self.time.now + [0, 0, 100 * MS][self.rng.below(3) as usize];
        self.time.at(ready, Event::Segments { pe });
    }

    /// When the way from `from` to `to` is open again, if it is cut.
    fn cut_until(&self, from: u32, to: u32) -> Option<u64> {
        let here = |c: &&Cut| c.from == from && c.to == to && c.begin <= self.time.now;
        let ends = self.cuts.iter().filter(here).map(|c| c.end);
        ends.max().filter(|end| self.time.now < *end)
    }

    pub(crate) fn run(mut self, totals: &mut Totals) {
        loop {
            let now = self.time.now;
            let timers = self.pes.iter().enumerate().filter_map(|(i, pe)| {
                let local = pe.manager.as_ref()?.next_timeout()?;
                Some((pe.real(local).max(pe.stopped_until).max(now), i))
            });
            match self.time.next(timers, u64::MAX) {
                None => break,
                Some(Next::Timer(_)) if self.is_over() => break,
                Some(Next::Timer(i)) => {
                    let clock = self.pes[i].clock(self.time.now);
                    if let Some(manager) = &mut self.pes[i].manager {
                        manager.handle_timeout(clock);
                    }
                    self.act(i as u32);
                }
                Some(Next::Event(event)) => self.handle(event),
            }
            assert!(self.time.now < END, "does not end: {}", self.describe());
        }
        self.check();
        self.add_to(totals);
    }

    /// Nothing is left but the timers of those who tell peers that do not need it.
    fn is_over(&self) -> bool {
        !self.time.has_events()
            && self.pes.iter().filter(|pe| pe.manager.is_some()).all(|pe| {
                let mut threads = pe.threads.iter();
                threads.all(|t| t.todo.is_empty() && t.pending == 0)
            })
            && self.pes_that_know_too_little().is_none()
    }

    /// Puts an event off while the process that it is for stands still.
    fn stopped(&mut self, pe: u32, event: Event) -> Option<Event> {
        let until = self.pes[pe as usize].stopped_until;
        if until <= self.time.now {
            return Some(event);
        }
        self.time.at(until, event);
        None
    }

    fn handle(&mut self, event: Event) {
        let who = match &event {
            Event::Datagram { dst, .. } => *dst,
            Event::Run { pe, .. }
            | Event::Crash { pe }
            | Event::Wake { pe }
            | Event::Stop { pe, .. }
            | Event::Segments { pe } => *pe,
            Event::Execute { op } => self.ops[*op].to,
            Event::Complete { op } | Event::GiveUp { op } => self.ops[*op].from,
        };
        let Some(event) = self.stopped(who, event) else {
            return;
        };
        let now = self.time.now;
        let clock = self.pes[who as usize].clock(now);
        match event {
            Event::Datagram { src, dst, bytes } => {
                if self.cut_until(src, dst).is_some() {
                    self.totals.cut += 1;
                } else if let Some(manager) = &mut self.pes[dst as usize].manager {
                    manager.handle_datagram(clock, &bytes).unwrap();
                }
            }
            Event::Run { pe, thread } => {
                if self.is_up(pe) {
                    self.run_thread(pe, thread);
                }
            }
            Event::Execute { op } => return self.execute(op),
            Event::Complete { op } => {
                let Op { from, to, .. } = self.ops[op];
                match self.cut_until(to, from) {
                    Some(end) => self.time.at(end + self.rc_delay, Event::Complete { op }),
                    None => self.finish(op, true),
                }
            }
            Event::GiveUp { op } => {
                let to = self.ops[op].to;
                if !self.ops[op].done && self.is_up(who) {
                    assert!(
                        !self.is_up(to),
                        "op {op} was not acknowledged: {}",
                        self.describe()
                    );
                    self.finish(op, false);
                }
            }
            Event::Crash { pe } => {
                self.totals.crashes += 1;
                if let Some(manager) = self.pes[pe as usize].manager.take() {
                    self.totals.count(&manager);
                }
                self.fabric.crash(pe);
            }
            Event::Segments { pe } => {
                let me = &mut self.pes[pe as usize];
                me.segments += 1;
                let memory = memory(pe, me.segments);
                if let Some(manager) = &mut me.manager {
                    manager.ready(clock, memory);
                }
            }
            Event::Stop { pe, until } => self.pes[pe as usize].stopped_until = until,
            Event::Wake { .. } => {}
        }
        self.act(who);
    }

    fn transmit(&mut self, src: u32, dst: u32, bytes: &[u8]) {
        let faults = match self.time.now < HEAL {
            true => self.faults,
            false => self.faults.healed(),
        };
        let arrival = |bytes| Event::Datagram { src, dst, bytes };
        let copies = faults.send(&mut self.rng, &mut self.time, bytes, arrival);
        self.totals.lost += u64::from(copies == 0);
    }

    fn is_up(&self, pe: u32) -> bool {
        self.pes[pe as usize].manager.is_some()
    }

    /// A PE with an open connection, and the peer of whose memory it does not know all.
    fn pes_that_know_too_little(&self) -> Option<(u32, u32)> {
        let all = (0u32..)
            .zip(&self.pes)
            .flat_map(|(me, pe)| pe.peers.iter().map(move |(to, peer)| (me, pe, *to, peer)));
        let mut open = all.filter_map(|(me, pe, to, peer)| {
            let route = pe.manager.as_ref()?.route(to)?;
            (!route.draining && self.is_up(to)).then_some((me, to, peer.told, route.segments.len()))
        });
        let too_little = |(_, to, told, known): &(u32, u32, usize, usize)| {
            let there = usize::from(self.pes[*to as usize].segments);
            (*told, *known) != (there, there)
        };
        let found = open.find(too_little);
        found.map(|(me, to, ..)| (me, to))
    }

    fn check(&self) {
        for (number, pe) in self.pes.iter().enumerate() {
            for thread in pe.threads.iter().filter(|_| pe.manager.is_some()) {
                assert!(
                    thread.todo.is_empty() && thread.pending == 0,
                    "PE {number} waits for ever: {}",
                    self.describe()
                );
            }
        }
        let behind = self.pes_that_know_too_little();
        assert_eq!(behind, None, "old segments: {}", self.describe());
        for (number, op) in self.ops.iter().enumerate() {
            let died = !self.is_up(op.from) || !self.is_up(op.to);
            assert!(op.executed == 1 || died, "op {number}: {op:?}");
            assert!(op.done || died, "op {number}: {op:?}");
        }
    }

    fn add_to(mut self, totals: &mut Totals) {
        for manager in self.pes.iter().filter_map(|pe| pe.manager.as_ref()) {
            self.totals.count(manager);
        }
        self.totals.ops = self.ops.len() as u64;
        self.totals.took_ms = self.last_end / MS;
        totals.add(&self.totals);
    }

    fn describe(&self) -> String {
        let mut text = format!("at {} ms, at most {} QPs:", self.time.now / MS, self.cap);
        for (pe, me) in (0u32..).zip(&self.pes) {
            let Some(manager) = &me.manager else { continue };
            for (to, peer) in &me.peers {
                text += &format!(
                    "\n  {pe}->{to} {:?} {:?} wanted {} entitled {} of {}, {} of {}",
                    manager.phase(*to),
                    manager.local_qp(*to),
                    manager.is_wanted(*to),
                    peer.entitled,
                    peer.waiters,
                    peer.completed,
                    peer.posted,
                );
            }
            text += &format!("\n  {pe}: {:?}", me.threads);
        }
        text
    }
}

fn memory(pe: u32, segments: u8) -> Memory {
    let segment = |id| Segment {
        address: u64::from(id) << 32,
        size: 1 << 20,
        rkey: Rkey(pe),
        id,
    };
    Memory {
        segments: (0..segments).map(segment).collect(),
        ..Memory::default()
    }
}
