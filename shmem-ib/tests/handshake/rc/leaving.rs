//! The end of a job in random networks: everybody connects, writes, passes a barrier whose last
//! messages may be unacknowledged, and leaves. Everything follows from one seed.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use shmem_ib::connect::UdAddress;
use shmem_ib::connect::interface::{Action, Local};
use shmem_ib::connect::manager::{Identity, Manager};
use shmem_ib::connect::message::{MAX_LEN, Memory, Segment};
use shmem_ib::connect::retry::RetryPolicy;
use shmem_ib::rng::Rng;
use shmem_ib::verbs::{Mtu, Qpn};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const LINGER: u64 = 500 * MS;
/// After so long an operation without acknowledgement fails.
const GIVE_UP: u64 = 34_000 * MS;

/// So many packets in a row must have been lost between two PEs before one of them may take the other's
/// silence for the end, and leave it with an operation that nobody acknowledges.
const LOST_IN_A_ROW: usize = 4;

/// Sums over all runs, to see that what should be simulated was.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    runs: u64,
    byes: u64,
    repeated: u64,
    missed: u64,
    /// PEs that went because their linger time was over.
    lingered: u64,
    /// Operations whose acknowledgement was lost although their target had executed them.
    served_late: u64,
    /// WAITs that asked a leaving PE for patience.
    waits: u64,
    ops: u64,
    /// Operations that failed because their target had gone.
    abandoned: u64,
}

impl Totals {
    pub(crate) fn assert_that_everything_happened(&self) {
        if self.runs < 1000 {
            return;
        }
        for (what, count) in [
            ("repeated BYE", self.repeated),
            ("lost BYE", self.missed),
            ("lingering", self.lingered),
            ("lost acknowledgement", self.served_late),
            ("WAIT", self.waits),
        ] {
            assert!(count > 0, "no {what}: the simulation is too kind");
        }
        // Where every third packet is lost, silence for the linger time does happen.
        assert!(self.abandoned * 100 < self.ops, "{self:?}");
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
    now: u64,
    serial: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pes: Vec<Pe>,
    ops: Vec<Op>,
    /// Connections that are wanted and not open.
    missing: u32,
    /// Packets that were lost: when, and between whom (the lower number first).
    lost: Vec<(u64, [u32; 2])>,
    loss_ppm: u32,
    repeat_ppm: u32,
    max_delay: u64,
    /// The latest PE closes so long after the first.
    skew: u64,
    closed_at: Option<u64>,
    totals: Totals,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let n = 2 + rng.below(6) as u32;
        let kind = rng.below(3);
        let loss_ppm = [0, 50_000, 300_000][kind as usize];
        let repeat_ppm = [0, 100_000][rng.below(2) as usize];
        let max_delay = [200 * US, 3 * MS, 40 * MS][rng.below(3) as usize];
        let skew = [0, 30 * MS, 2_000 * MS][rng.below(3) as usize];
        let identity = Identity {
            job_id: [1; 16],
            job_key: &[2; 32],
            n_pes: n,
        };
        let pes = (0..n)
            .map(|pe| {
                let local = Local {
                    pe,
                    ud: address(pe),
                    mtu: Mtu::M1024,
                    max_rd_atomic: 1,
                    memory: Some(Memory {
                        segments: std::iter::once(Segment::default()).collect(),
                        ..Memory::default()
                    }),
                    max_qps: 0,
                    leaving: false,
                    retry: RetryPolicy::default(),
                };
                Pe {
                    manager: Manager::new(&identity, local, rng.next_u64()),
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
            now: 0,
            serial: 0,
            events: BinaryHeap::new(),
            pes,
            ops: Vec::new(),
            missing: 0,
            lost: Vec::new(),
            loss_ppm,
            repeat_ppm,
            max_delay,
            skew,
            closed_at: None,
            totals: Totals {
                runs: 1,
                ..Totals::default()
            },
        };
        for pe in 0..n {
            for to in (0..n).filter(|to| *to != pe) {
                if world.rng.below(2) == 0 {
                    let at = world.rng.below(20 * MS);
                    world.missing += 1;
                    world.at(at, Event::Connect { pe, to });
                }
            }
        }
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((time, self.serial, event)));
    }

    fn delay(&mut self) -> u64 {
        10 * US + self.rng.below(self.max_delay)
    }

    /// Puts a packet between two PEs on the wire: it may be lost, repeated, and overtaken.
    fn wire(&mut self, a: u32, b: u32, event: impl Fn() -> Event) {
        if self.rng.chance_ppm(self.loss_ppm) {
            self.lost.push((self.now, [a.min(b), a.max(b)]));
            return;
        }
        let copies = 1 + u32::from(self.rng.chance_ppm(self.repeat_ppm));
        for _ in 0..copies {
            let at = self.now + self.delay();
            self.at(at, event());
        }
    }

    pub(crate) fn run(mut self, totals: &mut Totals) {
        loop {
            self.barrier();
            let timer = (0u32..)
                .zip(&mut self.pes)
                .filter(|(_, pe)| pe.gone.is_none())
                .filter_map(|(i, pe)| Some((pe.manager.next_timeout()?, i)))
                .min();
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            match (timer, event) {
                (Some((at, i)), e) if e.is_none_or(|e| at < e) => {
                    self.now = self.now.max(at);
                    self.pes[i as usize].manager.handle_timeout(self.now);
                    self.act(i);
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
            assert!(self.now < 200_000 * MS, "the job does not end");
        }
        self.check();
        self.add_to(totals);
    }

    /// When everything was executed, though perhaps not acknowledged, all PEs close.
    fn barrier(&mut self) {
        let done = self.missing == 0 && self.ops.iter().all(|op| op.executed);
        if self.closed_at.is_some() || !done {
            return;
        }
        self.closed_at = Some(self.now);
        for pe in 0..self.pes.len() as u32 {
            let at = self.now + self.rng.below(self.skew + 1);
            self.at(at, Event::Close { pe });
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
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
                self.wire(from, to, || Event::Arrive { op });
                let interval = self.ops[op].interval;
                self.ops[op].interval = (2 * interval).min(500 * MS);
                let jitter = self.rng.below(interval / 8);
                self.at(now + interval + jitter, Event::Send { op });
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
                self.wire(to, from, || Event::Acknowledge { op });
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
            it.heard.fill(self.now);
            it.manager.leave(self.now, LINGER);
            while it.manager.say_bye(self.now, 2) {}
            self.act(pe);
        }
    }

    fn act(&mut self, pe: u32) {
        while let Some((peer, action)) = self.pes[pe as usize].manager.poll_action() {
            let now = self.now;
            let manager = &mut self.pes[pe as usize].manager;
            match action {
                Action::Send { message, .. } => {
                    let mut buf = [0; MAX_LEN];
                    let len = manager.encode(&message, &mut buf);
                    let bytes = buf[..len].to_vec();
                    self.wire(pe, peer, || Event::Datagram {
                        src: pe,
                        dst: peer,
                        bytes: bytes.clone(),
                    });
                }
                Action::CreateQp => manager.qp_created(now, peer, Qpn(100 + peer)),
                Action::Opened { .. } => {
                    let way = manager.way(peer).expect("it is open");
                    assert!(!way.left, "PE {peer} has left before the barrier");
                    self.missing -= 1;
                    for _ in 0..self.rng.below(3) {
                        let op = self.ops.len();
                        self.ops.push(Op {
                            from: pe,
                            to: peer,
                            begun: now,
                            interval: MS + 2 * self.max_delay,
                            executed: false,
                            done: false,
                        });
                        self.at(now, Event::Send { op });
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
        it.gone = Some(self.now);
        if it.manager.stats().byes_missed > 0 {
            self.totals.lingered += 1;
            assert!(self.loss_ppm > 0 || self.skew > LINGER, "nothing was lost");
        }
        let lingered = it.manager.stats().byes_missed > 0;
        let silence: Vec<u64> = it.heard.iter().map(|heard| self.now - heard).collect();
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
        if self.loss_ppm == 0 && self.skew == 0 && self.max_delay <= 3 * MS {
            assert_eq!(self.totals.byes, connections, "one BYE each way");
            let took = self.now - self.closed_at.expect("it ended");
            // Only the slowest acknowledgement and one datagram are waited for, and outdated
            // timers of this simulation.
            assert!(took < 60 * MS, "{} us", took / US);
        }
        self.totals.ops = self.ops.len() as u64;
    }

    fn add_to(self, totals: &mut Totals) {
        let t = self.totals;
        totals.runs += t.runs;
        totals.byes += t.byes;
        totals.repeated += t.repeated;
        totals.missed += t.missed;
        totals.lingered += t.lingered;
        totals.served_late += t.served_late;
        totals.waits += t.waits;
        totals.ops += t.ops;
        totals.abandoned += t.abandoned;
    }
}

fn address(pe: u32) -> UdAddress {
    UdAddress {
        qpn: Qpn(pe + 2),
        ..UdAddress::default()
    }
}
