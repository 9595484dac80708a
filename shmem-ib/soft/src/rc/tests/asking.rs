//! Which packets ask for acknowledgements, seen from outside of the requester.

use super::*;
use crate::queues::send::{Done, Wqe};
use crate::rc::requester::{Expiry, Limits};
use shmem_verbs::{Rkey, SendOp, SendWr};

const WRITE: SendOp = SendOp::Write {
    raddr: 0,
    rkey: Rkey(1),
    imm: None,
};

fn requester() -> Requester {
    Requester::new(Psn(10), Limits::new(4096, 4, (14, 7), 7), 1)
}

fn post(r: &mut Requester) {
    let wr = SendWr {
        inline: Some(&[1; 8]),
        ..SendWr::new(0, WRITE, &[])
    };
    r.post(Wqe::new(&wr, true));
}

/// One word to the peer: whether it asked.
fn say(r: &mut Requester, now: u64) -> bool {
    post(r);
    let asks = r.poll(now).expect("there is room").ack_req;
    assert!(r.poll(now).is_none());
    asks
}

/// A word to the peer, acknowledged if it asks, and one of the peer.
fn turn(r: &mut Requester, now: u64, done: &mut Vec<Done>) -> bool {
    let asks = say(r, now);
    if asks {
        r.on_ack(now, r.cur.add(Psn::MASK), done);
    }
    r.peer_has_turn();
    asks
}

#[test]
fn words_in_turn_are_acknowledged_now_and_then() {
    let (mut r, mut done) = (requester(), Vec::new());
    let asked: Vec<bool> = (0..100).map(|now| turn(&mut r, now, &mut done)).collect();
    let first = asked
        .iter()
        .position(|asks| !asks)
        .expect("some do not ask");
    assert_eq!(first, TURNS as usize);
    let later = &asked[first..];
    let expected = (1..=later.len()).map(|n| n % (LONGEST as usize + 1) == 0);
    assert!(expected.eq(later.iter().copied()), "{later:?}");
    assert!(r.len() <= LONGEST as usize && done.len() + r.len() == 100);
}

#[test]
fn a_stream_asks_always() {
    let (mut r, mut done) = (requester(), Vec::new());
    for now in 0..50 {
        turn(&mut r, now, &mut done);
    }
    // The first follows the peer's word, and the others nothing.
    say(&mut r, 50);
    for now in 51..60 {
        assert!(say(&mut r, now));
    }
}

#[test]
fn who_waits_gets_an_acknowledgement_and_costs_trust() {
    let (mut r, mut done) = (requester(), Vec::new());
    for round in 0..4 {
        let mut turns = 0;
        while turn(&mut r, 0, &mut done) {
            turns += 1;
        }
        assert!(turns >= TURNS << round, "round {round}: {turns}");
        assert!(r.is_unasked() && r.demand() && r.has_unsent());
        let (psn, last) = (r.cur.add(Psn::MASK), r.poll(1).expect("it asks"));
        assert_eq!((last.psn, last.ack_req, last.again), (psn, true, true));
        assert!(r.poll(1).is_none() && !r.demand());
        r.on_ack(2, psn, &mut done);
        assert_eq!((r.len(), r.deadline()), (0, None));
    }
    // With something else to send, that asks.
    while turn(&mut r, 3, &mut done) {}
    assert!(r.demand());
    post(&mut r);
    let next = r.poll(3).expect("there is room");
    assert!(next.ack_req && !next.again);
    assert!(r.poll(3).is_none());
}

#[test]
fn what_nobody_asked_for_is_asked_for_after_the_timeout() {
    let (mut r, mut done) = (requester(), Vec::new());
    while turn(&mut r, 0, &mut done) {}
    let at = r.deadline().expect("something is in flight");
    assert_eq!(r.on_timeout(at), Expiry::Ask);
    let again = r.poll(at).expect("it asks");
    assert!(again.again && again.ack_req);
    // That one is lost, and everything from the oldest on is repeated.
    let later = r.deadline().expect("something is in flight");
    assert_eq!(r.on_timeout(later), Expiry::Resend);
    let (oldest, repeated) = (r.oldest(), r.poll(later).expect("a packet"));
    assert!(repeated.psn == oldest && repeated.ack_req);
}
