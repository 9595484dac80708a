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
//! one way or both ways, and heals; processes stop for seconds, or crash and come back with a new
//! incarnation; and each clock has its own zero and speed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use shmem_ib::connect::UdAddress;
use shmem_ib::connect::handshake::{Action, Local, RetryPolicy};
use shmem_ib::connect::manager::{Identity, Manager, Usage};
use shmem_ib::connect::message::{MAX_LEN, Segment, Segments};
use shmem_ib::rng::Rng;
use shmem_ib::verbs::{Mtu, Qpn, Rkey};

use crate::fabric::{Delivery, Fabric};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
/// Faults happen until then.
const HEAL: u64 = 4_000 * MS;
/// After so long an operation without acknowledgement fails.
const GIVE_UP: u64 = 34_000 * MS;
const END: u64 = 600_000 * MS;

/// Sums over all runs, to see that what should be simulated was.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    runs: u64,
    ops: u64,
    /// Operations that failed, since their target had crashed.
    failed: u64,
    opened: u64,
    evictions: u64,
    evictions_by_peer: u64,
    yields: u64,
    queued: u64,
    reconnects: u64,
    deferred: u64,
    drains: u64,
    crashes: u64,
    stops: u64,
    cut: u64,
    lost: u64,
    restarts_seen: u64,
    segment_updates: u64,
    longest_ms: u64,
}

impl Totals {
    pub(crate) fn assert_that_everything_happened(&self) {
        for (what, count) in [
            ("failed operation", self.failed),
            ("eviction", self.evictions),
            ("eviction by the peer", self.evictions_by_peer),
            ("yield", self.yields),
            ("queued request", self.queued),
            ("reconnection", self.reconnects),
            ("deferred drain", self.deferred),
            ("crash", self.crashes),
            ("stop", self.stops),
            ("cut connection", self.cut),
            ("loss", self.lost),
            ("restart", self.restarts_seen),
            ("segment update", self.segment_updates),
        ] {
            assert!(
                count > 0 || self.runs < 1000,
                "no {what}: the simulation is too kind"
            );
        }
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
        life: u64,
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
    Restart {
        pe: u32,
    },
    Segments {
        pe: u32,
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
    /// Incarnations of both ends of the connection.
    lives: (u64, u64),
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

/// What the driver knows of a peer.
#[derive(Debug, Default)]
struct Peer {
    open: Option<Qpn>,
    draining: bool,
    waiters: u32,
    entitled: u32,
    posted: u64,
    completed: u64,
    used: u64,
    /// Time of the last execution, and of the last completion, on the open queue pair.
    last_execution: u64,
    last_completion: u64,
    segments: Segments,
    acknowledge: Option<(u64, u32)>,
}

struct Pe {
    manager: Option<Manager>,
    life: u64,
    threads: Vec<Thread>,
    peers: BTreeMap<u32, Peer>,
    posts: u64,
    stopped_until: u64,
    clock_zero: u64,
    /// Parts per million by which its clock is fast or slow.
    drift: i64,
    segment_revision: u32,
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
    verbose: bool,
    now: u64,
    serial: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pes: Vec<Pe>,
    ops: Vec<Op>,
    fabric: Fabric,
    identity: Identity,
    cap: u32,
    cuts: Vec<Cut>,
    loss_ppm: u32,
    repeat_ppm: u32,
    max_delay: u64,
    rc_delay: u64,
    totals: Totals,
}

impl World {
    pub(crate) fn new(seed: u64, verbose: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0xe71c_7104);
        let n = 2 + rng.below(5) as u32;
        let cap = 1 + rng.below(3) as u32;
        let mut world = Self::bare(rng, n, cap, verbose);
        let rng = &mut world.rng;
        world.loss_ppm = [0, 0, 50_000, 300_000][rng.below(4) as usize];
        world.repeat_ppm = [0, 100_000][rng.below(2) as usize];
        world.max_delay = [20 * US, MS, 30 * MS][rng.below(3) as usize];
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
        world.loss_ppm = [0, 50_000][(seed % 2) as usize];
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
            life: 0,
            threads: Vec::new(),
            peers: BTreeMap::new(),
            posts: 0,
            stopped_until: 0,
            clock_zero: 0,
            drift: 0,
            segment_revision: 0,
        };
        Self {
            rng,
            verbose,
            now: 0,
            serial: 0,
            events: BinaryHeap::new(),
            pes: (0..n).map(|_| pe()).collect(),
            ops: Vec::new(),
            fabric: Fabric::limited(cap),
            identity: Identity {
                job_id: [1; 16],
                job_key: [2; 32],
                n_pes: n,
            },
            cap,
            cuts: Vec::new(),
            loss_ppm: 0,
            repeat_ppm: 0,
            max_delay: 50 * US,
            rc_delay: 20 * US,
            totals: Totals {
                runs: 1,
                ..Totals::default()
            },
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
            self.at(at, Event::Crash { pe });
            let back = at + self.rng.below(1_000 * MS);
            self.at(back, Event::Restart { pe });
        }
        for pe in 0..n {
            if self.rng.below(8) == 0 {
                // From some moment on; the event that finds it stopped is put off.
                let at = self.rng.below(50 * MS);
                let end = at + self.rng.below(3_000 * MS);
                self.pes[pe as usize].stopped_until = end;
                self.totals.stops += 1;
                self.at(end, Event::Wake { pe });
            }
            if self.rng.below(4) == 0 {
                for _ in 0..=self.rng.below(3) {
                    let at = self.rng.below(200 * MS);
                    self.at(at, Event::Segments { pe });
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
        me.life += 1;
        me.peers.clear();
        me.posts = 0;
        me.segment_revision = 0;
        let local = Local {
            pe,
            incarnation: me.life,
            ud: address(pe),
            mtu: Mtu::M1024,
            max_rd_atomic: 1,
            segments: None,
            revision: 0,
            max_qps: self.cap,
            leaving: false,
            retry: RetryPolicy::default(),
        };
        me.manager = Some(Manager::new(&self.identity, local, seed));
        let life = me.life;
        for thread in 0..me.threads.len() {
            me.threads[thread].pending = 0;
            me.threads[thread].waits_for = None;
        }
        for thread in 0..self.pes[pe as usize].threads.len() {
            let at = self.now + self.rng.below(5 * MS);
            self.at(at, Event::Run { pe, life, thread });
        }
        let ready = self.now + [0, 0, 100 * MS][self.rng.below(3) as usize];
        self.at(ready, Event::Segments { pe });
    }

    fn at(&mut self, time: u64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((time, self.serial, event)));
    }

    fn say(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>10.3} ms  {}", self.now as f64 / MS as f64, text());
        }
    }

    /// When the way from `from` to `to` is open again, if it is cut.
    fn cut_until(&self, from: u32, to: u32) -> Option<u64> {
        let here = |c: &&Cut| c.from == from && c.to == to && c.begin <= self.now;
        let ends = self.cuts.iter().filter(here).map(|c| c.end);
        ends.max().filter(|end| self.now < *end)
    }

    pub(crate) fn run(mut self, totals: &mut Totals) {
        loop {
            let timer = (0..self.pes.len())
                .filter_map(|i| {
                    let pe = &mut self.pes[i];
                    let local = pe.manager.as_mut()?.next_timeout()?;
                    Some((pe.real(local).max(pe.stopped_until).max(self.now), i))
                })
                .min();
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            match (timer, event) {
                (Some((at, i)), e) if e.is_none_or(|e| at < e) => {
                    self.now = at;
                    if self.is_over() {
                        break;
                    }
                    let clock = self.pes[i].clock(at);
                    if let Some(manager) = &mut self.pes[i].manager {
                        manager.handle_timeout(clock);
                    }
                    self.act(i as u32);
                }
                (_, Some(_)) => {
                    let Some(Reverse((at, _, event))) = self.events.pop() else {
                        break;
                    };
                    self.now = self.now.max(at);
                    self.handle(event);
                }
                (_, None) => break,
            }
            assert!(self.now < END, "does not end: {}", self.describe());
        }
        self.check();
        self.add_to(totals);
    }

    /// Nothing is left but the timers of those who tell peers that do not need it.
    fn is_over(&self) -> bool {
        self.events.is_empty()
            && self.pes.iter().all(|pe| {
                let known = pe.manager.as_ref().is_none_or(Manager::segments_known);
                known
                    && pe
                        .threads
                        .iter()
                        .all(|t| t.todo.is_empty() && t.pending == 0)
            })
    }

    /// Puts an event off while the process that it is for stands still.
    fn stopped(&mut self, pe: u32, event: Event) -> Option<Event> {
        let until = self.pes[pe as usize].stopped_until;
        if until <= self.now {
            return Some(event);
        }
        self.at(until, event);
        None
    }

    fn handle(&mut self, event: Event) {
        let who = match &event {
            Event::Datagram { dst, .. } => *dst,
            Event::Run { pe, .. }
            | Event::Crash { pe }
            | Event::Restart { pe }
            | Event::Wake { pe }
            | Event::Segments { pe } => *pe,
            Event::Execute { op } => self.ops[*op].to,
            Event::Complete { op } | Event::GiveUp { op } => self.ops[*op].from,
        };
        let Some(event) = self.stopped(who, event) else {
            return;
        };
        self.say(|| format!("{event:?}"));
        let now = self.now;
        let clock = self.pes[who as usize].clock(now);
        match event {
            Event::Datagram { src, dst, bytes } => {
                if self.cut_until(src, dst).is_some() {
                    self.totals.cut += 1;
                } else if let Some(manager) = &mut self.pes[dst as usize].manager {
                    manager.handle_datagram(clock, &bytes).unwrap();
                }
            }
            Event::Run { pe, life, thread } => {
                if self.pes[pe as usize].life == life {
                    self.run_thread(pe, thread);
                }
            }
            Event::Execute { op } => return self.execute(op),
            Event::Complete { op } => {
                let Op { from, to, .. } = self.ops[op];
                match self.cut_until(to, from) {
                    Some(end) => self.at(end + self.rc_delay, Event::Complete { op }),
                    None => self.finish(op, true),
                }
            }
            Event::GiveUp { op } => {
                let Op { to, lives, .. } = self.ops[op];
                if !self.ops[op].done && self.pes[who as usize].life == lives.0 {
                    assert_ne!(
                        self.pes[to as usize].life,
                        lives.1,
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
                // What was posted is not posted again; it may have been executed or not.
                self.pes[pe as usize].life += 1;
                self.fabric.crash(pe);
            }
            Event::Restart { pe } => self.start(pe),
            Event::Segments { pe } => {
                let me = &mut self.pes[pe as usize];
                me.segment_revision += 1;
                let segments = segments(pe, me.life, me.segment_revision);
                if let Some(manager) = &mut me.manager {
                    manager.ready(clock, segments);
                }
            }
            Event::Wake { .. } => {}
        }
        self.act(who);
    }

    fn execute(&mut self, op: usize) {
        let Op {
            from,
            to,
            lives,
            qpn,
            ..
        } = self.ops[op];
        if self.pes[from as usize].life != lives.0 {
            return; // nobody repeats it any more
        }
        if let Some(end) = self.cut_until(from, to) {
            return self.at(end + self.rc_delay, Event::Execute { op });
        }
        match self.fabric.deliver(qpn) {
            Delivery::To(owner, its) => {
                assert_eq!(owner, to);
                self.ops[op].executed += 1;
                assert_eq!(self.ops[op].executed, 1, "op {op} is executed twice");
                let clock = self.pes[to as usize].clock(self.now);
                let target = &mut self.pes[to as usize];
                target.posts += 1;
                target.peers.entry(from).or_default().used = target.posts;
                if self.rng.below(2) == 0
                    && let Some(manager) = &mut self.pes[to as usize].manager
                {
                    manager.rc_traffic_seen(clock, from, its);
                }
                let delay = self.rng.below(self.rc_delay) + 1;
                let peer = self.pes[from as usize].peers.entry(to).or_default();
                let at = (self.now + delay).max(peer.last_completion);
                peer.last_completion = at;
                self.at(at, Event::Complete { op });
                self.act(to);
            }
            Delivery::NoReceiver => {
                assert!(
                    self.pes[to as usize].life != lives.1,
                    "op {op} is under way to a queue pair that is gone: {}",
                    self.describe()
                );
            }
            Delivery::SenderGone => assert!(self.ops[op].done, "op {op} is lost"),
        }
    }

    /// An operation has ended, as far as its thread can know.
    fn finish(&mut self, op: usize, good: bool) {
        let Op {
            from,
            to,
            lives,
            thread,
            done,
            ..
        } = self.ops[op];
        if done || self.pes[from as usize].life != lives.0 {
            return;
        }
        self.ops[op].done = true;
        let me = &mut self.pes[from as usize];
        me.peers.entry(to).or_default().completed += 1;
        let t = &mut me.threads[thread];
        t.pending -= 1;
        if !good {
            // The program has lost its peer.
            t.todo.retain(|peer| *peer != to);
            self.totals.failed += 1;
        }
        if me.threads[thread].pending == 0 {
            self.wake(from, thread);
        }
        self.attend(from, to);
    }

    fn wake(&mut self, pe: u32, thread: usize) {
        let life = self.pes[pe as usize].life;
        let at = self.now + self.rng.below(300 * US);
        self.at(at, Event::Run { pe, life, thread });
    }

    /// A thread of the program: batches of operations, each to one peer, each awaited.
    fn run_thread(&mut self, pe: u32, thread: usize) {
        let now = self.now;
        let me = &mut self.pes[pe as usize];
        let clock = me.clock(now);
        let Some(manager) = &mut me.manager else {
            return;
        };
        let t = &mut me.threads[thread];
        if t.pending > 0 {
            return;
        }
        let Some(to) = t.todo.front().copied() else {
            return;
        };
        let peer = me.peers.entry(to).or_default();
        let waited = t.waits_for.is_some();
        let usable = peer
            .open
            .filter(|_| !peer.draining || waited && peer.entitled > 0);
        let Some(qpn) = usable else {
            if !waited {
                t.waits_for = Some(to);
                peer.waiters += 1;
            }
            if !manager.is_wanted(to) {
                manager.connect(clock, to, address(to));
            }
            return;
        };
        if t.waits_for.take().is_some() {
            peer.waiters -= 1;
            peer.entitled = peer.entitled.saturating_sub(1).min(peer.waiters);
            manager.usage_changed();
        }
        t.todo.pop_front();
        let (its_life, ..) = manager.linked_to(to).expect("it is open");
        for _ in 0..=self.rng.below(3) {
            let lives = (self.pes[pe as usize].life, its_life);
            let op = self.ops.len();
            self.ops.push(Op {
                from: pe,
                to,
                lives,
                qpn,
                thread,
                executed: 0,
                done: false,
            });
            let delay = self.rng.below(self.rc_delay) + 1;
            let me = &mut self.pes[pe as usize];
            me.threads[thread].pending += 1;
            me.posts += 1;
            let peer = me.peers.entry(to).or_default();
            peer.posted += 1;
            peer.used = me.posts;
            let at = (now + delay).max(peer.last_execution);
            peer.last_execution = at;
            self.at(at, Event::Execute { op });
            self.at(now + GIVE_UP, Event::GiveUp { op });
        }
    }

    /// Drains and acknowledgements that may have become possible.
    fn attend(&mut self, pe: u32, to: u32) {
        let me = &mut self.pes[pe as usize];
        let clock = me.clock(self.now);
        let (Some(manager), Some(peer)) = (&mut me.manager, me.peers.get_mut(&to)) else {
            return;
        };
        if let Some((posted, revision)) = peer.acknowledge
            && peer.completed >= posted
        {
            peer.acknowledge = None;
            manager.segments_applied(clock, to, revision);
        }
        if let Some(qpn) = peer.open
            && peer.draining
            && peer.completed == peer.posted
            && peer.entitled == 0
        {
            peer.open = None;
            peer.draining = false;
            manager.drained(clock, to, qpn);
        }
    }

    /// Does what one process would do whenever it has the processor.
    fn act(&mut self, pe: u32) {
        let known: Vec<u32> = self.pes[pe as usize].peers.keys().copied().collect();
        for to in known {
            self.attend(pe, to);
        }
        loop {
            self.execute_actions(pe);
            let me = &mut self.pes[pe as usize];
            let clock = me.clock(self.now);
            let peers = &me.peers;
            let Some(manager) = me.manager.as_mut().filter(|m| m.is_short()) else {
                break;
            };
            manager.make_room(clock, |to| {
                peers.get(&to).map_or_else(Usage::default, |p| Usage {
                    stamp: p.used,
                    busy: p.completed < p.posted,
                    pinned: p.entitled > 0,
                })
            });
        }
        // Threads whose connection has gone again ask again.
        for thread in 0..self.pes[pe as usize].threads.len() {
            let me = &self.pes[pe as usize];
            if let (Some(to), Some(manager)) = (me.threads[thread].waits_for, &me.manager)
                && !manager.is_wanted(to)
                && me.peers.get(&to).is_none_or(|p| p.entitled == 0)
            {
                self.wake(pe, thread);
            }
        }
    }

    fn execute_actions(&mut self, pe: u32) {
        loop {
            let now = self.now;
            let clock = self.pes[pe as usize].clock(now);
            let me = &mut self.pes[pe as usize];
            let Some(manager) = &mut me.manager else {
                return;
            };
            let Some((to, action)) = manager.poll_action() else {
                return;
            };
            match action {
                Action::Send { to: at, message } => {
                    let mut buf = [0; MAX_LEN];
                    let len = manager.encode(&message, &mut buf);
                    assert_eq!(at, address(to));
                    self.say(|| format!("PE {pe} sends {message:?}"));
                    self.transmit(pe, to, &buf[..len]);
                }
                Action::CreateQp => {
                    let qpn = self.fabric.create(pe, to);
                    manager.qp_created(clock, to, qpn);
                }
                Action::LinkQp(link) => self.fabric.link(pe, &link),
                Action::ResetQp(qpn) => self.fabric.reset(pe, qpn),
                Action::DestroyQp(qpn) => {
                    self.fabric.destroy(pe, qpn);
                    self.destroyed(pe, to, qpn);
                }
                Action::Opened { qpn, segments } => {
                    self.fabric.open(pe, qpn);
                    let me = &mut self.pes[pe as usize];
                    me.posts += 1;
                    let peer = me.peers.entry(to).or_default();
                    peer.open = Some(qpn);
                    peer.draining = false;
                    peer.entitled = peer.waiters;
                    peer.used = me.posts;
                    peer.acknowledge = None;
                    peer.segments = segments;
                    let waiting = |t: &Thread| t.waits_for == Some(to);
                    let threads: Vec<usize> = (0..me.threads.len())
                        .filter(|i| waiting(&me.threads[*i]))
                        .collect();
                    for thread in threads {
                        self.wake(pe, thread);
                    }
                }
                Action::Drain(qpn) => {
                    let peer = me.peers.entry(to).or_default();
                    assert_eq!(peer.open, Some(qpn));
                    peer.draining = true;
                    self.attend(pe, to);
                    if let Some(manager) = &mut self.pes[pe as usize].manager {
                        manager.busy(clock, to);
                    }
                }
                Action::SegmentsChanged { segments, revision } => {
                    let peer = me.peers.entry(to).or_default();
                    let old = peer.segments.first().filter(|_| peer.open.is_some());
                    assert!(old.is_none_or(|old| old.generation < segments[0].generation));
                    peer.segments = segments;
                    peer.acknowledge = Some((peer.posted, revision));
                    self.attend(pe, to);
                }
                Action::PeerRestarted { .. } => self.totals.restarts_seen += 1,
                other => panic!("PE {pe} towards PE {to}: {other:?}"),
            }
        }
    }

    /// The operations on a queue pair that is gone. Without a crash there are none.
    fn destroyed(&mut self, pe: u32, to: u32, qpn: Qpn) {
        let peer = self.pes[pe as usize].peers.entry(to).or_default();
        if peer.open == Some(qpn) {
            peer.open = None;
            peer.draining = false;
        }
        for op in 0..self.ops.len() {
            let Op {
                qpn: its,
                done,
                lives,
                ..
            } = self.ops[op];
            if its != qpn || done {
                continue;
            }
            assert_ne!(
                self.pes[to as usize].life,
                lives.1,
                "the queue pair of op {op} is destroyed under it: {}",
                self.describe()
            );
            self.finish(op, false);
        }
    }

    fn transmit(&mut self, src: u32, dst: u32, bytes: &[u8]) {
        let mut copies = 1;
        if self.now < HEAL {
            if self.rng.chance_ppm(self.loss_ppm) {
                self.totals.lost += 1;
                return;
            }
            copies += u32::from(self.rng.chance_ppm(self.repeat_ppm));
        }
        for _ in 0..copies {
            let at = self.now + 1 + self.rng.below(self.max_delay);
            let bytes = bytes.to_vec();
            self.at(at, Event::Datagram { src, dst, bytes });
        }
    }

    fn check(&self) {
        for (number, pe) in self.pes.iter().enumerate() {
            for thread in &pe.threads {
                assert!(
                    thread.todo.is_empty() && thread.pending == 0,
                    "PE {number} waits for ever: {}",
                    self.describe()
                );
            }
            for (to, peer) in &pe.peers {
                if peer.open.is_some() && !peer.draining {
                    let other = &self.pes[*to as usize];
                    let mine = peer.segments[0];
                    let same_life = mine.address == other.life;
                    assert!(
                        !same_life || mine.generation == other.segment_revision,
                        "PE {number} has old segments of PE {to}: {}",
                        self.describe()
                    );
                }
            }
        }
        for (number, op) in self.ops.iter().enumerate() {
            let crashed = self.pes[op.from as usize].life != op.lives.0
                || self.pes[op.to as usize].life != op.lives.1;
            assert!(op.executed == 1 || crashed, "op {number}: {op:?}");
            assert!(op.done || crashed, "op {number}: {op:?}");
        }
    }

    fn describe(&self) -> String {
        let mut text = format!("at {} ms, at most {} QPs:", self.now / MS, self.cap);
        for (pe, me) in (0u32..).zip(&self.pes) {
            let Some(manager) = &me.manager else { continue };
            for (to, peer) in &me.peers {
                text += &format!(
                    "\n  {pe}->{to} {:?} {:?} wanted {} draining {} entitled {} of {}, {} of {}",
                    manager.phase(*to),
                    manager.local_qp(*to),
                    manager.is_wanted(*to),
                    peer.draining,
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

    fn add_to(mut self, totals: &mut Totals) {
        for pe in &self.pes {
            if let Some(manager) = &pe.manager {
                self.totals.count(manager);
            }
        }
        let t = self.totals;
        totals.runs += t.runs;
        totals.ops += self.ops.len() as u64;
        totals.failed += t.failed;
        totals.opened += t.opened;
        totals.evictions += t.evictions;
        totals.evictions_by_peer += t.evictions_by_peer;
        totals.yields += t.yields;
        totals.queued += t.queued;
        totals.reconnects += t.reconnects;
        totals.deferred += t.deferred;
        totals.drains += t.drains;
        totals.crashes += t.crashes;
        totals.stops += t.stops;
        totals.cut += t.cut;
        totals.lost += t.lost;
        totals.restarts_seen += t.restarts_seen;
        totals.segment_updates += t.segment_updates;
        totals.longest_ms = totals.longest_ms.max(self.now / MS);
    }
}

impl Totals {
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

/// The address tells the incarnation of the owner.
fn segments(pe: u32, life: u64, revision: u32) -> Segments {
    std::iter::once(Segment {
        address: life,
        size: 1 << 20,
        rkey: Rkey(pe),
        id: 0,
        generation: revision,
    })
    .collect()
}

fn address(pe: u32) -> UdAddress {
    UdAddress {
        qpn: Qpn(pe + 2),
        ..UdAddress::default()
    }
}
