//! Several endpoints in a network that loses, repeats, delays and reorders, with slow starters
//! and deaths, and with branches, which are asked for nothing; everything follows from one seed.

use shmem_ib::connect::admission::number_of;
use shmem_ib::connect::handshake::Phase;
use shmem_ib::connect::interface::{Action, Failure, Local};
use shmem_ib::connect::manager::{Identity, Manager};
use shmem_ib::connect::message::Memory;
use shmem_ib::connect::retry::RetryPolicy;
use shmem_ib::rng::Rng;
use shmem_ib::verbs::Qpn;

use crate::rc::fabric::{Delivery, Fabric};
use crate::world::{
    Faults, MS, Next, Timeline, address, common_mtu, encoded, identity, local, memory, mtu_of,
    totals,
};

/// Faults happen until then; afterwards everything has to settle.
const HEAL: u64 = 2_000 * MS;
const END: u64 = HEAL + 10_000 * MS;
/// Longer than any series of losses.
const SILENCE: u64 = 4_000 * MS;

totals! {
    /// Sums over all runs.
    sum {
        endpoints,
        opened,
        accepted = "accepted",
        simultaneous = "simultaneous opens",
        retransmissions = "retransmissions",
        offers,
        waits = "waits",
        duplicates = "duplicates",
        stale,
        rejected = "rejected messages",
        crashes = "crashes",
        failed = "failures",
        lost = "losses",
        repeated = "repetitions",
        opened_towards_the_dead,
        rc_delivered = "RC packets",
        opened_by_branches = "connections of branches",
    }
    most {
        first_contact_ms,
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

pub(crate) struct World {
    rng: Rng,
    time: Timeline<Event>,
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
        let faults = Faults::drawn(&mut rng, 500_000);
        let mut world = Self {
            rng,
            time: Timeline::new(verbose),
            endpoints: Vec::new(),
            fabric: Fabric::default(),
            faults,
            identity: identity(n),
            totals: Totals {
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
                    self.time.at(at, Event::Connect { pe, to });
                }
            }
            if deaths && pe < n_pes && self.rng.below(3) == 0 {
                let at = self.rng.below(HEAL / 2);
                self.time.at(at, Event::Crash { pe });
            }
        }
        self.time
            .say(|| format!("{n} endpoints of {n_pes} PEs, {:?}", self.faults));
    }

    fn start(&mut self, pe: u32, slow: bool) {
        let seed = self.rng.next_u64();
        let endpoint = &mut self.endpoints[pe as usize];
        let local = Local {
            mtu: mtu_of(pe),
            max_rd_atomic: 1 + (pe % 16) as u8,
            retry: RetryPolicy {
                silence: SILENCE,
                ..RetryPolicy::default()
            },
            ..local(pe)
        };
        endpoint.manager = Some(Manager::new(&self.identity, local, seed));
        let ready = if slow { self.rng.below(1_000 * MS) } else { 0 };
        self.time.at(self.time.now + ready, Event::Ready { pe });
    }

    /// Runs until everything has settled, then checks that it settled in the right way.
    pub(crate) fn run(mut self, totals: &mut Totals) {
        loop {
            let timers = self.endpoints.iter().enumerate();
            let timers = timers.filter_map(|(i, e)| Some((e.manager.as_ref()?.next_timeout()?, i)));
            let Some(next) = self.time.next(timers, u64::MAX) else {
                break;
            };
            let now = self.time.now;
            assert!(now <= END, "not settled in time: {}", self.describe());
            match next {
                Next::Timer(i) => {
                    if let Some(manager) = &mut self.endpoints[i].manager {
                        manager.handle_timeout(now);
                    }
                    self.act(i as u32);
                }
                Next::Event(event) => self.handle(event),
            }
        }
        self.check_settled();
        self.add_to(totals);
    }

    fn handle(&mut self, event: Event) {
        let now = self.time.now;
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
        let now = self.time.now;
        loop {
            let Some(manager) = &mut self.endpoints[pe as usize].manager else {
                return;
            };
            let Some((peer, action)) = manager.poll_action() else {
                return;
            };
            match action {
                Action::Send { to, message } => {
                    let bytes = encoded(manager, &message);
                    assert_eq!(to, address(peer));
                    self.transmit(peer, &bytes);
                }
                Action::CreateQp => {
                    let qpn = self.fabric.create(pe, peer);
                    manager.qp_created(now, peer, qpn);
                }
                Action::LinkQp { qpn, sq_psn, link } => {
                    assert_eq!(link.mtu, common_mtu(pe, peer));
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
                    let route = manager.route(peer).expect("it is open");
                    let memory = route.segments.first().map(|s| s.address >> 32);
                    let is_pe = peer < self.identity.n_pes;
                    assert_eq!(memory, is_pe.then_some(peer.into()));
                    self.totals.opened_by_branches += u64::from(pe >= self.identity.n_pes);
                    let qpn = route.qpn;
                    let alive = self.fabric.open(pe, qpn);
                    self.totals.opened_towards_the_dead += u64::from(!alive);
                    if self.rng.below(2) == 0 {
                        let delay = self.faults.delay(&mut self.rng);
                        self.time.at(now + delay, Event::Rc { from: qpn });
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

    fn transmit(&mut self, dst: u32, bytes: &[u8]) {
        let faults = match self.time.now < HEAL {
            true => self.faults,
            false => self.faults.healed(),
        };
        let arrival = |bytes| Event::Datagram { dst, bytes };
        let copies = faults.send(&mut self.rng, &mut self.time, bytes, arrival);
        self.totals.lost += u64::from(copies == 0);
        self.totals.repeated += u64::from(copies > 1);
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
        let mut text = format!("at {} ms:", self.time.now / MS);
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
        totals.add(&self.totals);
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
        self.first_contact_ms = self.first_contact_ms.max(s.first_contact.max / MS);
    }
}
