//! Routing, rejection, timers and counters of the manager.

use super::*;
use crate::interface::Failure;
use crate::message::Segment;
use crate::retry::RetryPolicy;
use shmem_verbs::Mtu;

const MS: u64 = 1_000_000;

pub(super) fn address(pe: u32) -> UdAddress {
    UdAddress {
        qpn: Qpn(pe + 1),
        ..UdAddress::default()
    }
}

pub(super) fn identity() -> Identity {
    Identity {
        job_id: [1; 16],
        job_key: &[2; 32],
        n_pes: 100_000,
    }
}

pub(super) fn manager_of(identity: &Identity, pe: u32) -> Manager {
    let local = Local {
        pe,
        ud: address(pe),
        mtu: Mtu::M1024,
        max_rd_atomic: 1,
        memory: None,
        max_qps: 0,
        leaving: false,
        retry: RetryPolicy::default(),
    };
    Manager::new(identity, local, u64::from(pe))
}

pub(super) fn ready(manager: &mut Manager, now: u64) {
    let memory = Memory {
        segments: std::iter::once(Segment::default()).collect(),
        ..Memory::default()
    };
    manager.ready(now, memory);
}

/// Takes the actions, makes queue pairs, and returns the datagrams with their destinations.
fn drain(manager: &mut Manager, now: u64) -> Vec<(u32, Vec<u8>)> {
    let mut sent = Vec::new();
    while let Some((pe, action)) = manager.poll_action() {
        match action {
            Action::Send { message, .. } => {
                let mut bytes = [0; MAX_LEN];
                let len = manager.encode(&message, &mut bytes);
                sent.push((pe, bytes[..len].to_vec()));
            }
            Action::CreateQp => manager.qp_created(now, pe, Qpn(pe + 1000)),
            _ => {}
        }
    }
    sent
}

#[test]
fn messages_reach_the_machine_of_their_peer() {
    let mut hub = manager_of(&identity(), 0);
    ready(&mut hub, 0);
    for pe in [5, 99_999] {
        let mut other = manager_of(&identity(), pe);
        ready(&mut other, 0);
        other.connect(0, 0, 0, address(0));
        let request = drain(&mut other, 0);
        assert_eq!(hub.handle_datagram(1, &request[0].1), Ok(Verdict::Accepted));
        let reply = drain(&mut hub, 1);
        assert_eq!((reply.len(), reply[0].0), (1, pe));
        other.handle_datagram(2, &reply[0].1).unwrap();
        assert_eq!(
            (other.phase(0), hub.phase(pe)),
            (Phase::Open, Phase::Answered)
        );
        assert_eq!(other.stats().first_contact.max, 2);
    }
    assert_eq!(hub.peers().len(), 2, "memory for those in contact only");
    assert_eq!((hub.stats().accepted, hub.stats().offers_received), (2, 2));
}

#[test]
fn what_is_not_for_us_is_counted_by_reason() {
    let mut me = manager_of(&identity(), 0);
    ready(&mut me, 0);
    let offer_of = |identity: &Identity, from: u32, to: u32| {
        let mut sender = manager_of(identity, from);
        ready(&mut sender, 0);
        sender.connect(0, to, to, address(to));
        drain(&mut sender, 0).remove(0).1
    };
    let other_key = Identity {
        job_key: &[3; 32],
        ..identity()
    };
    let other_job = Identity {
        job_id: [3; 16],
        ..identity()
    };
    let larger = Identity {
        n_pes: u32::MAX,
        ..identity()
    };
    for bytes in [
        offer_of(&other_key, 1, 0),
        offer_of(&other_job, 1, 0),
        offer_of(&identity(), 1, 2),
        offer_of(&larger, 100_000, 0),
        vec![],
        vec![7; 1000],
    ] {
        assert!(me.handle_datagram(0, &bytes).is_err());
    }
    let s = me.stats();
    assert_eq!(
        (s.bad_mac, s.wrong_job, s.wrong_pe, s.malformed),
        (1, 1, 2, 2)
    );
    assert_eq!((s.rejected(), s.offers_received), (6, 0));
    assert_eq!(me.peers().len(), 0, "strangers cost no memory");
    assert!(me.poll_action().is_none());
}

#[test]
fn a_message_from_oneself_is_refused() {
    let mut twin = manager_of(&identity(), 7);
    ready(&mut twin, 0);
    twin.connect(0, 7, 7, address(7));
    let bytes = drain(&mut twin, 0).remove(0).1;
    assert!(
        manager_of(&identity(), 7)
            .handle_datagram(0, &bytes)
            .is_err()
    );
}

#[test]
fn timers_of_many_peers_fire_each_at_its_time() {
    let mut manager = manager_of(&identity(), 0);
    ready(&mut manager, 0);
    assert_eq!(manager.next_timeout(), None);
    let (mut sent, mut last) = (0, 0);
    let mut fire = |manager: &mut Manager, until: u64| {
        while let Some(at) = manager.next_timeout().filter(|at| *at < until) {
            assert!(at >= last, "time does not go backwards");
            last = at;
            manager.handle_timeout(at);
            let now = drain(manager, at);
            assert!(!now.is_empty(), "a timer fires for a reason");
            sent += now.len() as u64;
        }
    };
    for pe in 1..=500 {
        let now = u64::from(pe) * MS;
        fire(&mut manager, now);
        manager.connect(now, pe, pe, address(pe));
        assert_eq!(drain(&mut manager, now).len(), 1);
    }
    fire(&mut manager, 2_000 * MS);
    assert_eq!(manager.stats().retransmissions, sent);
    // 1 + 2 + ... + 128 ms are 8 repetitions, then one every 250 ms.
    assert!((500 * 10..500 * 20).contains(&sent), "{sent}");
}

#[test]
fn those_who_asked_early_are_answered_when_ready() {
    let mut me = manager_of(&identity(), 0);
    for pe in [9, 3, 7, 1] {
        let mut other = manager_of(&identity(), pe);
        ready(&mut other, 0);
        other.connect(0, 0, 0, address(0));
        let request = drain(&mut other, 0);
        me.handle_datagram(0, &request[0].1).unwrap();
    }
    assert_eq!(drain(&mut me, 0).len(), 4);
    assert_eq!(me.stats().waits_sent, 4);
    ready(&mut me, 5);
    let answered: Vec<u32> = drain(&mut me, 5).iter().map(|(pe, _)| *pe).collect();
    assert_eq!(answered, [1, 3, 7, 9]);
    assert_eq!(me.next_timeout(), None, "who answers needs no timer");
}

/// Peers 1 to `n` of a hub that is PE 0, connected by their own wish.
fn star(n: u32) -> (Manager, Vec<Manager>) {
    let mut hub = manager_of(&identity(), 0);
    ready(&mut hub, 0);
    let peers = (1..=n).map(|pe| {
        let mut peer = manager_of(&identity(), pe);
        ready(&mut peer, 0);
        peer.connect(0, 0, 0, address(0));
        let request = drain(&mut peer, 0);
        hub.handle_datagram(0, &request[0].1).unwrap();
        let reply = drain(&mut hub, 0);
        peer.handle_datagram(0, &reply[0].1).unwrap();
        drain(&mut peer, 0);
        peer
    });
    let peers = peers.collect();
    (hub, peers)
}

#[test]
fn without_connections_one_leaves_at_once() {
    let mut lone = manager_of(&identity(), 7);
    lone.leave(5, 500 * MS);
    assert!(!lone.say_bye(5, 8));
    assert!(lone.has_left() && drain(&mut lone, 5).is_empty());
    assert_eq!(lone.next_timeout(), None);
}

#[test]
fn one_stays_until_all_peers_have_said_bye() {
    let (mut hub, mut peers) = star(20);
    hub.leave(0, 500 * MS);
    assert!(hub.say_bye(0, 8), "in portions");
    assert!(!hub.has_left() && drain(&mut hub, 0).len() == 8);
    while hub.say_bye(0, 8) {}
    let byes = drain(&mut hub, 0);
    assert_eq!((byes.len(), hub.has_left()), (12, false));
    for (i, peer) in peers.iter_mut().enumerate() {
        assert!(!hub.has_left());
        peer.leave(MS, 500 * MS);
        peer.say_bye(MS, 8);
        let bye = drain(peer, MS);
        assert_eq!(hub.handle_datagram(MS, &bye[0].1), Ok(Verdict::Accepted));
        assert_eq!(hub.has_left(), i == 19);
    }
    assert_eq!(hub.next_timeout(), None);
    assert_eq!((hub.stats().byes_sent, hub.stats().byes_missed), (20, 0));
}

#[test]
fn the_linger_time_counts_from_the_last_sign_of_life() {
    let (mut hub, mut peers) = star(2);
    hub.leave(0, 500 * MS);
    assert!(!hub.say_bye(0, 8));
    let byes = drain(&mut hub, 0);
    hub.traffic_seen(300 * MS);
    hub.handle_timeout(799 * MS);
    assert!(!hub.has_left());
    // One peer has operations under way, and says so.
    peers[1].handle_datagram(790 * MS, &byes[1].1).unwrap();
    peers[1].busy(790 * MS, 0);
    let wait = drain(&mut peers[1], 790 * MS);
    hub.handle_datagram(799 * MS, &wait[0].1).unwrap();
    // A stranger says something, and nobody cares.
    let mut stranger = manager_of(&identity(), 9);
    ready(&mut stranger, 0);
    stranger.connect(0, 0, 0, address(0));
    let request = drain(&mut stranger, 0);
    hub.handle_datagram(900 * MS, &request[0].1).unwrap();
    hub.handle_timeout(1298 * MS);
    assert!(!hub.has_left());
    hub.handle_timeout(1299 * MS);
    assert!(hub.has_left());
    assert_eq!(hub.stats().byes_missed, 2);
}

#[test]
fn a_bye_of_a_stranger_leaves_no_trace() {
    let (mut hub, _) = star(1);
    let (_, mut others) = star(1);
    others[0].leave(0, 500 * MS);
    others[0].say_bye(0, 8);
    let bye = drain(&mut others[0], 0).remove(0).1;
    let mut empty = manager_of(&identity(), 0);
    assert_eq!(empty.handle_datagram(0, &bye), Ok(Verdict::Stale));
    assert_eq!((empty.peers().len(), empty.stats().stale), (0, 1));
    assert_eq!(hub.handle_datagram(0, &bye), Ok(Verdict::Accepted));
}

/// Lets what is due happen until `until`, with a look at each deadline.
fn pass(manager: &mut Manager, until: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    while let Some(at) = manager.next_timeout().filter(|at| *at <= until) {
        manager.handle_timeout(at);
        while let Some((_, action)) = manager.poll_action() {
            actions.push(action);
        }
    }
    actions
}

/// A first contact is under way when the process is stopped, for longer than a peer may be silent. That
/// is no silence of the peer, so it is asked again, and has its time.
#[test]
fn a_stop_of_the_process_fails_no_contact() {
    let silence = RetryPolicy::default().silence;
    let mut a = manager_of(&identity(), 0);
    ready(&mut a, 0);
    a.connect(0, 1, 1, address(1));
    drain(&mut a, 0);
    pass(&mut a, 10 * MS);
    let goes_on = 10 * silence;
    a.handle_timeout(goes_on);
    let (_, first) = a.poll_action().expect("it is asked again");
    assert!(matches!(first, Action::Send { .. }), "{first:?}");
    assert!(a.is_wanted(1) && a.poll_action().is_none());
    let failed = |actions: &[Action]| {
        let silent = |a: &Action| matches!(a, Action::Failed(Failure::Silence { .. }));
        actions.iter().any(silent)
    };
    assert!(!failed(&pass(&mut a, goes_on + silence - 100 * MS)));
    assert!(failed(&pass(&mut a, goes_on + silence)));
}

/// The same while somebody stands in line for a queue pair, long after the start.
#[test]
fn a_stop_of_the_process_fails_no_contact_beside_a_line() {
    let silence = RetryPolicy::default().silence;
    let mut a = manager_of(&identity(), 0);
    a.local.max_qps = 1;
    let began = 3 * silence;
    ready(&mut a, began);
    for pe in [1, 2] {
        a.connect(began, pe, pe, address(pe));
        drain(&mut a, began);
    }
    assert!(a.is_short(), "PE 2 stands in line");
    a.make_room(began, |_| Usage::default());
    let goes_on = began + 10 * silence;
    a.handle_timeout(goes_on);
    let sent = drain(&mut a, goes_on);
    assert_eq!(sent.len(), 1, "PE 1 is asked again");
    assert!(a.is_wanted(1) && a.is_wanted(2));
}

/// Reports tell when connections opened on the driver's clock, which knows no stop.
#[test]
fn a_stop_does_not_change_when_a_connection_opened() {
    let (mut a, mut b) = (manager_of(&identity(), 0), manager_of(&identity(), 1));
    for manager in [&mut a, &mut b] {
        ready(manager, 0);
    }
    a.connect(0, 1, 1, address(1));
    let request = drain(&mut a, 0);
    let late = 100 * RetryPolicy::default().silence;
    b.handle_datagram(late, &request[0].1).unwrap();
    let reply = drain(&mut b, late);
    a.handle_datagram(late, &reply[0].1).unwrap();
    assert_eq!(a.phase(1), Phase::Open);
    let s = a.stats();
    assert!(s.first_contact.max < late, "the stop does not count");
    assert_eq!((s.first_opened, s.last_opened), (late, late));
}

/// A process that looks at each deadline far too late is slow, and was not stopped each time: it
/// gives up a peer that is gone all the same.
#[test]
fn who_is_always_late_gives_up_too() {
    let policy = RetryPolicy::default();
    let mut a = manager_of(&identity(), 0);
    ready(&mut a, 0);
    a.connect(0, 1, 1, address(1));
    drain(&mut a, 0);
    let mut now = 0;
    while a.is_wanted(1) {
        now += 5_000 * MS;
        a.handle_timeout(now);
        assert!(now < policy.silence + 10_000 * MS);
    }
}
