//! The rules of leaving one by one.

use super::tests::{MS, Side, connected, only, pair};
use super::*;
use crate::interface::{Action, Failure, Verdict};
use crate::message::{Body, Message};

fn leave(side: &mut Side) -> Vec<Message> {
    side.local.leaving = true;
    side.event(Handshake::leave)
}

fn is_bye(message: &Message, want_reply: bool) -> bool {
    message.body == Body::Bye && message.want_reply == want_reply
}

fn peer_left(side: &Side) -> bool {
    side.done
        .iter()
        .any(|a| matches!(a, Action::PeerLeft { .. }))
}

#[test]
fn one_datagram_each_way_parts_two_peers() {
    let (mut a, mut b) = connected();
    let bye = leave(&mut a);
    assert!(bye.len() == 1 && is_bye(&bye[0], true));
    assert_eq!(a.phase(), Phase::Parting);
    assert!(b.receive_all(&bye).is_empty(), "B has not left yet");
    assert!(peer_left(&b) && b.phase() == Phase::Answered);
    let answer = leave(&mut b);
    assert!(answer.len() == 1 && is_bye(&answer[0], false));
    assert!(a.receive_all(&answer).is_empty());
    assert_eq!((a.phase(), b.phase()), (Phase::Parted, Phase::Parted));
    assert_eq!(a.machine.next_timeout(a.local.retry.silence), None);
    assert!(leave(&mut a).is_empty(), "leaving twice is leaving once");
}

#[test]
fn byes_that_cross_are_not_repeated() {
    let (mut a, mut b) = connected();
    let (from_a, from_b) = (leave(&mut a), leave(&mut b));
    assert!(a.receive_all(&from_b).is_empty() && b.receive_all(&from_a).is_empty());
    assert_eq!((a.phase(), b.phase()), (Phase::Parted, Phase::Parted));
}

#[test]
fn a_lost_bye_is_repeated_and_answered_at_once() {
    let (mut a, mut b) = connected();
    leave(&mut a);
    let lost = leave(&mut b);
    assert!(is_bye(&lost[0], true));
    let mut expected = 20 * MS;
    for _ in 0..6 {
        let before = a.now;
        let again = a.timeout();
        assert!(again.len() == 1 && is_bye(&again[0], true));
        let interval = a.now - before;
        assert!((expected * 3 / 4..=expected * 5 / 4).contains(&interval));
        expected = (2 * expected).min(80 * MS);
        b.now = a.now;
        let reply = b.receive_all(&again);
        assert!(reply.len() == 1 && is_bye(&reply[0], false));
        assert_eq!(b.phase(), Phase::Parted);
    }
    assert_eq!(a.stats.byes_repeated, 6);
}

#[test]
fn a_bye_of_another_queue_pair_is_ignored() {
    let (mut a, mut b) = connected();
    let good = leave(&mut a).remove(0);
    for (from, echo) in [
        (good.generation, Generation(2)),
        (Generation(7), Generation(3)),
    ] {
        let before = b.machine.clone();
        let bye = Message {
            generation: from,
            echo: Some(echo),
            ..good.clone()
        };
        assert!(b.receive(&bye).is_empty());
        assert_eq!(b.machine, before);
    }
    assert!(!peer_left(&b));
    b.receive(&good);
    assert!(peer_left(&b));
}

#[test]
fn a_peer_that_has_left_cannot_be_connected() {
    let (mut a, mut b) = connected();
    let bye = leave(&mut a);
    b.receive_all(&bye);
    b.done.clear();
    assert!(b.connect().is_empty());
    assert_eq!(b.done, [Action::Failed(Failure::PeerLeft)]);
}

#[test]
fn who_leaves_refuses_new_connections() {
    let (mut a, mut b) = pair();
    leave(&mut b);
    let refusal = {
        let request = a.connect();
        b.receive_all(&request)
    };
    assert!(refusal.len() == 1 && is_bye(&refusal[0], false));
    assert_eq!(
        (refusal[0].generation, b.phase()),
        (Generation::NONE, Phase::Idle)
    );
    a.receive_all(&refusal);
    assert_eq!(a.phase(), Phase::Idle);
    assert_eq!(
        a.done,
        [
            Action::DestroyQp(Qpn(101)),
            Action::Failed(Failure::PeerLeft),
            Action::PeerLeft { waits: false },
        ]
    );
    assert!(a.connect().is_empty());
    assert_eq!(a.done[3], Action::Failed(Failure::PeerLeft));
    assert!(b.connect().is_empty() && b.phase() == Phase::Idle);
}

#[test]
fn a_wanted_connection_fails_when_the_peer_leaves() {
    // B has answered, but the answer is lost, and B leaves.
    let (mut a, mut b) = pair();
    let request = a.connect();
    b.receive_all(&request);
    let bye = leave(&mut b);
    assert!(is_bye(&bye[0], true) && b.phase() == Phase::Parting);
    let answer = a.receive_all(&bye);
    assert!(a.done.contains(&Action::Failed(Failure::PeerLeft)));
    assert_eq!(a.phase(), Phase::Idle);
    // A has a queue pair that B knows, so B need not linger.
    assert!(answer.len() == 1 && is_bye(&answer[0], false));
    b.receive_all(&answer);
    assert_eq!(b.phase(), Phase::Parted);
}

#[test]
fn who_has_operations_under_way_asks_for_patience() {
    let (mut a, mut b) = connected();
    let bye = leave(&mut b);
    a.receive_all(&bye);
    assert!(a.done.contains(&Action::PeerLeft { waits: true }));
    let wait = a.event(Handshake::busy);
    assert_eq!(only(&wait).body, Body::Wait);
    let mut verdict = None;
    b.event(|h, cx| verdict = Some(h.handle_message(cx, wait[0].clone())));
    assert_eq!(verdict, Some(Verdict::Accepted));
    assert_eq!(b.phase(), Phase::Parting);
    // Before the connection is there, and after the own BYE, there is nobody to ask.
    leave(&mut a);
    assert!(a.event(Handshake::busy).is_empty());
}
