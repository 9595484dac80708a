//! Two engines between which long packets travel without being copied, as the driver does it: the payload is taken
//! from where it lies and put where it belongs.

use super::pair_tests::{BASE, End, av};
use crate::wire::{HEAD_MAX, Packet, STANDARD_MAX};
use shmem_verbs::{Access, AddressVector, Completion, Mtu, SendOp, SendWr, Sge, WcStatus};

const MTU: usize = Mtu::M61440.bytes();

/// Two that lend.
fn pair(access: Access) -> [End; 2] {
    let mut ends = super::pair_tests::pair(Mtu::M61440, access);
    ends.iter_mut().for_each(|end| end.engine.set_lending(true));
    ends
}

/// The next packet of an engine, with what it was lent in its gap, and whether it was lent something.
fn next(end: &mut End) -> Option<(Vec<u8>, bool)> {
    let mut buf = vec![0; crate::wire::PACKET_MAX];
    let t = end.engine.poll_transmit(0, &mut buf)?;
    buf.truncate(t.len);
    if let Some(lent) = t.lent {
        assert!(lent.len > STANDARD_MAX && buf[lent.at..][..lent.len].iter().all(|b| *b == 0));
        let from = (lent.addr - BASE) as usize;
        let memory = &end.engine.memory_mut().bytes()[from..from + lent.len];
        buf[lent.at..][..lent.len].copy_from_slice(memory);
    }
    Some((buf, t.lent.is_some()))
}

/// Hands a packet over; says whether its payload was placed.
fn hand_over(end: &mut End, src: AddressVector, packet: &[u8]) -> bool {
    let front = &packet[..packet.len().min(HEAD_MAX)];
    let Some(place) = end.engine.place(src, front, packet.len()) else {
        end.engine.handle_datagram(0, src, packet);
        return false;
    };
    let (head, rest) = packet.split_at(place.head);
    let (payload, tail) = rest.split_at(place.len);
    let to = (place.addr - BASE) as usize;
    end.engine.memory_mut().bytes_mut()[to..to + place.len].copy_from_slice(payload);
    end.engine.handle_placed(0, src, place, head, tail);
    true
}

/// Lets all packets of both travel; gives the lengths of those that were lent and placed.
fn travel(ends: &mut [End; 2]) -> Vec<usize> {
    let mut placed = Vec::new();
    loop {
        let mut any = false;
        for n in 0..2 {
            while let Some((packet, lent)) = next(&mut ends[n]) {
                any = true;
                let src = ends[n].engine.port().av;
                let was_placed = hand_over(&mut ends[1 - n], src, &packet);
                assert_eq!(lent, was_placed, "a packet of {} bytes", packet.len());
                if lent {
                    placed.push(Packet::decode(&packet).unwrap().payload.len());
                }
            }
        }
        if !any {
            return placed;
        }
    }
}

fn completion(end: &mut End) -> Option<WcStatus> {
    let mut out = [Completion::EMPTY; 2];
    let n = end.engine.poll_cq(end.cq, &mut out);
    assert!(n < 2);
    (n == 1).then(|| out[0].status)
}

/// Has the first end move `len` bytes from offset 3 to offset 8.
fn post(ends: &mut [End; 2], read: bool, len: usize) {
    let rkey = ends[1].mr.rkey;
    let (raddr, addr) = match read {
        true => (BASE + 3, BASE + 8),
        false => (BASE + 8, BASE + 3),
    };
    let op = match read {
        true => SendOp::Read { raddr, rkey },
        false => SendOp::write(raddr, rkey),
    };
    let sges = [Sge {
        addr,
        len: len as u32,
        lkey: ends[0].mr.lkey,
    }];
    let qpn = ends[0].qpn;
    let wr = SendWr::new(1, op, &sges);
    ends[0].engine.post_send(qpn, &wr).unwrap();
}

#[test]
fn long_packets_are_sent_from_and_received_into_memory() {
    for read in [false, true] {
        for len in [4096, 4097, MTU, 2 * MTU + 4096, 3 * MTU + 5001] {
            let mut ends = pair(Access::ALL);
            let (from, to) = if read { (1, 0) } else { (0, 1) };
            let data: Vec<u8> = (0..len).map(|i| (i * 7 / 3) as u8).collect();
            ends[from].engine.memory_mut().bytes_mut()[3..3 + len].copy_from_slice(&data);
            post(&mut ends, read, len);
            let placed = travel(&mut ends);
            let packets = (0..len).step_by(MTU).map(|at| MTU.min(len - at));
            let long: Vec<usize> = packets.filter(|len| *len > STANDARD_MAX).collect();
            assert_eq!(placed, long, "read: {read}");
            assert_eq!(completion(&mut ends[0]), Some(WcStatus::Success));
            let memory = ends[to].engine.memory_mut().bytes();
            assert!(memory[8..8 + len] == data[..], "read: {read}, {len} bytes");
            assert!(
                memory[..8]
                    .iter()
                    .chain(&memory[8 + len..])
                    .all(|b| *b == 0)
            );
        }
    }
}

#[test]
fn what_would_be_refused_is_not_placed() {
    let write_packet = || {
        let mut ends = pair(Access::ALL);
        post(&mut ends, false, 2 * MTU);
        let packet = next(&mut ends[0]).unwrap().0;
        (ends, packet)
    };
    let place =
        |end: &End, src, packet: &[u8]| end.engine.place(src, &packet[..HEAD_MAX], packet.len());
    let (mut ends, packet) = write_packet();
    assert!(place(&ends[1], av(1), &packet).is_some());
    assert_eq!(place(&ends[1], av(3), &packet), None, "from somebody else");
    assert_eq!(
        place(&ends[0], av(2), &packet),
        None,
        "for another queue pair"
    );
    let mut later = packet.clone();
    later[11] += 1;
    assert_eq!(place(&ends[1], av(1), &later), None, "another PSN");
    let mut other = packet.clone();
    other[12 + 8] ^= 1;
    assert_eq!(place(&ends[1], av(1), &other), None, "another rkey");
    let shorter = packet.len() - 4;
    let front = &packet[..HEAD_MAX];
    assert_eq!(
        ends[1].engine.place(av(1), front, shorter),
        None,
        "too short"
    );
    // Taken once, it is a duplicate.
    assert!(hand_over(&mut ends[1], av(1), &packet));
    assert_eq!(place(&ends[1], av(1), &packet), None, "a duplicate");
    // The memory of the second packet goes before that comes.
    let second = next(&mut ends[0]).unwrap().0;
    let mr = ends[1].mr;
    ends[1].engine.dereg_mr(&mr).unwrap();
    assert_eq!(place(&ends[1], av(1), &second), None, "no memory");

    let mut ends = pair(Access::LOCAL_WRITE);
    post(&mut ends, false, MTU);
    let packet = next(&mut ends[0]).unwrap().0;
    assert_eq!(place(&ends[1], av(1), &packet), None, "no right");
}

#[test]
fn damaged_headers_are_noticed_and_damaged_payload_is_not_looked_at() {
    let mut ends = pair(Access::ALL);
    post(&mut ends, false, MTU);
    let (packet, _) = next(&mut ends[0]).unwrap();
    let mut damaged = packet.clone();
    damaged[2] ^= 1;
    assert!(
        !hand_over(&mut ends[1], av(1), &damaged),
        "another partition"
    );
    assert_eq!(ends[1].engine.counters().icrc_errors, 1);
    let mut damaged = packet.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert!(
        hand_over(&mut ends[1], av(1), &damaged),
        "it is placed before it is checked"
    );
    assert_eq!(ends[1].engine.counters().icrc_errors, 2);
    let mut changed = packet;
    changed[100] ^= 1;
    assert!(hand_over(&mut ends[1], av(1), &changed));
    travel(&mut ends);
    assert_eq!(completion(&mut ends[0]), Some(WcStatus::Success));
}
