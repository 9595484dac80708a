//! The rules of making room, and of changed segments, one by one.

use super::tests::{Side, connected, memory, only};
use super::*;
use crate::interface::Action;
use crate::message::{Body, Message, Segment};

fn is_drain(message: &Message, want_reply: bool) -> bool {
    matches!(message.body, Body::Drain(_)) && message.want_reply == want_reply
}

fn done(side: &Side, what: impl Fn(&Action) -> bool) -> bool {
    side.done.iter().any(what)
}

fn destroyed(side: &Side) -> bool {
    done(side, |a| matches!(a, Action::DestroyQp(_)))
}

/// Both may send.
fn open_both_ways() -> (Side, Side) {
    let (mut a, mut b) = connected();
    let request = b.connect();
    let reply = a.receive_all(&request);
    b.receive_all(&reply);
    assert_eq!((a.phase(), b.phase()), (Phase::Open, Phase::Open));
    (a, b)
}

fn drained(side: &mut Side) -> Vec<Message> {
    let (qpn, _) = side.machine.local_qp().unwrap();
    side.event(|h, cx| h.drained(cx, qpn))
}

/// A has begun to make room, and its operations have completed.
fn evict(a: &mut Side) -> Vec<Message> {
    assert!(
        a.event(Handshake::evict).is_empty(),
        "nothing is said before the completions"
    );
    assert!(done(a, |action| matches!(action, Action::Drain(_))));
    assert_eq!(a.phase(), Phase::Draining);
    drained(a)
}

#[test]
fn one_datagram_each_way_closes_an_idle_connection() {
    let (mut a, mut b) = open_both_ways();
    let drain = evict(&mut a);
    assert!(drain.len() == 1 && is_drain(&drain[0], true));
    assert!(b.receive_all(&drain).is_empty() && !destroyed(&b));
    let answer = drained(&mut b);
    assert!(answer.len() == 1 && is_drain(&answer[0], false));
    assert!(a.receive_all(&answer).is_empty());
    assert_eq!((a.phase(), b.phase()), (Phase::Idle, Phase::Idle));
    assert!(destroyed(&a) && destroyed(&b));
    assert_eq!((a.stats.evictions, b.stats.evictions_by_peer), (1, 1));
    // The next use opens it again.
    let request = a.connect();
    let reply = b.receive_all(&request);
    a.receive_all(&reply);
    assert_eq!((a.phase(), a.stats.reconnects), (Phase::Open, 1));
}

#[test]
fn a_busy_peer_asks_for_patience_and_keeps_its_queue_pair() {
    let (mut a, mut b) = open_both_ways();
    let drain = evict(&mut a);
    b.receive_all(&drain);
    for _ in 0..50 {
        let wait = b.event(Handshake::busy);
        assert_eq!(only(&wait).body, Body::Wait);
        a.receive_all(&wait);
        let again = a.timeout();
        assert!(is_drain(&again[0], true));
        let wait = b.receive_all(&again);
        assert_eq!(only(&wait).body, Body::Wait);
        a.receive_all(&wait);
    }
    assert!(!destroyed(&a) && !destroyed(&b));
    assert_eq!(a.stats.drains_abandoned, 0);
    let answer = drained(&mut b);
    a.receive_all(&answer);
    assert!(destroyed(&a) && destroyed(&b));
    assert_eq!(b.stats.drains_deferred, 100);
}

#[test]
fn drains_that_cross_serve_each_other() {
    let (mut a, mut b) = open_both_ways();
    let (from_a, from_b) = (evict(&mut a), evict(&mut b));
    let mut answers = a.receive_all(&from_b);
    answers.extend(b.receive_all(&from_a));
    assert_eq!((a.phase(), b.phase()), (Phase::Idle, Phase::Idle));
    // What they answered is about queue pairs that are gone.
    for message in &answers {
        let to = if message.dst_pe == 0 { &mut a } else { &mut b };
        assert!(to.receive(message).is_empty());
    }
    assert_eq!((a.phase(), b.phase()), (Phase::Idle, Phase::Idle));
}

#[test]
fn a_lost_confirmation_is_given_again_even_if_there_is_a_new_queue_pair() {
    let (mut a, mut b) = open_both_ways();
    let drain = evict(&mut a);
    b.receive_all(&drain);
    let lost = drained(&mut b);
    assert!(is_drain(&lost[0], false));
    let again = a.timeout();
    let second = b.receive_all(&again);
    assert_eq!(second, lost);
    let request = b.connect();
    let new_qp = b.machine.local_qp();
    let third = b.receive_all(&again);
    assert!(is_drain(&third[0], false) && third[0].generation == lost[0].generation);
    assert_eq!(b.machine.local_qp(), new_qp);
    // The request itself tells, too, that the old end is gone.
    let reply = a.receive_all(&request);
    b.receive_all(&reply);
    a.receive_all(&third);
    assert_eq!((a.phase(), b.phase()), (Phase::Answered, Phase::Open));
}

#[test]
fn who_is_still_connecting_may_finish_that_first() {
    let (mut a, mut b) = super::tests::pair();
    let request = a.connect();
    let _lost = b.receive_all(&request);
    let drain = b.event(Handshake::evict);
    assert!(is_drain(&drain[0], true), "B has posted nothing");
    // A learns from the DRAIN that B is ready for it, and gets what it lacks.
    let asked = a.receive_all(&drain);
    assert!(only(&asked).want_reply && matches!(only(&asked).body, Body::Offer(_)));
    let reply = b.receive_all(&asked);
    a.receive_all(&reply);
    assert_eq!((a.phase(), b.phase()), (Phase::Open, Phase::Draining));
    let again = b.timeout();
    a.receive_all(&again);
    let answer = drained(&mut a);
    b.receive_all(&answer);
    assert_eq!((a.phase(), b.phase()), (Phase::Idle, Phase::Idle));
}

#[test]
fn a_dead_peer_is_given_up_after_the_silence() {
    let (mut a, _) = open_both_ways();
    evict(&mut a);
    while a.phase() == Phase::Draining {
        a.timeout();
    }
    assert!(destroyed(&a));
    assert_eq!((a.stats.drains_abandoned, a.phase()), (1, Phase::Idle));
    assert!(a.now >= a.local.retry.silence);
}

#[test]
fn who_made_room_does_not_keep_a_leaving_peer() {
    let (mut a, mut b) = open_both_ways();
    let drain = evict(&mut a);
    b.receive_all(&drain);
    let lost = drained(&mut b);
    assert!(is_drain(&lost[0], false) && b.phase() == Phase::Idle);
    a.local.leaving = true;
    let bye = a.event(Handshake::leave);
    assert_eq!(
        (bye[0].body.clone(), a.phase()),
        (Body::Bye, Phase::Parting)
    );
    let answer = b.receive_all(&bye);
    assert!(is_drain(&answer[0], false));
    a.receive_all(&answer);
    assert_eq!(a.phase(), Phase::Idle, "nobody is left to wait for");
}

#[test]
fn a_wanted_connection_waits_in_line_with_its_ticket() {
    let (mut a, mut b) = super::tests::pair();
    a.may_create = false;
    assert!(a.connect().is_empty());
    assert_eq!(a.machine.waiting(0), Some((1, 0)));
    assert_eq!(a.machine.standing(), Standing::Without);
    a.may_create = true;
    let request = a.event(Handshake::ready);
    assert_eq!(request[0].ticket, 1);
    b.may_create = false;
    let wait = b.receive_all(&request);
    assert_eq!(only(&wait).body, Body::Wait);
    assert_eq!(
        (b.machine.waiting(1), b.stats.requests_queued),
        (Some((1, 0)), 1)
    );
    // A gives its queue pair away and asks again with the same ticket.
    assert!(a.event(Handshake::evict).is_empty());
    assert_eq!((a.machine.waiting(0), a.stats.yields), (Some((1, 0)), 1));
    let again = a.event(Handshake::ready);
    assert_eq!((again[0].ticket, again[0].generation), (1, Generation(2)));
    b.receive_all(&again);
    b.may_create = true;
    let reply = b.event(Handshake::ready);
    a.receive_all(&reply);
    assert_eq!(a.phase(), Phase::Open);
}

fn register(side: &mut Side, size: u64) -> Vec<Message> {
    let known = side.local.memory.get_or_insert_default();
    let id = known.segments.len() as u8;
    known.segments.push(Segment {
        size,
        id,
        ..Segment::default()
    });
    side.event(Handshake::segments_added)
}

#[test]
fn more_segments_are_told_until_they_are_acknowledged() {
    let (mut a, mut b) = open_both_ways();
    let lost = register(&mut b, 7);
    let [
        Message {
            body: Body::Segments(told),
            ..
        },
    ] = &lost[..]
    else {
        panic!("{lost:?}")
    };
    assert_eq!(told.segments.len(), 2);
    assert!(b.machine.may_be_behind(2));
    let again = b.timeout();
    assert_eq!(again, lost);
    let ack = a.receive_all(&again);
    let news = |action: &Action| matches!(action, Action::SegmentsAdded);
    assert!(done(&a, news));
    assert_eq!(only(&ack).body, Body::SegmentsAck(2));
    // The acknowledgement is lost: another is given for the asking.
    let again = b.timeout();
    assert_eq!(a.receive_all(&again), ack);
    b.receive_all(&ack);
    assert!(!b.machine.may_be_behind(2));
    assert_eq!(b.machine.next_timeout(b.local.retry.silence), None);
    assert_eq!(a.done.iter().filter(|action| news(action)).count(), 1);
}

#[test]
fn late_words_of_fewer_segments_change_nothing() {
    let (mut a, mut b) = open_both_ways();
    let second = register(&mut b, 7);
    let third = register(&mut b, 8);
    a.receive_all(&third);
    a.done.clear();
    a.receive_all(&second);
    assert!(a.done.is_empty());
    let request = b.connect();
    assert!(request.is_empty());
    // Who connects anew learns the present ones at once, and no message of its own is needed.
    let (mut c, mut d) = super::tests::pair();
    d.local.memory = Some(memory([]));
    assert!(register(&mut d, 9).is_empty());
    let request = c.connect();
    let reply = d.receive_all(&request);
    assert_eq!(reply.len(), 1);
    c.receive_all(&reply);
    assert!(!d.machine.may_be_behind(1));
    assert!(done(&c, |a| matches!(a, Action::Opened { .. })));
    assert_eq!(c.machine.route().expect("it is open").segments[0].size, 9);
}
