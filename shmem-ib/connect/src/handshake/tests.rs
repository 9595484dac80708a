//! The rules of the handshake one by one; the simulations in `tests/handshake` combine them.

use super::*;
use crate::ConnectStats;
use crate::interface::{Action, Actions, EventContext, Failure, Local, Verdict};
use crate::message::{Body, Memory, Message, Segment};
use crate::retry::RetryPolicy;
use shmem_verbs::Mtu;
use shmem_verbs::rng::Rng;

pub(super) const MS: u64 = 1_000_000;

/// One side, with a driver that makes queue pairs at once.
pub(super) struct Side {
    pub(super) machine: Handshake,
    pub(super) local: Local,
    rng: Rng,
    pub(super) stats: ConnectStats,
    next_qpn: u32,
    clock: u64,
    pub(super) may_create: bool,
    pub(super) now: u64,
    pub(super) done: Vec<Action>,
}

impl Side {
    pub(super) fn new(pe: u32, ready: bool) -> Self {
        let segment = Segment {
            address: u64::from(pe) << 20,
            size: 4096,
            ..Segment::default()
        };
        let local = Local {
            pe,
            ud: address(pe),
            mtu: if pe == 0 { Mtu::M4096 } else { Mtu::M1024 },
            max_rd_atomic: 4 * (pe as u8 + 1),
            memory: ready.then(|| memory([segment])),
            max_qps: 0,
            leaving: false,
            retry: RetryPolicy::default(),
        };
        Self {
            machine: Handshake::new(1 - pe),
            local,
            rng: Rng::new(u64::from(pe)),
            stats: ConnectStats::default(),
            next_qpn: 100 * (pe + 1),
            clock: 0,
            may_create: true,
            now: 0,
            done: Vec::new(),
        }
    }

    /// Runs one event and returns the messages that it sends; other actions go to `done`.
    pub(super) fn event<R>(
        &mut self,
        f: impl FnOnce(&mut Handshake, &mut EventContext<'_>) -> R,
    ) -> Vec<Message> {
        let mut actions = Actions::new();
        self.call(&mut actions, f);
        let mut sent = Vec::new();
        let mut at = 0;
        while at < actions.len() {
            if actions[at].1 == Action::CreateQp {
                self.next_qpn += 1;
                let qpn = Qpn(self.next_qpn);
                self.call(&mut actions, |h, cx| h.qp_created(cx, qpn));
            }
            at += 1;
        }
        for (pe, action) in actions {
            assert_eq!(pe, 1 - self.local.pe);
            match action {
                Action::Send { to, message } => {
                    assert_eq!(
                        (to, message.dst_pe),
                        (address(1 - self.local.pe), 1 - self.local.pe)
                    );
                    sent.push(message);
                }
                Action::CreateQp => {}
                other => self.done.push(other),
            }
        }
        sent
    }

    fn call<R>(
        &mut self,
        actions: &mut Actions,
        f: impl FnOnce(&mut Handshake, &mut EventContext<'_>) -> R,
    ) {
        let mut cx = EventContext {
            now: self.now,
            local: &self.local,
            rng: &mut self.rng,
            actions,
            stats: &mut self.stats,
            clock: &mut self.clock,
            may_create: self.may_create,
        };
        f(&mut self.machine, &mut cx);
    }

    pub(super) fn connect(&mut self) -> Vec<Message> {
        let to = address(1 - self.local.pe);
        self.event(|h, cx| h.connect(cx, to))
    }

    pub(super) fn receive(&mut self, message: &Message) -> Vec<Message> {
        self.event(|h, cx| h.handle_message(cx, message.clone()))
    }

    pub(super) fn receive_all(&mut self, messages: &[Message]) -> Vec<Message> {
        messages.iter().flat_map(|m| self.receive(m)).collect()
    }

    /// Goes to the next timeout.
    pub(super) fn timeout(&mut self) -> Vec<Message> {
        self.now = self
            .machine
            .next_timeout(self.local.retry.silence)
            .expect("a timer is set");
        self.event(Handshake::handle_timeout)
    }

    pub(super) fn phase(&self) -> Phase {
        self.machine.phase()
    }
}

pub(super) fn only(sent: &[Message]) -> &Message {
    let [message] = sent else {
        panic!("one message: {sent:?}")
    };
    message
}

pub(super) fn memory<const N: usize>(segments: [Segment; N]) -> Memory {
    Memory {
        segments: segments.into_iter().collect(),
        ..Memory::default()
    }
}

fn address(pe: u32) -> UdAddress {
    UdAddress {
        udp_port: 1 + pe as u16,
        ..UdAddress::default()
    }
}

pub(super) fn pair() -> (Side, Side) {
    (Side::new(0, true), Side::new(1, true))
}

/// A connects to B without trouble.
pub(super) fn connected() -> (Side, Side) {
    let (mut a, mut b) = pair();
    let request = a.connect();
    let reply = b.receive_all(&request);
    assert!(a.receive_all(&reply).is_empty());
    (a, b)
}

fn assert_open_together(a: &Side, b: &Side) {
    assert_eq!((a.phase(), b.phase()), (Phase::Open, Phase::Open));
    for (x, y) in [(a, b), (b, a)] {
        let (qpn, psn) = y.machine.local_qp().unwrap();
        assert_eq!(x.machine.linked_to(), Some((qpn, psn)));
        let opened = x
            .done
            .iter()
            .filter(|a| matches!(a, Action::Opened { .. }))
            .count();
        assert_eq!(opened, 1);
    }
}

#[test]
fn two_messages_let_the_active_side_send() {
    let (mut a, mut b) = pair();
    let request = a.connect();
    assert_eq!(
        (request.len(), request[0].want_reply, request[0].echo),
        (1, true, None)
    );
    let reply = b.receive(&request[0]);
    assert_eq!((reply.len(), reply[0].want_reply), (1, false));
    assert_eq!(reply[0].echo, Some(request[0].generation));
    assert_eq!(b.phase(), Phase::Answered);
    assert_eq!(
        b.machine.next_timeout(b.local.retry.silence),
        None,
        "the passive side has no timer"
    );
    assert!(a.receive(&reply[0]).is_empty());
    assert_eq!(a.phase(), Phase::Open);
    assert!(matches!(a.done[1], Action::Opened { .. }));
    let route = a.machine.route().expect("it is open");
    assert_eq!(route.segments[0].address, 1 << 20);
    assert_eq!(
        (a.stats.offers_sent, b.stats.offers_sent, b.stats.accepted),
        (1, 1, 1)
    );
}

#[test]
fn link_attributes_are_what_both_can_do() {
    let (a, b) = connected();
    let link = |side: &Side| match side.done[0] {
        Action::LinkQp { qpn, sq_psn, link } => (qpn, sq_psn, link),
        ref other => panic!("{other:?}"),
    };
    let ((a_qpn, a_psn, to_b), (b_qpn, b_psn, to_a)) = (link(&a), link(&b));
    assert_eq!((to_a.mtu, to_b.mtu), (Mtu::M1024, Mtu::M1024));
    assert_eq!((a_psn, to_b.psn), (to_a.psn, b_psn));
    assert_eq!((a_qpn, to_b.qpn), (to_a.qpn, b_qpn));
    // A answers 4 at a time, B 8: nobody may have more than 4 outstanding towards A.
    assert_eq!((to_a.max_rd_atomic, to_a.max_dest_rd_atomic), (4, 8));
    assert_eq!((to_b.max_rd_atomic, to_b.max_dest_rd_atomic), (4, 4));
}

#[test]
fn the_passive_side_asks_once_when_it_wants_to_send() {
    let (mut a, mut b) = connected();
    let request = b.connect();
    assert_eq!((request.len(), request[0].want_reply), (1, true));
    let reply = a.receive(&request[0]);
    assert_eq!((reply.len(), reply[0].want_reply), (1, false));
    assert!(b.receive(&reply[0]).is_empty());
    assert_open_together(&a, &b);
    assert_eq!(b.machine.linked_to().unwrap().0, Qpn(101));
}

#[test]
fn simultaneous_offers_open_both_sides_in_one_round() {
    let (mut a, mut b) = pair();
    let (from_a, from_b) = (a.connect(), b.connect());
    let (to_b, to_a) = (a.receive_all(&from_b), b.receive_all(&from_a));
    assert_eq!((a.phase(), b.phase()), (Phase::Answered, Phase::Answered));
    assert!(a.receive_all(&to_a).is_empty() && b.receive_all(&to_b).is_empty());
    assert_open_together(&a, &b);
    assert_eq!((a.stats.simultaneous, b.stats.simultaneous), (1, 1));
}

#[test]
fn a_lost_request_and_a_lost_reply_are_repeated() {
    let (mut a, mut b) = pair();
    a.connect();
    let second = a.timeout();
    b.receive_all(&second);
    let third = a.timeout();
    let reply = b.receive_all(&third);
    assert_eq!(reply.len(), 1, "a duplicate that asks is answered again");
    a.receive_all(&reply);
    assert_eq!((a.phase(), b.phase()), (Phase::Open, Phase::Answered));
    assert_eq!(
        (a.stats.retransmissions, b.next_qpn),
        (2, 201),
        "with the same queue pair"
    );
    assert_eq!(a.machine.next_timeout(a.local.retry.silence), None);
}

#[test]
fn every_message_repeated_and_late_changes_nothing() {
    let (mut a, mut b) = pair();
    let request = a.connect();
    let reply = b.receive_all(&request);
    a.receive_all(&reply);
    let before = (a.machine.clone(), b.machine.clone());
    for _ in 0..3 {
        assert_eq!(b.receive_all(&request), reply);
        assert!(a.receive_all(&reply).is_empty());
    }
    assert_eq!((a.machine, b.machine), before);
    assert_eq!(
        a.done
            .iter()
            .filter(|x| matches!(x, Action::Opened { .. }))
            .count(),
        1
    );
}

#[test]
fn intervals_double_from_1_ms_to_250_ms_with_jitter() {
    let (mut a, _) = pair();
    a.connect();
    let mut expected = MS;
    for _ in 0..15 {
        let before = a.now;
        assert_eq!(a.timeout().len(), 1);
        let interval = a.now - before;
        assert!(
            (expected * 3 / 4..=expected * 5 / 4).contains(&interval),
            "{interval}"
        );
        expected = (expected * 2).min(250 * MS);
    }
}

#[test]
fn silence_fails_and_a_late_answer_is_ignored() {
    let (mut a, mut b) = pair();
    let request = a.connect();
    while a.phase() == Phase::Offered {
        a.timeout();
    }
    assert!(a.now >= 60_000 * MS && a.now < 60_300 * MS);
    let failed = a.done.pop().unwrap();
    assert!(
        matches!(
            failed,
            Action::Failed(Failure::Silence { sent: 200..300, .. })
        ),
        "{failed:?}"
    );
    assert_eq!(a.done.pop(), Some(Action::DestroyQp(Qpn(101))));
    let reply = b.receive_all(&request);
    assert!(a.receive_all(&reply).is_empty() && a.phase() == Phase::Idle);
    // A new attempt is a new generation, which B takes instead of the old one.
    let again = a.connect();
    assert_eq!(again[0].generation, Generation(2));
    let reply = b.receive_all(&again);
    assert!(b.done.contains(&Action::ResetQp(Qpn(201))));
    a.receive_all(&reply);
    assert_eq!(a.phase(), Phase::Open);
    assert_eq!(a.machine.linked_to().unwrap().0, Qpn(201));
}

#[test]
fn wait_keeps_the_asker_alive_and_the_answer_comes_by_itself() {
    let (mut a, mut b) = (Side::new(0, true), Side::new(1, false));
    let request = a.connect();
    let mut wait = b.receive_all(&request);
    assert_eq!(b.phase(), Phase::Preparing);
    for _ in 0..1000 {
        assert_eq!(only(&wait).body, Body::Wait);
        a.receive_all(&wait);
        let before = a.now;
        let again = a.timeout();
        assert!(a.now - before >= 187 * MS, "after a WAIT there is no hurry");
        wait = b.receive_all(&again);
    }
    assert!(
        a.now > 180_000 * MS && a.phase() == Phase::Offered,
        "three times the deadline"
    );
    b.local.memory = Some(Memory::default());
    let answer = b.event(Handshake::ready);
    assert_eq!((answer.len(), answer[0].want_reply), (1, false));
    a.receive_all(&answer);
    assert_eq!(a.phase(), Phase::Open);
    assert_eq!(
        b.event(Handshake::ready).len(),
        0,
        "ready twice is ready once"
    );
}

#[test]
fn a_wait_for_another_queue_pair_does_not_count() {
    let (mut a, mut b) = (Side::new(0, true), Side::new(1, false));
    let request = a.connect();
    let mut wait = b.receive_all(&request).remove(0);
    wait.echo = Some(Generation(7));
    let before = a.machine.clone();
    a.receive(&wait);
    assert_eq!(a.machine, before);
}

#[test]
fn both_may_want_before_either_is_ready() {
    let (mut a, mut b) = (Side::new(0, false), Side::new(1, false));
    assert!(a.connect().is_empty() && b.connect().is_empty());
    a.local.memory = Some(Memory::default());
    let request = a.event(Handshake::ready);
    let wait = b.receive_all(&request);
    a.receive_all(&wait);
    b.local.memory = Some(Memory::default());
    let answer = b.event(Handshake::ready);
    // B wants too, and has not asked: its answer does.
    assert!(only(&answer).want_reply && answer[0].echo.is_some());
    let reply = a.receive_all(&answer);
    b.receive_all(&reply);
    assert_open_together(&a, &b);
}

/// A makes room, and B is silent.
fn give_up(a: &mut Side, b: &mut Side) {
    a.event(Handshake::evict);
    let (qpn, _) = a.machine.local_qp().unwrap();
    a.event(|h, cx| h.drained(cx, qpn));
    while a.phase() == Phase::Draining {
        a.timeout();
    }
    b.now = a.now;
    a.done.clear();
}

/// A has given its queue pair up, since B was silent when it made room; B lives, and still has its own.
fn half_forgotten() -> (Side, Side) {
    let (mut a, mut b) = connected();
    let reply = {
        let request = b.connect();
        a.receive_all(&request)
    };
    b.receive_all(&reply);
    give_up(&mut a, &mut b);
    b.done.clear();
    (a, b)
}

#[test]
fn a_new_queue_pair_of_the_peer_replaces_an_open_one() {
    let (mut a, mut b) = half_forgotten();
    let request = a.connect();
    let reply = b.receive_all(&request);
    assert_eq!(b.done[0], Action::DestroyQp(Qpn(201)));
    a.receive_all(&reply);
    assert_eq!((a.phase(), b.phase()), (Phase::Open, Phase::Answered));
    assert_eq!(
        (b.machine.local_qp().unwrap().0, b.stats.replaced),
        (Qpn(202), 1)
    );
}

#[test]
fn late_offers_of_an_earlier_queue_pair_are_ignored() {
    let (mut a, mut b) = half_forgotten();
    let late = {
        let (mut early, _) = pair();
        early.connect()
    };
    let request = a.connect();
    b.receive_all(&request);
    let before = b.machine.clone();
    let verdict = std::cell::Cell::new(None);
    let told = b.event(|h, cx| verdict.set(Some(h.handle_message(cx, late[0].clone()))));
    assert!(told.is_empty());
    assert_eq!(verdict.get(), Some(Verdict::Stale));
    assert_eq!(b.machine, before);
}

#[test]
fn an_offer_bound_to_an_earlier_queue_pair_is_not_linked() {
    let (mut a, mut b) = connected();
    let for_the_old = b.connect();
    assert!(for_the_old[0].echo.is_some());
    // A is as if it had never heard B, and has another queue pair.
    give_up(&mut a, &mut b);
    a.connect();
    let unlinked = a.receive_all(&for_the_old);
    assert_eq!(a.phase(), Phase::Offered, "b's belongs to the old one");
    assert_eq!(only(&unlinked).echo, None);
    // B learns of the new one, moves its queue pair, and asks again at once.
    let request = b.receive_all(&unlinked);
    assert!(only(&request).want_reply && request[0].echo.is_some());
    let reply = a.receive_all(&request);
    b.receive_all(&reply);
    assert_open_together(&a, &b);
}

#[test]
fn a_queue_pair_that_cannot_be_made_is_reported() {
    let mut a = Side::new(0, true);
    let mut actions = Actions::new();
    let mut cx = EventContext {
        now: 0,
        local: &a.local,
        rng: &mut a.rng,
        actions: &mut actions,
        stats: &mut a.stats,
        clock: &mut a.clock,
        may_create: true,
    };
    a.machine.connect(&mut cx, address(1));
    a.machine.qp_failed(&mut cx, "no more queue pairs".into());
    let failure = Failure::QueuePair("no more queue pairs".into());
    assert_eq!(
        actions,
        [(1, Action::CreateQp), (1, Action::Failed(failure))]
    );
    assert_eq!(a.phase(), Phase::Idle);
    assert_eq!(a.connect().len(), 1, "and may be tried again");
}
