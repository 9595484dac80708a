//! Several endpoints in a network that loses, repeats, delays and reorders, with slow starters
//! and deaths, and with branches, which are asked for nothing; everything follows from one seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use shmem_ib::connect::UdAddress;
use shmem_ib::connect::admission::number_of;
use shmem_ib::connect::handshake::Phase;
use shmem_ib::connect::interface::{Action, Failure, Local};
use shmem_ib::connect::manager::{Identity, Manager};
use shmem_ib::connect::message::{MAX_LEN, Memory, Segment};
use shmem_ib::connect::retry::RetryPolicy;
use shmem_ib::rng::Rng;
use shmem_ib::verbs::{Mtu, Qkey, Qpn, Rkey};

use crate::rc::fabric::{Delivery, Fabric};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
/// Faults happen until then; afterwards everything has to settle.
const HEAL: u64 = 2_000 * MS;
const END: u64 = HEAL + 10_000 * MS;
/// Longer than any series of losses.
const SILENCE: u64 = 4_000 * MS;

/// Sums over all runs, to see that the faults really happened.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    runs: u64,
    endpoints: u64,
    opened: u64,
    accepted: u64,
    simultaneous: u64,
    retransmissions: u64,
    offers: u64,
    waits: u64,
    duplicates: u64,
    stale: u64,
    rejected: u64,
    crashes: u64,
    failed: u64,
    lost: u64,
    repeated: u64,
    opened_towards_the_dead: u64,
    rc_delivered: u64,
    opened_by_branches: u64,
    max_first_contact_ms: u64,
}

impl Totals {
    pub(crate) fn assert_that_everything_happened(&self) {
        for (what, count) in [
            ("accepted", self.accepted),
            ("simultaneous opens", self.simultaneous),
            ("retransmissions", self.retransmissions),
            ("waits", self.waits),
            ("duplicates", self.duplicates),
            ("rejected messages", self.rejected),
            ("failures", self.failed),
            ("crashes", self.crashes),
            ("losses", self.lost),
            ("repetitions", self.repeated),
            ("RC packets", self.rc_delivered),
            ("connections of branches", self.opened_by_branches),
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
    Datagram { dst: u32, bytes: Vec<u8> },
    Rc { from: Qpn },
    Connect { pe: u32, to: u32 },
    Ready { pe: u32 },
    Crash { pe: u32 },
}

struct Endpoint {
    /// `None` if it is dead.
    manager: Option<Manager>,
    wants: Vec<u32>,
}

/// The faults of one network, drawn from the seed: some are off altogether.
#[derive(Debug)]
struct Faults {
    loss_ppm: u32,
    repeat_ppm: u32,
    garble_ppm: u32,
    min_delay: u64,
    max_delay: u64,
}

pub(crate) struct World {
    rng: Rng,
    verbose: bool,
    now: u64,
    serial: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    endpoints: Vec<Endpoint>,
    fabric: Fabric,
    faults: Faults,
    identity: Identity,
    totals: Totals,
}

impl World {
    pub(crate) fn new(seed: u64, verbose: bool) -> Self {
        let mut rng = Rng::new(seed);
        let n = 2 + rng.below(7) as u32;
        let off = |rng: &mut Rng, value: u32| if rng.below(3) == 0 { 0 } else { value };
        let loss = rng.below(500_001) as u32;
        let repeat = rng.below(300_001) as u32;
        let min_delay = 1 + rng.below(50) * US;
        let spread = [10 * US, MS, 30 * MS, 300 * MS][rng.below(4) as usize];
        let faults = Faults {
            loss_ppm: off(&mut rng, loss),
            repeat_ppm: off(&mut rng, repeat),
            garble_ppm: off(&mut rng, 20_000),
            min_delay,
            max_delay: min_delay + rng.below(spread),
        };
        let identity = Identity {
            job_id: [1; 16],
            job_key: &[2; 32],
            n_pes: n,
        };
        let mut world = Self {
            rng,
            verbose,
            now: 0,
            serial: 0,
            events: BinaryHeap::new(),
            endpoints: Vec::new(),
            fabric: Fabric::default(),
            faults,
            identity,
            totals: Totals {
                runs: 1,
                endpoints: n.into(),
                ..Totals::default()
            },
        };
        world.plan(n);
        world
    }

    fn plan(&mut self, n_pes: u32) {
        let slow_starts = self.rng.below(2) == 0;
        let deaths = self.rng.below(3) == 0;
        let together = self.rng.below(2) == 0;
        // They are numbered behind the PEs.
        let branches = [0, 1, 2][self.rng.below(3) as usize];
        let n = number_of(n_pes - 1, branches, n_pes).expect("few") + 1;
        for pe in 0..n {
            self.endpoints.push(Endpoint {
                manager: None,
                wants: Vec::new(),
            });
            self.start(pe, slow_starts);
        }
        for pe in 0..n {
            for to in (0..n_pes).filter(|to| *to != pe % n_pes) {
                if self.rng.below(3) > 0 {
                    let at = if together {
                        0
                    } else {
                        self.rng.below(HEAL / 2)
                    };
                    self.at(at, Event::Connect { pe, to });
                }
            }
            if deaths && pe < n_pes && self.rng.below(3) == 0 {
                let at = self.rng.below(HEAL / 2);
                self.at(at, Event::Crash { pe });
            }
        }
        if self.verbose {
            println!("{n} endpoints of {n_pes} PEs, {:?}", self.faults);
        }
    }

    fn start(&mut self, pe: u32, slow: bool) {
        let seed = self.rng.next_u64();
        let endpoint = &mut self.endpoints[pe as usize];
        let local = Local {
            pe,
            ud: address(pe),
            mtu: [Mtu::M1024, Mtu::M4096][(pe % 2) as usize],
            max_rd_atomic: 1 + (pe % 16) as u8,
            memory: None,
            max_qps: 0,
            leaving: false,
            retry: RetryPolicy {
                silence: SILENCE,
                ..RetryPolicy::default()
            },
        };
        endpoint.manager = Some(Manager::new(&self.identity, local, seed));
        let ready = if slow { self.rng.below(1_000 * MS) } else { 0 };
        self.at(self.now + ready, Event::Ready { pe });
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

    /// Runs until everything has settled, then checks that it settled in the right way.
    pub(crate) fn run(mut self, totals: &mut Totals) {
        loop {
            let timer = (0..self.endpoints.len())
                .filter_map(|i| Some((self.endpoints[i].manager.as_mut()?.next_timeout()?, i)))
                .min();
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            match (timer, event) {
                (Some((at, i)), e) if e.is_none_or(|e| at < e) => {
                    assert!(at <= END, "not settled in time: {}", self.describe());
                    self.now = self.now.max(at);
                    let now = self.now;
                    if let Some(manager) = &mut self.endpoints[i].manager {
                        manager.handle_timeout(now);
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
        }
        self.check_settled();
        self.add_to(totals);
    }

    fn handle(&mut self, event: Event) {
        self.say(|| format!("{event:?}"));
        let now = self.now;
        let pe = match event {
            Event::Datagram { dst, bytes } => {
                let Some(manager) = &mut self.endpoints[dst as usize].manager else {
                    return;
                };
                // Garbled ones are rejected, and the counters are looked at in the end.
                let _ = manager.handle_datagram(now, &bytes);
                dst
            }
            Event::Rc { from } => {
                if matches!(self.fabric.deliver(from), Delivery::To(..)) {
                    self.totals.rc_delivered += 1;
                }
                return;
            }
            Event::Connect { pe, to } => {
                let Some(manager) = &mut self.endpoints[pe as usize].manager else {
                    return;
                };
                manager.connect(now, to, to, address(to));
                self.endpoints[pe as usize].wants.push(to);
                pe
            }
            Event::Ready { pe } => {
                if let Some(manager) = &mut self.endpoints[pe as usize].manager {
                    let memory = match pe < self.identity.n_pes {
                        true => memory(pe),
                        false => Memory::default(),
                    };
                    manager.ready(now, memory);
                }
                pe
            }
            Event::Crash { pe } => {
                self.totals.crashes += 1;
                let n = self.endpoints.len() as u32;
                for number in (pe..n).step_by(self.identity.n_pes as usize) {
                    if let Some(manager) = self.endpoints[number as usize].manager.take() {
                        self.totals.count(&manager);
                    }
                    self.fabric.crash(number);
                }
                return;
            }
        };
        self.act(pe);
    }

    /// Executes the actions of one endpoint.
    fn act(&mut self, pe: u32) {
        let now = self.now;
        loop {
            let Some(manager) = &mut self.endpoints[pe as usize].manager else {
                return;
            };
            let Some((peer, action)) = manager.poll_action() else {
                return;
            };
            match action {
                Action::Send { to, message } => {
                    let mut buf = [0; MAX_LEN];
                    let len = manager.encode(&message, &mut buf);
                    assert_eq!(to, address(peer));
                    self.transmit(peer, buf[..len].to_vec());
                }
                Action::CreateQp => {
                    let qpn = self.fabric.create(pe, peer);
                    manager.qp_created(now, peer, qpn);
                }
                Action::LinkQp { qpn, sq_psn, link } => {
                    let both_can = if pe & peer & 1 == 1 {
                        Mtu::M4096
                    } else {
                        Mtu::M1024
                    };
                    assert_eq!(link.mtu, both_can);
                    self.fabric.link(pe, qpn, sq_psn, &link);
                }
                Action::ResetQp(qpn) => self.fabric.reset(pe, qpn),
                Action::DestroyQp(qpn) => {
                    if self.fabric.destroy(pe, qpn) {
                        // The wish was fulfilled once; whoever uses it next asks again.
                        self.endpoints[pe as usize].wants.retain(|to| *to != peer);
                    }
                }
                Action::Opened { .. } => {
                    let way = manager.way(peer).expect("it is open");
                    let memory = way.segments.first().map(|s| s.address >> 32);
                    let is_pe = peer < self.identity.n_pes;
                    assert_eq!(memory, is_pe.then_some(peer.into()));
                    self.totals.opened_by_branches += u64::from(pe >= self.identity.n_pes);
                    let qpn = way.qpn;
                    let alive = self.fabric.open(pe, qpn);
                    self.totals.opened_towards_the_dead += u64::from(!alive);
                    if self.rng.below(2) == 0 {
                        let delay = self.delay();
                        self.at(now + delay, Event::Rc { from: qpn });
                    }
                }
                Action::Failed(failure) => {
                    let dead = self.endpoints[peer as usize].manager.is_none();
                    let silent = matches!(failure, Failure::Silence { .. });
                    assert!(dead && silent, "PE {pe} to PE {peer}: {failure:?}");
                    self.totals.failed += 1;
                    self.endpoints[pe as usize].wants.retain(|to| *to != peer);
                }
                Action::PeerLeft { .. } => panic!("PE {pe}: PE {peer} has not left"),
                Action::Drain(_) => panic!("PE {pe}: there is no limit"),
                Action::SegmentsAdded => panic!("PE {pe}: there are no more"),
                Action::CreateTarget(_) | Action::DestroyTarget(_) => {
                    panic!("PE {pe}: this is not XRC")
                }
            }
        }
    }

    fn delay(&mut self) -> u64 {
        let faults = &self.faults;
        faults.min_delay + self.rng.below(faults.max_delay - faults.min_delay + 1)
    }

    fn transmit(&mut self, dst: u32, bytes: Vec<u8>) {
        let mut copies = 1;
        if self.now < HEAL {
            if self.rng.chance_ppm(self.faults.loss_ppm) {
                self.totals.lost += 1;
                return;
            }
            if self.rng.chance_ppm(self.faults.repeat_ppm) {
                self.totals.repeated += 1;
                copies = 2;
            }
        }
        for _ in 0..copies {
            let mut bytes = bytes.clone();
            if self.now < HEAL && self.rng.chance_ppm(self.faults.garble_ppm) {
                let at = self.rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.rng.below(8);
            }
            let at = self.now + self.delay();
            self.at(at, Event::Datagram { dst, bytes });
        }
    }

    fn check_settled(&self) {
        for (pe, endpoint) in (0u32..).zip(&self.endpoints) {
            let Some(manager) = &endpoint.manager else {
                continue;
            };
            let branch = |number: &u32| *number >= self.identity.n_pes;
            let branches = manager.peers().into_iter().filter(branch).count();
            assert!(!branch(&pe) || branches == 0, "{}", self.describe());
            for to in &endpoint.wants {
                assert_eq!(
                    manager.phase(*to),
                    Phase::Open,
                    "PE {pe} -> {to}: {}",
                    self.describe()
                );
            }
            for to in manager.peers() {
                let Some((qpn, psn)) = manager.linked_to(to) else {
                    continue;
                };
                // It may have opened before the peer died, and nobody has told it since.
                let Some(peer) = &self.endpoints[to as usize].manager else {
                    continue;
                };
                if manager.phase(to) != Phase::Open {
                    continue;
                }
                assert_eq!(peer.local_qp(pe), Some((qpn, psn)), "{}", self.describe());
                let (my_qpn, my_psn) = manager.local_qp(to).expect("linked, so it exists");
                let back = Some((my_qpn, my_psn));
                assert_eq!(peer.linked_to(pe), back, "{}", self.describe());
            }
        }
    }

    fn describe(&self) -> String {
        let mut text = format!("at {} ms:", self.now / MS);
        for (pe, endpoint) in (0u32..).zip(&self.endpoints) {
            let Some(manager) = &endpoint.manager else {
                continue;
            };
            for to in manager.peers() {
                let (phase, mine) = (manager.phase(to), manager.local_qp(to));
                text += &format!(
                    "\n  {pe}->{to} {phase:?} {mine:?} {:?}",
                    manager.linked_to(to)
                );
            }
        }
        text
    }

    fn add_to(mut self, totals: &mut Totals) {
        for endpoint in &self.endpoints {
            if let Some(manager) = &endpoint.manager {
                self.totals.count(manager);
            }
        }
        let t = self.totals;
        totals.runs += t.runs;
        totals.endpoints += t.endpoints;
        totals.opened += t.opened;
        totals.accepted += t.accepted;
        totals.simultaneous += t.simultaneous;
        totals.retransmissions += t.retransmissions;
        totals.offers += t.offers;
        totals.waits += t.waits;
        totals.duplicates += t.duplicates;
        totals.stale += t.stale;
        totals.rejected += t.rejected;
        totals.crashes += t.crashes;
        totals.failed += t.failed;
        totals.lost += t.lost;
        totals.repeated += t.repeated;
        totals.opened_towards_the_dead += t.opened_towards_the_dead;
        totals.rc_delivered += t.rc_delivered;
        totals.opened_by_branches += t.opened_by_branches;
        totals.max_first_contact_ms = totals.max_first_contact_ms.max(t.max_first_contact_ms);
    }
}

impl Totals {
    fn count(&mut self, manager: &Manager) {
        let s = manager.stats();
        self.opened += s.opened;
        self.accepted += s.accepted;
        self.simultaneous += s.simultaneous;
        self.retransmissions += s.retransmissions;
        self.offers += s.offers_sent;
        self.waits += s.waits_sent;
        self.duplicates += s.duplicates;
        self.stale += s.stale;
        self.rejected += s.rejected();
        self.max_first_contact_ms = self.max_first_contact_ms.max(s.first_contact.max / MS);
    }
}

fn memory(pe: u32) -> Memory {
    let segment = Segment {
        address: u64::from(pe) << 32,
        size: 1 << 20,
        rkey: Rkey(pe),
        id: 0,
    };
    Memory {
        segments: std::iter::once(segment).collect(),
        ..Memory::default()
    }
}

fn address(pe: u32) -> UdAddress {
    UdAddress {
        gid: std::net::Ipv4Addr::new(10, 0, 0, pe as u8).into(),
        udp_port: 4791,
        qpn: Qpn(pe + 1),
        qkey: Qkey(pe + 1000),
    }
}
