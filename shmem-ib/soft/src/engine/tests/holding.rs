//! Two engines that send each other words in turn, and the acknowledgements that wait for these.

use super::pair_tests::{BASE, End, pair};
use super::*;
use crate::wire::{Opcode, Packet};
use shmem_verbs::{Access, Completion, Mtu, Rkey, SendOp, SendWr, Sge};

/// Posts a WRITE of a word.
fn write(end: &mut End, rkey: Rkey, word: u64) {
    let op = SendOp::write(BASE, rkey);
    let sges = [Sge {
        addr: BASE + 16,
        len: 8,
        lkey: end.mr.lkey,
    }];
    let wr = SendWr::new(word, op, &sges);
    let doorbell = end.engine.post_send(end.qpn, &wr).unwrap();
    assert_eq!(doorbell, Doorbell::Now);
}

/// What an engine sends now.
fn packets(end: &mut End, now: u64) -> Vec<Vec<u8>> {
    let mut buf = vec![0; crate::wire::PACKET_MAX];
    let mut out = Vec::new();
    while let Some(t) = end.engine.poll_transmit(now, &mut buf) {
        out.push(buf[..t.len].to_vec());
    }
    out
}

fn opcodes(packets: &[Vec<u8>]) -> Vec<Opcode> {
    let opcode = |p: &Vec<u8>| Packet::decode(p).unwrap().bth.opcode;
    packets.iter().map(opcode).collect()
}

/// Polls, sends, and hands to the other what was sent; returns its opcodes.
fn poll(ends: &mut [End; 2], from: usize, now: u64) -> Vec<Opcode> {
    ends[from].engine.polled();
    let sent = packets(&mut ends[from], now);
    deliver(ends, 1 - from, now, &sent);
    opcodes(&sent)
}

fn deliver(ends: &mut [End; 2], to: usize, now: u64, sent: &[Vec<u8>]) {
    let src = ends[1 - to].engine.port().av;
    for packet in sent {
        ends[to].engine.handle_datagram(now, src, packet);
    }
}

fn completed(end: &mut End) -> usize {
    let mut out = [Completion::EMPTY; 8];
    end.engine.poll_cq(end.cq, &mut out)
}

/// One word of `from`, sent without polling, as who answers does; what leaves with it.
fn say(ends: &mut [End; 2], from: usize, word: u64, now: u64) -> Vec<Opcode> {
    let rkey = ends[1 - from].mr.rkey;
    write(&mut ends[from], rkey, word);
    let sent = packets(&mut ends[from], now);
    deliver(ends, 1 - from, now, &sent);
    opcodes(&sent)
}

/// Turns, until both hold acknowledgements; the last word is on its way to the first, and was acknowledged by nothing.
fn in_turn(now: u64) -> [End; 2] {
    let mut ends = pair(Mtu::M1024, Access::ALL);
    for word in 0..20 {
        for from in 0..2 {
            let sent = say(&mut ends, from, word, now);
            // While it is not known that turns are taken, acknowledgements leave at once.
            let answered = packets(&mut ends[1 - from], now);
            deliver(&mut ends, from, now, &answered);
            match word {
                0..=3 => assert_eq!(opcodes(&answered), [Opcode::Ack], "{word}"),
                6.. => {
                    assert_eq!(sent, [Opcode::WriteOnly, Opcode::Ack], "{word}");
                    assert_eq!(answered, [[0_u8; 0]; 0]);
                }
                _ => {}
            }
            completed(&mut ends[from]);
        }
    }
    ends
}

#[test]
fn acknowledgements_leave_with_what_is_said_in_turn() {
    let mut ends = in_turn(7);
    // The second has said something; who got it polls instead of answering.
    assert_eq!(poll(&mut ends, 0, 7), [Opcode::Ack]);
    assert_eq!(completed(&mut ends[1]), 1);
    // Trust begins anew.
    say(&mut ends, 1, 99, 7);
    let answered = packets(&mut ends[0], 7);
    assert_eq!(opcodes(&answered), [Opcode::Ack]);
}

#[test]
fn an_acknowledgement_is_not_held_for_long() {
    let mut ends = in_turn(0);
    let at = ends[0].engine.next_timeout().expect("it is held");
    assert!((1..=1_000_000).contains(&at), "{at} ns");
    assert!(packets(&mut ends[0], at - 1).is_empty());
    assert!(ends[0].engine.handle_timeout(at));
    let sent = packets(&mut ends[0], at);
    assert_eq!(opcodes(&sent), [Opcode::Ack]);
    deliver(&mut ends, 1, at, &sent);
    assert_eq!(completed(&mut ends[1]), 1);
    let counters = ends.each_ref().map(|end| end.engine.counters());
    assert!(
        counters
            .iter()
            .all(|c| c.timeouts == 0 && c.retransmitted == 0)
    );
}

#[test]
fn what_cannot_wait_takes_along_what_is_held() {
    let mut ends = in_turn(0);
    let (rkey, raddr) = (ends[0].mr.rkey, BASE + 64);
    let add = SendOp::fetch_add(raddr, rkey, 1);
    let sge = Sge {
        addr: BASE + 128,
        len: 8,
        lkey: ends[1].mr.lkey,
    };
    let qpn = ends[1].qpn;
    let wr = SendWr::new(5, add, std::slice::from_ref(&sge));
    ends[1].engine.post_send(qpn, &wr).unwrap();
    ends[1].engine.polled();
    let sent = packets(&mut ends[1], 0);
    deliver(&mut ends, 0, 0, &sent);
    let answered = packets(&mut ends[0], 0);
    // It acknowledges the word before, too.
    assert_eq!(opcodes(&answered), [Opcode::AtomicAck]);
    deliver(&mut ends, 1, 0, &answered);
    assert_eq!(completed(&mut ends[1]), 2);
}

#[test]
fn an_error_forgets_what_is_held() {
    let mut ends = in_turn(0);
    let qpn = ends[0].qpn;
    ends[0].engine.fail_qp(qpn);
    ends[0].engine.polled();
    assert!(packets(&mut ends[0], 0).is_empty());
    assert_eq!(ends[0].engine.next_timeout(), None);
}
