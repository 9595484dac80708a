//! Connections to nodes, event by event.

use std::net::Ipv4Addr;

use crate::UdAddress;
use crate::interface::{Action, Failure, Local};
use crate::manager::{Identity, Manager};
use crate::message::{Body, MAX_LEN, Memory, Message, Segment};
use crate::retry::RetryPolicy;
use shmem_verbs::{Mtu, Qkey, Qpn, Rkey, SrqNum};

const MS: u64 = 1_000_000;

fn address(pe: u32) -> UdAddress {
    UdAddress {
        gid: Ipv4Addr::new(10, 0, 0, pe as u8).into(),
        udp_port: 4791,
        qpn: Qpn(pe + 1),
        qkey: Qkey(pe + 1),
    }
}

fn memory(pe: u32) -> Memory {
    Memory {
        srqn: SrqNum(pe + 100),
        segments: std::iter::once(Segment {
            address: u64::from(pe) << 32,
            size: 4096,
            rkey: Rkey(pe),
            id: 0,
        })
        .collect(),
    }
}

/// The same with another segment behind.
fn more_memory(pe: u32) -> Memory {
    let mut more = memory(pe);
    more.segments.push(Segment {
        id: 7,
        ..more.segments[0]
    });
    more
}

/// PE 0 on node 0; PEs 1, 2, 3 on node 1.
fn manager(pe: u32, memory: Option<Memory>) -> Manager {
    let identity = Identity {
        job_id: [1; 16],
        job_key: &[2; 32],
        n_pes: 4,
    };
    let local = Local {
        pe,
        ud: address(pe),
        mtu: Mtu::M1024,
        max_rd_atomic: 4,
        memory,
        max_qps: 0,
        leaving: false,
        retry: RetryPolicy::default(),
    };
    Manager::of_nodes(&identity, local, u64::from(pe))
}

fn machine(pe: u32) -> Manager {
    manager(pe, Some(memory(pe)))
}

fn target_of(manager: &Manager, pe: u32) -> Option<Qpn> {
    manager.nodes()?.target(pe).map(|(qpn, _)| qpn)
}

fn is_reachable(manager: &Manager, pe: u32) -> bool {
    manager.nodes().is_some_and(|nodes| nodes.is_reachable(pe))
}

fn connection(manager: &Manager) -> Option<(Qpn, u32)> {
    manager.nodes()?.connection(1)
}

/// Actions without sends; messages; queue pairs are made at once, with `qpn`.
#[derive(Default)]
struct Outcome {
    actions: Vec<(u32, Action)>,
    sent: Vec<Message>,
}

fn act(manager: &mut Manager, now: u64, qpn: u32) -> Outcome {
    let mut outcome = Outcome::default();
    while let Some((pe, action)) = manager.poll_action() {
        match action {
            Action::Send { message, .. } => outcome.sent.push(message),
            Action::CreateQp => manager.qp_created(now, pe, Qpn(qpn)),
            Action::CreateTarget(_) => {
                manager.target_created(now, pe, Some(Qpn(qpn)));
                outcome.actions.push((pe, action));
            }
            other => outcome.actions.push((pe, other)),
        }
    }
    outcome
}

fn kinds(sent: &[Message]) -> Vec<(u32, &'static str)> {
    let kind = |m: &Message| match (&m.body, m.echo, m.want_reply) {
        (Body::Offer(_), None, _) => "request",
        (Body::Offer(_), Some(_), _) => "answer",
        (Body::Ask(_), ..) => "ask",
        (Body::Segments(_), ..) => "segments",
        (Body::Drain(_), None, _) => "initiator gone",
        (Body::Drain(_), Some(_), _) => "target gone",
        (Body::Bye, ..) => "bye",
        (Body::Wait, ..) => "wait",
        (Body::SegmentsAck(_), ..) => "ack",
    };
    sent.iter().map(|m| (m.dst_pe, kind(m))).collect()
}

/// `to` gets `messages` and answers.
fn deliver(to: &mut Manager, now: u64, qpn: u32, messages: &[Message]) -> Outcome {
    for message in messages {
        assert_eq!(message.dst_pe, to.local().pe);
        let mut bytes = [0; MAX_LEN];
        let len = to.encode(message, &mut bytes);
        to.handle_datagram(now, &bytes[..len]).expect("of this job");
    }
    act(to, now, qpn)
}

/// PE 0 with a connection to PE 1.
fn connected() -> (Manager, Manager) {
    let (mut a, mut b) = (machine(0), machine(1));
    a.connect(0, 1, 1, address(1));
    let request = act(&mut a, 0, 10);
    let answer = deliver(&mut b, 1, 20, &request.sent);
    let opened = deliver(&mut a, 2, 0, &answer.sent);
    assert_eq!(opened.actions.len(), 2, "{:?}", opened.actions);
    (a, b)
}

#[test]
fn the_first_peer_is_direct_and_the_next_uses_its_connection() {
    let (mut a, b) = connected();
    assert!(is_reachable(&a, 1));
    assert_eq!(connection(&a), Some((Qpn(10), 1)));
    assert_eq!(target_of(&b, 0), Some(Qpn(20)));
    a.connect(5, 2, 1, address(2));
    let ask = act(&mut a, 5, 0);
    assert_eq!(kinds(&ask.sent), [(2, "ask")]);
    assert!(!is_reachable(&a, 2) && a.is_wanted(2));
    let mut c = machine(2);
    let info = deliver(&mut c, 6, 0, &ask.sent);
    assert_eq!(kinds(&info.sent), [(0, "segments")]);
    assert_eq!(target_of(&c, 0), None);
    let known = deliver(&mut a, 7, 0, &info.sent);
    assert!(matches!(known.actions[..], [(2, Action::Opened { .. })]));
    let route = a.route(2).expect("it is reachable");
    assert_eq!((route.qpn, route.srqn), (Qpn(10), Some(SrqNum(102))));
    assert_eq!(*route.segments, memory(2).segments);
    assert_eq!((a.stats().xrc.direct, a.stats().xrc.indirect), (1, 1));
}

#[test]
fn asks_run_while_the_connection_is_on_its_way() {
    let mut a = machine(0);
    for pe in [1, 2, 3] {
        a.connect(0, pe, 1, address(pe));
    }
    let sent = act(&mut a, 0, 10).sent;
    let mut kinds = kinds(&sent);
    kinds.sort_unstable();
    assert_eq!(kinds, [(1, "request"), (2, "ask"), (3, "ask")]);
}

#[test]
fn a_repeated_request_makes_no_second_queue_pair() {
    let (mut a, mut b) = (machine(0), machine(1));
    a.connect(0, 1, 1, address(1));
    let open = act(&mut a, 0, 10).sent;
    let first = deliver(&mut b, 1, 20, &open);
    let again = deliver(&mut b, 2, 21, &open);
    assert_eq!((first.actions.len(), again.actions.len()), (1, 0));
    assert_eq!(first.sent, again.sent);
    assert_eq!(kinds(&again.sent), [(0, "answer")]);
}

#[test]
fn who_has_no_memory_yet_says_wait_and_answers_by_itself() {
    let mut a = machine(0);
    a.connect(0, 1, 1, address(1));
    a.connect(0, 2, 1, address(2));
    let sent = act(&mut a, 0, 10).sent;
    for (pe, answer) in [(1, "answer"), (2, "segments")] {
        let mine: Vec<_> = sent.iter().filter(|m| m.dst_pe == pe).cloned().collect();
        let mut b = manager(pe, None);
        let wait = deliver(&mut b, 1, 20, &mine).sent;
        assert_eq!(kinds(&wait), [(0, "wait")]);
        deliver(&mut a, 2, 0, &wait);
        b.ready(3, memory(pe));
        assert_eq!(kinds(&act(&mut b, 3, 20).sent), [(0, answer)]);
    }
    // Both requests are repeated rarely from now on.
    assert!(a.next_timeout().is_some_and(|at| at > 150 * MS));
}

#[test]
fn silence_fails_the_wish_but_another_peer_of_the_node_gets_its_chance() {
    let mut a = machine(0);
    let silence = a.local().retry.silence;
    a.connect(0, 1, 1, address(1));
    act(&mut a, 0, 10);
    while let Some(at) = a.next_timeout().filter(|at| *at < silence / 2) {
        a.handle_timeout(at);
        act(&mut a, at, 11);
    }
    a.connect(silence / 2, 2, 1, address(2));
    let mut failed = Vec::new();
    let mut opened_with = Vec::new();
    while let Some(at) = a.next_timeout().filter(|at| *at <= 2 * silence) {
        a.handle_timeout(at);
        let outcome = act(&mut a, at, 11);
        failed.extend(outcome.actions.iter().filter_map(|action| match action {
            (pe, Action::Failed(failure)) => {
                assert!(matches!(failure, Failure::Silence { .. }));
                Some((*pe, at))
            }
            _ => None,
        }));
        let open = |m: &&Message| matches!(m.body, Body::Offer(_));
        opened_with.extend(outcome.sent.iter().filter(open).map(|m| m.dst_pe));
    }
    assert_eq!(failed, [(1, silence), (2, silence / 2 + silence)]);
    opened_with.dedup();
    assert_eq!(opened_with, [1, 2]);
    assert!(!a.is_wanted(1) && !a.is_wanted(2));
}

#[test]
fn a_dead_direct_peer_does_not_block_its_node() {
    let mut a = machine(0);
    a.connect(0, 1, 1, address(1));
    a.connect(0, 2, 1, address(2));
    let sent = act(&mut a, 0, 10).sent;
    let ask: Vec<_> = sent.into_iter().filter(|m| m.dst_pe == 2).collect();
    let mut c = machine(2);
    let info = deliver(&mut c, 1, 0, &ask).sent;
    deliver(&mut a, 2, 0, &info);
    for _ in 0..50 {
        let at = a.next_timeout().expect("PE 1 is asked again and again");
        a.handle_timeout(at);
        let sent = act(&mut a, at, 11).sent;
        let for_c: Vec<_> = sent.into_iter().filter(|m| m.dst_pe == 2).collect();
        let answer = deliver(&mut c, at, 20, &for_c).sent;
        deliver(&mut a, at, 0, &answer);
    }
    assert_eq!(connection(&a), Some((Qpn(11), 2)));
    assert!(is_reachable(&a, 2) && a.is_wanted(1));
}

#[test]
fn a_late_request_after_the_end_makes_nothing() {
    let (mut a, mut b) = (machine(0), machine(1));
    a.connect(0, 1, 1, address(1));
    let open = act(&mut a, 0, 10).sent;
    let accept = deliver(&mut b, 1, 20, &open).sent;
    deliver(&mut a, 2, 0, &accept);
    a.leave(10, MS);
    a.say_bye(10, 8);
    let bye = act(&mut a, 10, 0);
    assert_eq!(kinds(&bye.sent), [(1, "initiator gone")]);
    assert!(!a.has_left());
    let gone = deliver(&mut b, 11, 0, &bye.sent);
    assert_eq!(kinds(&gone.sent), [(0, "target gone")]);
    let qpn = Qpn(20);
    assert_eq!(gone.actions, [(0, Action::DestroyTarget(qpn))]);
    deliver(&mut a, 12, 0, &gone.sent);
    assert!(a.has_left());
    let late = deliver(&mut b, 13, 22, &open);
    assert!(late.actions.is_empty() && late.sent.is_empty());
    assert_eq!(target_of(&b, 0), None);
}

#[test]
fn who_leaves_early_is_served_until_the_initiator_has_drained() {
    let (mut a, mut b) = connected();
    b.leave(10, 500 * MS);
    assert!(!b.say_bye(10, 8) && !b.has_left());
    let at = b.next_timeout().expect("it asks for the BYE");
    assert!(
        at >= 10 + 15 * MS,
        "after the last barrier it comes by itself"
    );
    b.handle_timeout(at);
    let leave = act(&mut b, at, 0).sent;
    assert_eq!(kinds(&leave), [(0, "bye")]);
    let drain = deliver(&mut a, at, 0, &leave);
    assert!(drain.actions.contains(&(1, Action::Drain(Qpn(10)))));
    assert_eq!(kinds(&drain.sent), [(1, "wait")]);
    deliver(&mut b, at, 0, &drain.sent);
    // A wish for another PE of that node has to wait for the old connection's end.
    a.connect(at + 1, 2, 1, address(2));
    assert_eq!(kinds(&act(&mut a, at + 1, 0).sent), [(2, "ask")]);
    a.drained(at + 2, 1, Qpn(10));
    let after = act(&mut a, at + 2, 11);
    assert_eq!(kinds(&after.sent), [(1, "initiator gone"), (2, "request")]);
    let bye: Vec<_> = after.sent.into_iter().filter(|m| m.dst_pe == 1).collect();
    deliver(&mut b, at + 3, 0, &bye);
    assert!(b.has_left());
    a.connect(at + 4, 1, 1, address(1));
    let refused = act(&mut a, at + 4, 0).actions;
    let failure = Failure::PeerLeft;
    assert_eq!(refused, [(1, Action::Failed(failure))]);
}

#[test]
fn a_lost_acknowledgement_costs_the_linger_time_and_no_more() {
    let (mut a, _) = connected();
    a.leave(10, 500 * MS);
    a.say_bye(10, 8);
    act(&mut a, 10, 0);
    let mut byes = 0;
    while !a.has_left() {
        let at = a.next_timeout().expect("it does not wait for ever");
        assert!(at <= 10 + 500 * MS);
        a.handle_timeout(at);
        byes += act(&mut a, at, 0).sent.len();
    }
    assert!((3..20).contains(&byes), "{byes}");
    assert_eq!(a.stats().byes_missed, 1);
}

/// A DRAIN that is sent again is no BYE, and the first BYE to an initiator that stays is no repetition.
#[test]
fn byes_are_counted_as_byes_and_drains_as_drains() {
    for (pe, counts) in [(0, (0, 0, 4)), (1, (3, 2, 0))] {
        let (a, b) = connected();
        let mut leaver = if pe == 0 { a } else { b };
        leaver.leave(10, 500 * MS);
        leaver.say_bye(10, 8);
        for _ in 0..3 {
            let at = leaver.next_timeout().expect("it is not answered");
            leaver.handle_timeout(at);
        }
        let s = leaver.stats();
        assert_eq!((s.byes_sent, s.byes_repeated, s.drains_sent), counts);
    }
}

#[test]
fn who_leaves_refuses_what_is_new() {
    let mut b = machine(1);
    b.leave(0, MS);
    let mut a = machine(0);
    a.connect(0, 1, 1, address(1));
    let open = act(&mut a, 0, 10).sent;
    let refusal = deliver(&mut b, 1, 20, &open);
    assert_eq!(kinds(&refusal.sent), [(0, "bye")]);
    assert!(refusal.actions.is_empty());
    let failed = deliver(&mut a, 2, 0, &refusal.sent).actions;
    assert!(failed.contains(&(1, Action::Failed(Failure::PeerLeft))));
    assert_eq!(connection(&a), None);
}

#[test]
fn an_answer_for_a_queue_pair_that_is_gone_is_told_so() {
    let mut a = machine(0);
    let silence = a.local().retry.silence;
    a.connect(0, 1, 1, address(1));
    let open = act(&mut a, 0, 10).sent;
    let mut last = Vec::new();
    while let Some(at) = a.next_timeout() {
        a.handle_timeout(at);
        last = act(&mut a, at, 0).sent;
    }
    assert_eq!(kinds(&last), [(1, "initiator gone")]);
    // That is lost, and PE 1 wakes up.
    let mut b = machine(1);
    let accept = deliver(&mut b, silence + 1, 20, &open).sent;
    let bye = deliver(&mut a, silence + 2, 0, &accept).sent;
    let gone = deliver(&mut b, silence + 3, 0, &bye);
    let qpn = Qpn(20);
    assert_eq!(gone.actions, [(0, Action::DestroyTarget(qpn))]);
}

#[test]
fn no_queue_pair_fails_all_wishes_of_the_node() {
    let mut a = machine(0);
    a.connect(0, 1, 1, address(1));
    a.connect(0, 2, 1, address(2));
    assert_eq!(a.poll_action(), Some((1, Action::CreateQp)));
    let ask = a.poll_action();
    assert!(matches!(ask, Some((2, Action::Send { .. }))), "{ask:?}");
    a.qp_failed(1, 1, "out of memory".into());
    let failed = act(&mut a, 1, 0).actions;
    let failure = Failure::QueuePair("out of memory".into());
    for pe in [1, 2] {
        assert!(failed.contains(&(pe, Action::Failed(failure.clone()))));
    }
    // A later wish tries again.
    a.connect(2, 1, 1, address(1));
    assert_eq!(kinds(&act(&mut a, 2, 10).sent), [(1, "request")]);
}

#[test]
fn a_target_that_cannot_be_made_is_tried_again() {
    let (mut a, mut b) = (machine(0), machine(1));
    a.connect(0, 1, 1, address(1));
    let open = act(&mut a, 0, 10).sent;
    let mut bytes = [0; MAX_LEN];
    let len = b.encode(&open[0], &mut bytes);
    b.handle_datagram(1, &bytes[..len]).expect("of this job");
    let create = b.poll_action();
    assert!(matches!(create, Some((0, Action::CreateTarget(_)))));
    b.target_created(1, 0, None);
    assert_eq!(b.poll_action(), None);
    let again = deliver(&mut b, 2, 20, &open);
    assert_eq!(kinds(&again.sent), [(0, "answer")]);
}

#[test]
fn more_memory_is_learned_by_asking_again() {
    let (mut a, mut b) = connected();
    let more = more_memory(1);
    b.ready(5, more.clone());
    assert!(act(&mut b, 5, 0).sent.is_empty(), "nobody is told");
    a.refresh(300 * MS, 1);
    let ask = act(&mut a, 300 * MS, 0).sent;
    assert_eq!(kinds(&ask), [(1, "ask")]);
    a.refresh(301 * MS, 1);
    assert!(act(&mut a, 301 * MS, 0).sent.is_empty());
    let info = deliver(&mut b, 302 * MS, 0, &ask).sent;
    let known = deliver(&mut a, 303 * MS, 0, &info).actions;
    assert_eq!(known, [(1, Action::SegmentsAdded)]);
    assert_eq!(*a.route(1).expect("it is open").segments, more.segments);
    a.refresh(304 * MS, 1);
    assert!(act(&mut a, 304 * MS, 0).sent.is_empty(), "not so soon");
}

/// The first has asked the second at 300 ms, and this has answered twice, the second time with more.
fn asked() -> (Manager, Manager, [Vec<Message>; 2]) {
    let (mut a, mut b) = connected();
    a.refresh(300 * MS, 1);
    let ask = act(&mut a, 300 * MS, 0).sent;
    let early = deliver(&mut b, 301 * MS, 0, &ask).sent;
    b.ready(302 * MS, more_memory(1));
    let later = deliver(&mut b, 303 * MS, 0, &ask).sent;
    (a, b, [early, later])
}

/// Of two lists of segments the longer one counts, whatever overtakes what.
#[test]
fn a_late_answer_takes_no_segment_back() {
    let (mut a, mut b, [early, later]) = asked();
    deliver(&mut a, 304 * MS, 0, &later);
    // The next question is under way when the first answer to the one before arrives.
    a.refresh(700 * MS, 1);
    let ask = act(&mut a, 700 * MS, 0).sent;
    let news = deliver(&mut a, 701 * MS, 0, &early);
    assert!(news.actions.is_empty(), "{:?}", news.actions);
    assert_eq!(a.route(1).expect("it is open").segments.len(), 2);
    // It is no answer to the next.
    assert!(a.next_timeout().is_some_and(|at| at < 702 * MS));
    let answer = deliver(&mut b, 702 * MS, 0, &ask).sent;
    deliver(&mut a, 703 * MS, 0, &answer);
    assert_eq!(a.next_timeout(), None);
}

/// Two answers to one question: the second one tells more.
#[test]
fn the_longer_of_two_answers_is_taken() {
    let (mut a, _, [early, later]) = asked();
    assert!(deliver(&mut a, 304 * MS, 0, &early).actions.is_empty());
    let news = deliver(&mut a, 305 * MS, 0, &later).actions;
    assert_eq!(news, [(1, Action::SegmentsAdded)]);
    assert!(deliver(&mut a, 306 * MS, 0, &early).actions.is_empty());
    assert_eq!(a.route(1).expect("it is open").segments.len(), 2);
}
