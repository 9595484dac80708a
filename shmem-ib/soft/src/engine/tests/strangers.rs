//! Connections of strangers to an HCA that waits for a stream.

use std::net::{IpAddr, Ipv4Addr};

use super::pair_tests::{BASE, End, av, pair_of};
use super::stream::{StreamAction, StreamConfig, StreamId};
use crate::wire::{Opcode, PACKET_MAX, Packet};
use shmem_verbs::{Access, Mtu, SendOp, SendWr, Sge};

const LONG: u32 = 64 << 10;
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
const S: u64 = 1_000_000_000;

/// An HCA that has invited its peer to one stream, and listens; and the token.
fn inviter() -> (End, Vec<u8>) {
    let streams = StreamConfig::from_bytes(LONG);
    let [mut end, peer] = pair_of(Mtu::M1024, Access::ALL, |e| e.set_streams(streams));
    let op = SendOp::write(BASE, peer.mr.rkey);
    let sges = [Sge {
        addr: BASE,
        len: LONG,
        lkey: end.mr.lkey,
    }];
    end.engine
        .post_send(end.qpn, &SendWr::new(1, op, &sges))
        .unwrap();
    assert_eq!(actions(&mut end), [StreamAction::Listen]);
    end.engine.stream_listening(Some(4711));
    let sent = send(&mut end, 0);
    let packets = sent.iter().map(|bytes| Packet::decode(bytes).unwrap());
    let mut invites = packets.filter(|packet| packet.bth.opcode == Opcode::Invite);
    let token = invites.next().unwrap().payload[4..20].to_vec();
    (end, token)
}

fn actions(end: &mut End) -> Vec<StreamAction> {
    std::iter::from_fn(|| end.engine.poll_stream_action()).collect()
}

/// Sends what there is; nobody receives it.
fn send(end: &mut End, now: u64) -> Vec<Vec<u8>> {
    let mut buf = vec![0; PACKET_MAX];
    std::iter::from_fn(|| {
        let sent = end.engine.poll_transmit(now, &mut buf)?;
        Some(buf[..sent.len].to_vec())
    })
    .collect()
}

/// Lets all timers fire until then.
fn pass(inviter: &mut End, until: u64) {
    while let Some(at) = inviter.engine.next_timeout().filter(|at| *at <= until) {
        inviter.engine.handle_timeout(at);
        send(inviter, at);
    }
}

/// So many are accepted at one time: 16, and one for the peer that was invited.
fn strangers(inviter: &mut End, now: u64) -> Vec<StreamId> {
    let mut connect = || inviter.engine.stream_accepted(now, STRANGER);
    let ids: Vec<StreamId> = std::iter::from_fn(&mut connect).take(100).collect();
    assert_eq!(ids.len(), 17);
    assert_eq!(connect(), None, "the next one is closed at once");
    ids
}

#[test]
fn strangers_are_few_hear_nothing_and_are_closed_after_5_seconds() {
    let (mut inviter, _) = inviter();
    let ids = strangers(&mut inviter, 0);
    // Half a hello is no hello.
    for id in &ids {
        let room = inviter.engine.stream_room(*id).unwrap();
        assert!(room.direct.is_none() && room.ahead.len() == 24);
        inviter.engine.stream_received(0, *id, 23);
    }
    let nobody_hears = |inviter: &mut End| assert_eq!(inviter.engine.next_stream(), None);
    nobody_hears(&mut inviter);
    pass(&mut inviter, 5 * S - 1);
    assert_eq!(inviter.engine.stream_count(), 17);
    assert_eq!(actions(&mut inviter), []);
    pass(&mut inviter, 5 * S);
    let closed: Vec<_> = actions(&mut inviter);
    assert_eq!(closed.len(), 17);
    for id in ids {
        assert!(closed.contains(&StreamAction::Close(id)));
    }
    nobody_hears(&mut inviter);
    // There is room for others, as long as the peer is waited for, and no longer.
    strangers(&mut inviter, 5 * S);
    pass(&mut inviter, 6 * S);
    assert_eq!(actions(&mut inviter), [StreamAction::Unlisten]);
    assert_eq!(inviter.engine.stream_accepted(6 * S, STRANGER), None);
}

#[test]
fn only_the_peer_opens_a_stream_and_only_with_the_token() {
    let (mut inviter, token) = inviter();
    let qpn = inviter.qpn.0.to_be_bytes();
    let peer = av(2).gid.ip();
    let mut say = |from, token: &[u8]| {
        let id = inviter.engine.stream_accepted(0, from).unwrap();
        let hello = [b"SHS1\0", &qpn[1..], token].concat();
        let room = inviter.engine.stream_room(id).unwrap();
        room.ahead.copy_from_slice(&hello);
        inviter.engine.stream_received(0, id, hello.len());
        let closed = actions(&mut inviter).contains(&StreamAction::Close(id));
        (closed, inviter.engine.counters().streams_opened)
    };
    for bit in 0..128 {
        let mut guessed = token.clone();
        guessed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(say(peer, &guessed), (true, 0));
    }
    assert_eq!(say(STRANGER, &token), (true, 0));
    assert_eq!(say(peer, &token), (false, 1));
    // It is good for one connection.
    assert_eq!(inviter.engine.stream_accepted(0, peer), None);
}
