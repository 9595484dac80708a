//! The end of a job in random networks: everybody connects, writes, passes a barrier whose last
//! messages may be unacknowledged, and leaves. Everything follows from one seed.

use std::collections::BTreeSet;

use shmem_ib::connect::interface::{Action, Local};
use shmem_ib::connect::manager::Manager;
use shmem_ib::rng::Rng;
use shmem_ib::verbs::Qpn;

use crate::world::{
    Faults, MS, Next, Timeline, US, address, encoded, identity, local, memory, totals,
};

const LINGER: u64 = 500 * MS;
/// After so long an operation without acknowledgement fails.
const GIVE_UP: u64 = 34_000 * MS;

/// So many packets in a row must have been lost between two PEs before one of them may take the other's
/// silence for the end, and leave it with an operation that nobody acknowledges.
const LOST_IN_A_ROW: usize = 4;

totals! {
    /// Sums over all runs.
    sum {
        byes,
        repeated = "repeated BYE",
        missed = "lost BYE",
        /// PEs that went because their linger time was over.
        lingered = "lingering",
        /// Operations whose acknowledgement was lost although their target had executed them.
        served_late = "lost acknowledgement",
        /// WAITs that asked a leaving PE for patience.
        waits = "WAIT",
        ops,
        /// Operations that failed because their target had gone.
        abandoned,
    }
    most {}
}

impl Totals {
    /// Where every third packet is lost, silence for the linger time does happen.
    pub(crate) fn assert_that_few_were_abandoned(&self) {
        let few = self.abandoned * 100 < self.ops;
        assert!(few || self.runs < 1000, "{self:?}");
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Datagram { src: u32, dst: u32, bytes: Vec<u8> },
    Connect { pe: u32, to: u32 },
    Send { op: usize },
    Arrive { op: usize },
    Acknowledge { op: usize },
    Close { pe: u32 },
}

/// One RDMA operation.
#[derive(Debug)]
struct Op {
    from: u32,
    to: u32,
    begun: u64,
    interval: u64,
    executed: bool,
    done: bool,
}

struct Pe {
    manager: Manager,
    closing: bool,
    /// Has called `leave`.
    leaving: bool,
    /// When it went.
    gone: Option<u64>,
    /// When the last packet of each PE reached it, or it left.
    heard: Vec<u64>,
    left_peers: BTreeSet<u32>,
}

pub(crate) struct World {
    rng: Rng,
    time: Timeline<Event>,
    pes: Vec<Pe>,
    ops: Vec<Op>,
    /// Connections that are wanted and not open.
    missing: u32,
    /// Packets that were lost: when, and between whom (the lower number first).
    lost: Vec<(u64, [u32; 2])>,
    faults: Faults,
    /// The latest PE closes so long after the first.
    skew: u64,
    closed_at: Option<u64>,
    totals: Totals,
}

impl World {
    pub(crate) fn new(seed: u64, verbose: bool) -> Self {
        let mut rng = Rng::new(seed);
        let n = 2 + rng.below(6) as u32;
        let kind = rng.below(3);
        let faults = Faults {
            loss_ppm: [0, 50_000, 300_000][kind as usize],
            repeat_ppm: [0, 100_000][rng.below(2) as usize],
            garble_ppm: 0,
            min_delay: 10 * US,
            max_delay: [200 * US, 3 * MS, 40 * MS][rng.below(3) as usize],
        };
        let skew = [0, 30 * MS, 2_000 * MS][rng.below(3) as usize];
        let pes = (0..n)
            .map(|pe| {
                let local = Local {
                    memory: Some(memory(pe)),
                    ..local(pe)
                };
                Pe {
                    manager: Manager::new(&identity(n), local, rng.next_u64()),
                    closing: false,
                    leaving: false,
                    gone: None,
                    heard: vec![0; n as usize],
                    left_peers: BTreeSet::new(),
                }
            })
            .collect();
        let mut world = Self {
            rng,
            time: Timeline::new(verbose),
            pes,
            ops: Vec::new(),
            missing: 0,
            lost: Vec::new(),
            faults,
            skew,
            closed_at: None,
            totals: Totals::default(),
        };
        for pe in 0..n {
            for to in (0..n).filter(|to| *to != pe) {
                if world.rng.below(2) == 0 {
                    let at = world.rng.below(20 * MS);
                    world.missing += 1;
                    world.time.at(at, Event::Connect { pe, to });
                }
            }
        }
        world
    }

    /// Sends a packet between two PEs: it may be lost, repeated, and overtaken.
    fn wire(&mut self, a: u32, b: u32, bytes: &[u8], arrival: impl Fn(Vec<u8>) -> Event) {
        let copies = (self.faults).send(&mut self.rng, &mut self.time, bytes, arrival);
        if copies == 0 {
            self.lost.push((self.time.now, [a.min(b), a.max(b)]));
        }
    }

    pub(crate) fn run(mut self, totals: &mut Totals) {
        loop {
            self.barrier();
            let here = self.pes.iter().enumerate();
            let here = here.filter(|(_, pe)| pe.gone.is_none());
            let timers = here.filter_map(|(i, pe)| Some((pe.manager.next_timeout()?, i)));
            match self.time.next(timers, u64::MAX) {
                None => break,
                Some(Next::Timer(i)) => {
                    self.pes[i].manager.handle_timeout(self.time.now);
                    self.act(i as u32);
                }
                Some(Next::Event(event)) => self.handle(event),
            }
            assert!(self.time.now < 200_000 * MS, "the job does not end");
        }
        self.check();
        totals.add(&self.totals);
    }

    /// When everything was executed, though perhaps not acknowledged, all PEs close.
    fn barrier(&mut self) {
        let done = self.missing == 0 && self.ops.iter().all(|op| op.executed);
        if self.closed_at.is_some() || !done {
            return;
        }
        self.closed_at = Some(self.time.now);
        for pe in 0..self.pes.len() as u32 {
            let at = self.time.now + self.rng.below(self.skew + 1);
            self.time.at(at, Event::Close { pe });
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.time.now;
        match event {
            Event::Datagram { src, dst, bytes } => {
                let pe = &mut self.pes[dst as usize];
                if pe.gone.is_none() {
                    pe.heard[src as usize] = now;
                    pe.manager.handle_datagram(now, &bytes).unwrap();
                    self.act(dst);
                }
            }
            Event::Connect { pe, to } => {
                self.pes[pe as usize]
                    .manager
                    .connect(now, to, to, address(to));
                self.act(pe);
            }
            Event::Send { op } => {
                let Op {
                    from,
                    to,
                    begun,
                    done,
                    ..
                } = self.ops[op];
                if done {
                    return;
                }
                if now - begun >= GIVE_UP {
                    self.abandon(op);
                    return;
                }
                self.wire(from, to, &[], |_| Event::Arrive { op });
                let interval = self.ops[op].interval;
                self.ops[op].interval = (2 * interval).min(500 * MS);
                let jitter = self.rng.below(interval / 8);
                self.time.at(now + interval + jitter, Event::Send { op });
            }
            Event::Arrive { op } => {
                let Op { from, to, .. } = self.ops[op];
                let target = &mut self.pes[to as usize];
                if target.gone.is_some() {
                    return;
                }
                target.heard[from as usize] = now;
                target.manager.traffic_seen(now);
                self.totals.served_late += u64::from(self.ops[op].executed && target.leaving);
                self.ops[op].executed = true;
                self.wire(to, from, &[], |_| Event::Acknowledge { op });
            }
            Event::Acknowledge { op } => {
                if !self.ops[op].done {
                    self.finish(op);
                }
            }
            Event::Close { pe } => {
                self.pes[pe as usize].closing = true;
                self.leave_if_idle(pe);
            }
        }
    }

    /// Its target has gone. That must be the network's doing alone: it lost one packet after the other
    /// between the two, while the target lingered.
    fn abandon(&mut self, op: usize) {
        let Op { from, to, .. } = self.ops[op];
        let gone = self.pes[to as usize].gone;
        let gone = gone.unwrap_or_else(|| panic!("PE {to} is there, and does not answer {from}"));
        let pair = [from.min(to), from.max(to)];
        let lost = self.lost.iter().filter(|(at, between)| {
            *between == pair && (gone.saturating_sub(LINGER)..gone).contains(at)
        });
        let lost = lost.count();
        assert!(
            lost >= LOST_IN_A_ROW,
            "PE {to} left PE {from} alone after {lost} lost packets"
        );
        self.totals.abandoned += 1;
        self.finish(op);
    }

    fn finish(&mut self, op: usize) {
        self.ops[op].done = true;
        self.leave_if_idle(self.ops[op].from);
    }

    fn unfinished(&self, from: u32, to: Option<u32>) -> bool {
        self.ops
            .iter()
            .any(|op| op.from == from && !op.done && to.is_none_or(|to| op.to == to))
    }

    fn leave_if_idle(&mut self, pe: u32) {
        if self.unfinished(pe, None) {
            return;
        }
        let it = &mut self.pes[pe as usize];
        if it.closing && !it.leaving {
            it.leaving = true;
            it.heard.fill(self.time.now);
            it.manager.leave(self.time.now, LINGER);
            while it.manager.say_bye(self.time.now, 2) {}
            self.act(pe);
        }
    }

    fn act(&mut self, pe: u32) {
        while let Some((peer, action)) = self.pes[pe as usize].manager.poll_action() {
            let now = self.time.now;
            let manager = &mut self.pes[pe as usize].manager;
            match action {
                Action::Send { message, .. } => {
                    let bytes = encoded(manager, &message);
                    let (src, dst) = (pe, peer);
                    self.wire(src, dst, &bytes, |bytes| Event::Datagram {
                        src,
                        dst,
                        bytes,
                    });
                }
                Action::CreateQp => manager.qp_created(now, peer, Qpn(100 + peer)),
                Action::Opened { .. } => {
                    let route = manager.route(peer).expect("it is open");
                    assert!(!route.left, "PE {peer} has left before the barrier");
                    self.missing -= 1;
                    for _ in 0..self.rng.below(3) {
                        let op = self.ops.len();
                        self.ops.push(Op {
                            from: pe,
                            to: peer,
                            begun: now,
                            interval: MS + 2 * self.faults.max_delay,
                            executed: false,
                            done: false,
                        });
                        self.time.at(now, Event::Send { op });
                    }
                }
                Action::PeerLeft { waits } => {
                    assert!(self.pes[peer as usize].leaving);
                    self.pes[pe as usize].left_peers.insert(peer);
                    if waits && self.unfinished(pe, Some(peer)) {
                        self.pes[pe as usize].manager.busy(now, peer);
                        self.totals.waits += 1;
                    }
                }
                Action::LinkQp { .. } => {}
                other => panic!("PE {pe} towards PE {peer}: {other:?}"),
            }
        }
        self.go_if_left(pe);
    }

    fn go_if_left(&mut self, pe: u32) {
        let it = &mut self.pes[pe as usize];
        if it.gone.is_some() || !it.manager.has_left() {
            return;
        }
        it.gone = Some(self.time.now);
        if it.manager.stats().byes_missed > 0 {
            self.totals.lingered += 1;
            assert!(
                self.faults.loss_ppm > 0 || self.skew > LINGER,
                "nothing was lost"
            );
        }
        let lingered = it.manager.stats().byes_missed > 0;
        let silence: Vec<u64> = it.heard.iter().map(|heard| self.time.now - heard).collect();
        for (peer, silence) in (0u32..).zip(silence) {
            if self.unfinished(peer, Some(pe)) {
                assert!(lingered, "PE {pe} goes, and PE {peer} waits in vain");
                let us = silence / US;
                assert!(
                    silence >= LINGER,
                    "PE {pe} goes {us} us after a word of PE {peer}"
                );
            }
        }
    }

    fn check(&mut self) {
        let connections: u64 = self
            .pes
            .iter()
            .map(|pe| pe.manager.peers().len() as u64)
            .sum();
        for (number, pe) in self.pes.iter().enumerate() {
            assert!(pe.gone.is_some(), "PE {number} stays");
            let stats = pe.manager.stats();
            self.totals.byes += stats.byes_sent;
            self.totals.repeated += stats.byes_repeated;
            self.totals.missed += stats.byes_missed;
        }
        if self.faults.loss_ppm == 0 && self.skew == 0 && self.faults.max_delay <= 3 * MS {
            assert_eq!(self.totals.byes, connections, "one BYE each way");
            let took = self.time.now - self.closed_at.expect("it ended");
            // Only the slowest acknowledgement and one datagram are waited for, and outdated
            // timers of this simulation.
            assert!(took < 60 * MS, "{} us", took / US);
        }
        self.totals.ops = self.ops.len() as u64;
    }
}
