//! The processes: their programs, what RC does for them, and the driver of the manager.

use shmem_ib::connect::handshake::Action;
use shmem_ib::connect::manager::Usage;
use shmem_ib::connect::message::MAX_LEN;

use super::{Event, GIVE_UP, Op, Thread, US, World, address};
use shmem_ib::verbs::Qpn;

use crate::fabric::Delivery;

impl World {
    pub(super) fn execute(&mut self, op: usize) {
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
    pub(super) fn finish(&mut self, op: usize, good: bool) {
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
        self.last_end = self.now;
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
    pub(super) fn run_thread(&mut self, pe: u32, thread: usize) {
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
    pub(super) fn act(&mut self, pe: u32) {
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
}
