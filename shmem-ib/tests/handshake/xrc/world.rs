//! The PEs of several nodes in a network that loses, repeats, delays and reorders, with slow
//! starters, deaths and early leavers; everything follows from one seed.

use std::collections::BTreeMap;

use shmem_ib::connect::Route;
use shmem_ib::connect::interface::{Action, Failure, Local};
use shmem_ib::connect::manager::{Identity, Manager};
use shmem_ib::connect::xrc::Nodes;
use shmem_ib::rng::Rng;
use shmem_ib::verbs::Qpn;

use crate::world::{
    Faults, MS, Next, Timeline, address, common_mtu, encoded, identity, local, memory, mtu_of,
    totals,
};
use crate::xrc::fabric::Fabric;

/// Faults happen until then.
const HEAL: u64 = 2_000 * MS;
/// Then everybody asks for everybody once more.
const ALL: u64 = HEAL + 500 * MS;
/// By then all must be connected, and the job ends.
const LAST_BARRIER: u64 = ALL + 6_000 * MS;
/// Longer than any series of losses in the time of faults.
const LINGER: u64 = 3_000 * MS;
const END: u64 = LAST_BARRIER + 2 * LINGER + 1_000 * MS;

totals! {
    /// Sums over all runs.
    sum {
        pes,
        direct = "direct peers",
        indirect = "indirect peers",
        targets,
        moved = "moved connections",
        retransmissions = "retransmissions",
        waits = "waits",
        duplicates = "duplicates",
        stale = "stale messages",
        rejected = "rejected messages",
        byes_repeated = "repeated BYEs",
        byes_missed,
        crashes = "crashes",
        early_leavers = "early leavers",
        lost = "losses",
        repeated = "repetitions",
        operations = "operations",
        operations_lost,
        opened_towards_the_dead,
        abandoned,
    }
    most {
        first_contact_ms,
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Datagram { dst: u32, bytes: Vec<u8> },
    Connect { pe: u32, to: u32 },
    Ready { pe: u32 },
    Operate { pe: u32, to: u32 },
    Complete { pe: u32, to: u32, ini: Qpn },
    Crash { pe: u32 },
    Leave { pe: u32 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Up,
    /// Has to complete its operations first.
    WantsToLeave,
    Leaving,
    /// In order or dead.
    Gone,
}

struct Pe {
    manager: Option<Manager>,
    life: Life,
    /// Wishes that have to come true.
    wants: Vec<u32>,
    /// Operations under way, by peer.
    under_way: BTreeMap<u32, u32>,
}

impl Pe {
    fn nodes(&self) -> Option<&Nodes> {
        self.manager.as_ref()?.nodes()
    }
}

pub(crate) struct World {
    rng: Rng,
    time: Timeline<Event>,
    pes: Vec<Pe>,
    per_node: u32,
    crashes: bool,
    fabric: Fabric,
    faults: Faults,
    /// Faults happen also while the job ends.
    faults_to_the_end: bool,
    identity: Identity,
    totals: Totals,
}

impl World {
    pub(crate) fn new(seed: u64, verbose: bool) -> Self {
        let mut rng = Rng::new(seed);
        let per_node = 1 + rng.below(4) as u32;
        let n = per_node * (2 + rng.below(3) as u32);
        let faults = Faults::drawn(&mut rng, 400_000);
        let faults_to_the_end = rng.below(2) == 0;
        let mut world = Self {
            rng,
            time: Timeline::new(verbose),
            pes: Vec::new(),
            per_node,
            crashes: false,
            fabric: Fabric::default(),
            faults,
            faults_to_the_end,
            identity: identity(n),
            totals: Totals {
                pes: n.into(),
                ..Totals::default()
            },
        };
        world.plan(n);
        world
    }

    const fn node_of(&self, pe: u32) -> u32 {
        pe / self.per_node
    }

    /// PEs that `pe` reaches over the network.
    fn others(&self, pe: u32) -> Vec<u32> {
        let node = self.node_of(pe);
        let all = 0..self.pes.len() as u32;
        all.filter(|to| self.node_of(*to) != node).collect()
    }

    fn plan(&mut self, n: u32) {
        let slow_starts = self.rng.below(2) == 0;
        self.crashes = self.rng.below(3) == 0;
        let leavers = self.rng.below(4) == 0;
        let together = self.rng.below(2) == 0;
        for _ in 0..n {
            self.pes.push(Pe {
                manager: None,
                life: Life::Up,
                wants: Vec::new(),
                under_way: BTreeMap::new(),
            });
        }
        for pe in 0..n {
            self.start(pe, slow_starts);
            for to in self.others(pe) {
                if self.rng.below(3) > 0 {
                    let range = if together { 1 } else { HEAL / 2 };
                    let at = self.rng.below(range);
                    self.time.at(at, Event::Connect { pe, to });
                }
                for _ in 0..self.rng.below(4) {
                    let at = self.rng.below(ALL);
                    self.time.at(at, Event::Operate { pe, to });
                }
                self.time.at(ALL, Event::Connect { pe, to });
            }
            if self.crashes && self.rng.below(3) == 0 {
                let at = self.rng.below(HEAL / 2);
                self.time.at(at, Event::Crash { pe });
            } else if leavers && self.rng.below(4) == 0 {
                let at = self.rng.below(HEAL);
                self.time.at(at, Event::Leave { pe });
                self.totals.early_leavers += 1;
            }
        }
        self.time
            .say(|| format!("{n} PEs, {} per node, {:?}", self.per_node, self.faults));
    }

    fn start(&mut self, pe: u32, slow: bool) {
        let seed = self.rng.next_u64();
        let this = &mut self.pes[pe as usize];
        let local = Local {
            mtu: mtu_of(pe),
            max_rd_atomic: 1 + (pe % 16) as u8,
            ..local(pe)
        };
        this.manager = Some(Manager::of_nodes(&self.identity, local, seed));
        let ready = if slow { self.rng.below(800 * MS) } else { 0 };
        self.time.at(self.time.now + ready, Event::Ready { pe });
    }

    /// Runs the job from beginning to end.
    pub(crate) fn run(mut self, totals: &mut Totals) {
        self.run_until(LAST_BARRIER);
        self.check_settled();
        for pe in 0..self.pes.len() as u32 {
            let at = LAST_BARRIER + self.rng.below(100 * MS);
            self.time.at(at, Event::Leave { pe });
        }
        self.run_until(END);
        for (pe, this) in self.pes.iter().enumerate() {
            assert_eq!(this.life, Life::Gone, "PE {pe} does not get away");
        }
        self.add_to(totals);
    }

    fn run_until(&mut self, end: u64) {
        loop {
            let up = self.pes.iter().enumerate();
            let up = up.filter(|(_, this)| this.life != Life::Gone);
            let timers =
                up.filter_map(|(i, this)| Some((this.manager.as_ref()?.next_timeout()?, i)));
            match self.time.next(timers, end) {
                None => {
                    self.time.now = end;
                    return;
                }
                Some(Next::Timer(i)) => {
                    let now = self.time.now;
                    if let Some(manager) = &mut self.pes[i].manager {
                        manager.handle_timeout(now);
                        let again = manager.next_timeout();
                        assert!(again.is_none_or(|t| t > now), "a timer does not move on");
                    }
                    self.act(i as u32);
                }
                Some(Next::Event(event)) => self.handle(event),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.time.now;
        match event {
            Event::Datagram { dst, bytes } => {
                let this = &mut self.pes[dst as usize];
                if let Some(manager) = this.manager.as_mut().filter(|_| this.life != Life::Gone) {
                    // Garbled ones are rejected, and the counters are looked at in the end.
                    let _ = manager.handle_datagram(now, &bytes);
                    self.act(dst);
                }
            }
            Event::Connect { pe, to } => self.connect(pe, to),
            Event::Ready { pe } => {
                let this = &mut self.pes[pe as usize];
                if let Some(manager) = &mut this.manager {
                    manager.ready(now, memory(pe));
                    self.act(pe);
                }
            }
            Event::Operate { pe, to } => self.operate(pe, to),
            Event::Complete { pe, to, ini } => self.complete(pe, to, ini),
            Event::Crash { pe } => {
                if self.pes[pe as usize].life != Life::Up {
                    return;
                }
                self.totals.crashes += 1;
                if let Some(manager) = self.pes[pe as usize].manager.take() {
                    self.totals.count(&manager);
                }
                self.pes[pe as usize].life = Life::Gone;
                self.fabric.end(pe);
            }
            Event::Leave { pe } => {
                let this = &mut self.pes[pe as usize];
                if this.manager.is_some() && this.life == Life::Up {
                    this.life = Life::WantsToLeave;
                    this.wants.clear();
                    self.leave_if_idle(pe);
                }
            }
        }
    }

    fn connect(&mut self, pe: u32, to: u32) {
        let node = self.node_of(to);
        let now = self.time.now;
        let this = &mut self.pes[pe as usize];
        if this.life != Life::Up {
            return;
        }
        if let Some(manager) = &mut this.manager {
            this.wants.push(to);
            manager.connect(now, to, node, address(to));
            self.act(pe);
        }
    }

    /// The program of `pe` writes to `to`, connecting if need be.
    fn operate(&mut self, pe: u32, to: u32) {
        let this = &mut self.pes[pe as usize];
        if this.life != Life::Up {
            return;
        }
        let route = this.manager.as_ref().and_then(|manager| manager.route(to));
        let Some(route) = route.filter(|route| !route.draining && !route.left) else {
            self.connect(pe, to);
            return;
        };
        assert_leads_to(&route, to);
        let ini = route.qpn;
        *this.under_way.entry(to).or_default() += 1;
        self.totals.operations += 1;
        let direct = self.pes[pe as usize].nodes().and_then(|n| n.direct(to));
        let taker = self.fabric.deliver(ini);
        assert!(taker.is_none() || taker == direct);
        let delay = self.faults.delay(&mut self.rng) + self.rng.below(50 * MS);
        self.time
            .at(self.time.now + delay, Event::Complete { pe, to, ini });
    }

    fn complete(&mut self, pe: u32, to: u32, ini: Qpn) {
        if !self.fabric.exists(ini) {
            self.totals.operations_lost += 1;
            return;
        }
        // Even the last repetition finds its target, unless that has died.
        let _ = self.fabric.deliver(ini);
        *self.pes[pe as usize].under_way.entry(to).or_default() -= 1;
        self.drain_if_idle(pe, to);
        self.leave_if_idle(pe);
    }

    fn drain_if_idle(&mut self, pe: u32, to: u32) {
        let now = self.time.now;
        let this = &mut self.pes[pe as usize];
        let busy = this.under_way.get(&to).is_some_and(|n| *n > 0);
        if let Some(manager) = &mut this.manager
            && let Some(route) = manager.route(to)
            && route.draining
            && !busy
        {
            let qpn = route.qpn;
            manager.drained(now, to, qpn);
            assert!(manager.route(to).is_none(), "it is drained");
            self.act(pe);
        }
    }

    fn leave_if_idle(&mut self, pe: u32) {
        let now = self.time.now;
        let this = &mut self.pes[pe as usize];
        if this.life != Life::WantsToLeave || this.under_way.values().any(|n| *n > 0) {
            return;
        }
        this.life = Life::Leaving;
        let Some(manager) = &mut this.manager else {
            return;
        };
        manager.leave(now, LINGER);
        loop {
            let Some(manager) = &mut self.pes[pe as usize].manager else {
                return;
            };
            let more = manager.say_bye(now, 2);
            self.act(pe);
            if !more {
                return;
            }
        }
    }

    /// Executes the actions of one PE.
    fn act(&mut self, pe: u32) {
        let now = self.time.now;
        loop {
            let this = &mut self.pes[pe as usize];
            let Some(manager) = &mut this.manager else {
                break;
            };
            let Some((to, action)) = manager.poll_action() else {
                break;
            };
            match action {
                Action::Send { to: at, message } => {
                    let bytes = encoded(manager, &message);
                    assert_eq!(at, address(to));
                    self.transmit(to, &bytes);
                }
                Action::CreateQp => {
                    let qpn = self.fabric.create_ini(pe, to / self.per_node);
                    manager.qp_created(now, to, qpn);
                }
                Action::LinkQp { qpn, sq_psn, link } => {
                    assert_eq!(link.mtu, common_mtu(pe, to));
                    assert_eq!(link.max_rd_atomic, 1 + (pe % 16).min(to % 16) as u8);
                    let alive = self.fabric.open(pe, qpn, sq_psn, &link);
                    self.totals.opened_towards_the_dead += u64::from(!alive);
                }
                Action::Opened { .. } => {
                    assert_leads_to(&manager.route(to).expect("it is open"), to);
                    assert_eq!(this.under_way.get(&to).copied().unwrap_or_default(), 0);
                }
                Action::Drain(qpn) => {
                    let route = manager.route(to).expect("it drains");
                    assert!(route.qpn == qpn && route.draining);
                    self.drain_if_idle(pe, to);
                }
                Action::DestroyQp(qpn) => {
                    let was_open = self.fabric.destroy_ini(pe, qpn);
                    let (node, per_node) = (to / self.per_node, self.per_node);
                    let mut of_node = this
                        .under_way
                        .iter()
                        .filter(|(to, _)| **to / per_node == node);
                    assert!(
                        of_node.all(|(_, n)| *n == 0),
                        "the INI QP of PE {pe} is destroyed under its operations"
                    );
                    // The wishes were fulfilled once; who uses the node next asks again.
                    let wanted = |to: u32| manager.is_wanted(to);
                    this.wants
                        .retain(|to| !was_open || to / per_node != node || wanted(*to));
                }
                Action::DestroyTarget(qpn) => self.fabric.destroy_tgt(pe, qpn),
                Action::CreateTarget(link) => {
                    assert_eq!(link.mtu, common_mtu(pe, to));
                    let qpn = self.fabric.create_tgt(pe, to, &link);
                    manager.target_created(now, to, Some(qpn));
                }
                Action::Failed(failure) => {
                    assert_eq!(failure, Failure::PeerLeft, "PE {pe} to PE {to}");
                    self.assert_left(to);
                    self.pes[pe as usize].wants.retain(|w| *w != to);
                }
                Action::PeerLeft { .. } => {
                    self.assert_left(to);
                    self.pes[pe as usize].wants.retain(|w| *w != to);
                }
                Action::ResetQp(_) | Action::SegmentsAdded => {
                    panic!("PE {pe} towards PE {to}: {action:?}")
                }
            }
        }
        self.go_if_left(pe);
    }

    fn assert_left(&self, pe: u32) {
        let life = self.pes[pe as usize].life;
        assert!(matches!(life, Life::Leaving | Life::Gone), "PE {pe} is up");
    }

    fn go_if_left(&mut self, pe: u32) {
        let this = &mut self.pes[pe as usize];
        let Some(manager) = this.manager.as_ref().filter(|_| this.life == Life::Leaving) else {
            return;
        };
        if !manager.has_left() {
            return;
        }
        this.life = Life::Gone;
        let gave_up = manager.stats().byes_missed > 0;
        let abandoned = self.fabric.end(pe) as u64;
        assert!(abandoned == 0 || gave_up, "PE {pe} goes while it is needed");
        self.totals.abandoned += abandoned;
        self.time.say(|| format!("PE {pe} is gone"));
    }

    fn transmit(&mut self, dst: u32, bytes: &[u8]) {
        let ending = self.time.now >= LAST_BARRIER && self.faults_to_the_end;
        let faults = match self.time.now < HEAL || ending {
            true => self.faults,
            false => self.faults.healed(),
        };
        let arrival = |bytes| Event::Datagram { dst, bytes };
        let copies = faults.send(&mut self.rng, &mut self.time, bytes, arrival);
        self.totals.lost += u64::from(copies == 0);
        self.totals.repeated += u64::from(copies > 1);
    }

    /// Everybody has asked for everybody, and the network has been kind for a while.
    fn check_settled(&mut self) {
        for pe in 0..self.pes.len() as u32 {
            let this = &self.pes[pe as usize];
            if this.life != Life::Up {
                continue;
            }
            let machine = this.nodes().expect("up in the end");
            for to in self.others(pe) {
                let up = self.pes[to as usize].life == Life::Up;
                let wanted = this.wants.contains(&to);
                assert!(
                    machine.is_reachable(to) || !(wanted && up),
                    "PE {pe} -> {to}: {machine:#?}"
                );
            }
            // Exactly one TGT QP per initiator that has chosen this PE, and no other.
            for (initiator, ini) in self.fabric.served_by(pe) {
                let other = &self.pes[initiator as usize];
                let current = other.nodes().and_then(|n| n.connection(self.node_of(pe)));
                let in_use = current == Some((ini, pe));
                // A dead or leaving initiator has not said so.
                let excused = self.crashes || other.life != Life::Up;
                assert!(
                    in_use || excused,
                    "PE {pe} serves PE {initiator} for nothing"
                );
            }
            if !self.crashes {
                for node in 0..self.pes.len() as u32 / self.per_node {
                    if let Some((ini, direct)) = machine.connection(node)
                        && self.pes[direct as usize].life == Life::Up
                    {
                        let served = self.fabric.served_by(direct);
                        assert!(served.contains(&(pe, ini)));
                    }
                }
            }
        }
    }

    fn add_to(mut self, totals: &mut Totals) {
        for manager in self.pes.iter().filter_map(|this| this.manager.as_ref()) {
            self.totals.count(manager);
        }
        totals.add(&self.totals);
    }
}

impl Totals {
    fn count(&mut self, manager: &Manager) {
        let s = manager.stats();
        self.direct += s.xrc.direct;
        self.indirect += s.xrc.indirect;
        self.targets += s.xrc.targets;
        self.moved += s.xrc.moved;
        self.retransmissions += s.retransmissions;
        self.waits += s.waits_sent;
        self.duplicates += s.duplicates;
        self.stale += s.stale;
        self.rejected += s.rejected();
        self.byes_repeated += s.byes_repeated;
        self.byes_missed += s.byes_missed;
        self.first_contact_ms = self.first_contact_ms.max(s.first_contact.max / MS);
    }
}

/// Whoever posts there reaches the memory of `pe`.
pub(crate) fn assert_leads_to(route: &Route<'_>, pe: u32) {
    let its = memory(pe);
    assert_eq!(
        (route.srqn, route.segments),
        (Some(its.srqn), &its.segments)
    );
}
