//! The processes: their programs, what RC does for them, and the driver of the manager.

use shmem_ib::connect::interface::{Action, Failure};
use shmem_ib::connect::manager::Usage;

use super::{Event, GIVE_UP, Op, Thread, World};
use shmem_ib::verbs::Qpn;

use crate::rc::fabric::Delivery;
use crate::world::{US, address, encoded};

impl World {
    pub(super) fn execute(&mut self, op: usize) {
        let Op { from, to, qpn, .. } = self.ops[op];
        if !self.is_up(from) {
            return; // nobody repeats it any more
        }
        if let Some(end) = self.cut_until(from, to) {
            return self.time.at(end + self.rc_delay, Event::Execute { op });
        }
        match self.fabric.deliver(qpn) {
            Delivery::To(owner, _) => {
                assert_eq!(owner, to);
                self.ops[op].executed += 1;
                assert_eq!(self.ops[op].executed, 1, "op {op} is executed twice");
                let target = &mut self.pes[to as usize];
                target.posts += 1;
                target.peers.entry(from).or_default().used = target.posts;
                let delay = self.rng.below(self.rc_delay) + 1;
                let peer = self.pes[from as usize].peers.entry(to).or_default();
                let at = (self.time.now + delay).max(peer.last_completion);
                peer.last_completion = at;
                self.time.at(at, Event::Complete { op });
                self.act(to);
            }
            Delivery::NoReceiver => {
                assert!(
                    !self.is_up(to),
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
            thread,
            done,
            ..
        } = self.ops[op];
        if done || !self.is_up(from) {
            return;
        }
        self.ops[op].done = true;
        self.last_end = self.time.now;
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
        let at = self.time.now + self.rng.below(300 * US);
        self.time.at(at, Event::Run { pe, thread });
    }

    /// A thread of the program: batches of operations, each to one peer, each awaited.
    pub(super) fn run_thread(&mut self, pe: u32, thread: usize) {
        let now = self.time.now;
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
        let entitled = waited && peer.entitled > 0;
        let route = manager
            .route(to)
            .filter(|route| !route.draining || entitled);
        let Some(qpn) = route.map(|route| route.qpn) else {
            if !waited {
                t.waits_for = Some(to);
                peer.waiters += 1;
            }
            if !manager.is_wanted(to) {
                manager.connect(clock, to, to, address(to));
            }
            return;
        };
        if t.waits_for.take().is_some() {
            peer.waiters -= 1;
            peer.entitled = peer.entitled.saturating_sub(1).min(peer.waiters);
            manager.usage_changed();
        }
        t.todo.pop_front();
        for _ in 0..=self.rng.below(3) {
            let op = self.ops.len();
            self.ops.push(Op {
                from: pe,
                to,
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
            self.time.at(at, Event::Execute { op });
            self.time.at(now + GIVE_UP, Event::GiveUp { op });
        }
    }

    /// A drain that may have come to its end; returns whether it has.
    fn attend(&mut self, pe: u32, to: u32) -> bool {
        let me = &mut self.pes[pe as usize];
        let clock = me.clock(self.time.now);
        let (Some(manager), Some(peer)) = (&mut me.manager, me.peers.get(&to)) else {
            return false;
        };
        let idle = peer.completed == peer.posted && peer.entitled == 0;
        let Some(route) = manager.route(to).filter(|route| route.draining && idle) else {
            return false;
        };
        let qpn = route.qpn;
        manager.drained(clock, to, qpn);
        assert!(manager.route(to).is_none(), "it is drained");
        true
    }

    /// Does what one process would do whenever it has the processor.
    pub(super) fn act(&mut self, pe: u32) {
        loop {
            self.execute_actions(pe);
            let known: Vec<u32> = self.pes[pe as usize].peers.keys().copied().collect();
            if known.into_iter().any(|to| self.attend(pe, to)) {
                continue;
            }
            let me = &mut self.pes[pe as usize];
            let clock = me.clock(self.time.now);
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
            let now = self.time.now;
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
                    let bytes = encoded(manager, &message);
                    assert_eq!(at, address(to));
                    self.time.say(|| format!("PE {pe} sends {message:?}"));
                    self.transmit(pe, to, &bytes);
                }
                Action::CreateQp => {
                    let qpn = self.fabric.create(pe, to);
                    manager.qp_created(clock, to, qpn);
                }
                Action::LinkQp { qpn, sq_psn, link } => {
                    self.fabric.link(pe, qpn, sq_psn, &link);
                }
                Action::ResetQp(qpn) => self.fabric.reset(pe, qpn),
                Action::DestroyQp(qpn) => {
                    self.fabric.destroy(pe, qpn);
                    self.destroyed(to, qpn);
                }
                Action::Opened { .. } => {
                    let route = manager.route(to).expect("it is open");
                    self.fabric.open(pe, route.qpn);
                    me.posts += 1;
                    let peer = me.peers.entry(to).or_default();
                    peer.entitled = peer.waiters;
                    peer.used = me.posts;
                    peer.told = route.segments.len();
                    let waiting = |t: &Thread| t.waits_for == Some(to);
                    let threads: Vec<usize> = (0..me.threads.len())
                        .filter(|i| waiting(&me.threads[*i]))
                        .collect();
                    for thread in threads {
                        self.wake(pe, thread);
                    }
                }
                Action::Drain(qpn) => {
                    let route = manager.route(to).expect("it drains");
                    assert!(route.qpn == qpn && route.draining);
                    self.attend(pe, to);
                    if let Some(manager) = &mut self.pes[pe as usize].manager {
                        manager.busy(clock, to);
                    }
                }
                Action::SegmentsAdded => {
                    let route = manager.route(to).expect("somebody can make use of it");
                    let known = route.segments.len();
                    let peer = me.peers.entry(to).or_default();
                    assert!(peer.told < known);
                    peer.told = known;
                }
                Action::Failed(Failure::Silence { .. }) if !self.is_up(to) => self.lost(pe, to),
                other => panic!("PE {pe} towards PE {to}: {other:?}"),
            }
        }
    }

    /// The program has lost its peer, to which it could not connect.
    fn lost(&mut self, pe: u32, to: u32) {
        self.totals.failed_contacts += 1;
        for thread in 0..self.pes[pe as usize].threads.len() {
            let me = &mut self.pes[pe as usize];
            let t = &mut me.threads[thread];
            t.todo.retain(|peer| *peer != to);
            if t.waits_for == Some(to) {
                t.waits_for = None;
                let peer = me.peers.entry(to).or_default();
                peer.waiters -= 1;
                peer.entitled = peer.entitled.min(peer.waiters);
                self.wake(pe, thread);
            }
        }
    }

    /// The operations on a queue pair that is gone. Without a crash there are none.
    fn destroyed(&mut self, to: u32, qpn: Qpn) {
        for op in 0..self.ops.len() {
            let Op { qpn: its, done, .. } = self.ops[op];
            if its != qpn || done {
                continue;
            }
            assert!(
                !self.is_up(to),
                "the queue pair of op {op} is destroyed under it: {}",
                self.describe()
            );
            self.finish(op, false);
        }
    }
}
