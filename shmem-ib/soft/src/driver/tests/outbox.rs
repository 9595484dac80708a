//! What becomes of trains, answer by answer of the kernel.

use std::net::Ipv4Addr;

use super::*;
use shmem_verbs::Gid;

fn peer(port: u16) -> AddressVector {
    AddressVector {
        gid: Gid::from(Ipv4Addr::new(10, 0, 0, 1)),
        udp_port: port,
    }
}

fn outbox() -> Outbox {
    Outbox::new(Gid::from(Ipv4Addr::new(10, 0, 0, 9)), false)
}

/// Adds packets of 1000 bytes behind what waits.
fn add(outbox: &mut Outbox, dst: AddressVector, packets: usize) {
    let at = outbox.waiting().last().map_or(0, |t| t.start + t.len);
    for i in 0..packets {
        outbox.add(dst, at + 1000 * i, 1000, None);
    }
}

fn errno(errno: i32) -> io::Result<usize> {
    Err(io::Error::from_raw_os_error(errno))
}

/// Where the packets of what waits begin.
fn places(outbox: &Outbox) -> Vec<(u16, usize, usize)> {
    let trains = outbox.waiting().iter();
    trains
        .map(|t| (t.dst.udp_port, t.start, t.packets))
        .collect()
}

#[test]
fn a_full_kernel_keeps_nothing_from_going_out_later() {
    let mut o = outbox();
    add(&mut o, peer(1), 3);
    add(&mut o, peer(2), 2);
    assert_eq!(o.answered(0, errno(libc::EAGAIN)), Next::Wait);
    assert_eq!(places(&o), [(1, 0, 3), (2, 3000, 2)]);
    assert_eq!(o.answered(1, Ok(1)), Next::Go);
    assert_eq!(o.answered(1, errno(libc::EAGAIN)), Next::Wait);
    assert_eq!(places(&o), [(2, 3000, 2)]);
    assert_eq!(o.answered(2, Ok(1)), Next::Go);
    assert!(o.waiting().is_empty());
}

#[test]
fn a_train_that_is_not_segmented_goes_singly_and_so_do_later_ones_to_that_peer_alone() {
    for refusal in [libc::EINVAL, libc::EIO, libc::EMSGSIZE] {
        let mut o = outbox();
        add(&mut o, peer(1), 3);
        add(&mut o, peer(2), 2);
        assert_eq!(o.answered(0, errno(refusal)), Next::Go);
        let apart = [(1, 0, 1), (1, 1000, 1), (1, 2000, 1), (2, 3000, 2)];
        assert_eq!(places(&o), apart);
        assert_eq!(o.answered(0, Ok(4)), Next::Go);
        add(&mut o, peer(1), 2);
        add(&mut o, peer(2), 2);
        assert_eq!(places(&o), [(1, 0, 1), (1, 1000, 1), (2, 2000, 2)]);
    }
}

#[test]
fn a_packet_that_is_too_long_for_the_way_is_a_failure_at_once() {
    let mut o = outbox();
    add(&mut o, peer(1), 2);
    assert_eq!(o.answered(0, errno(libc::EMSGSIZE)), Next::Go);
    let refusal = Refusal {
        dst: peer(1),
        errno: libc::EMSGSIZE,
        len: 1000,
    };
    assert_eq!(o.answered(0, errno(libc::EMSGSIZE)), Next::Fail(refusal));
    let text = refusal.reason();
    assert!(
        text.contains("10.0.0.1:1") && text.contains("SHMEM_SOFT_MTU"),
        "{text}"
    );
}

#[test]
fn refusals_that_last_are_a_failure_and_those_that_end_are_not() {
    const MS: u64 = 1_000_000;
    for refusal in [libc::EPERM, libc::ENETUNREACH, libc::ENOBUFS, libc::EINVAL] {
        let mut o = outbox();
        let mut offer = |now: u64, dst, answer| {
            add(&mut o, dst, 1);
            let next = o.answered(now, answer);
            assert!(o.waiting().is_empty(), "what is refused is lost");
            next
        };
        for now in [0, 8, 24, 56, 120, 248] {
            assert_eq!(offer(now * MS, peer(1), errno(refusal)), Next::Go);
        }
        // Another peer is no comfort.
        assert_eq!(offer(300 * MS, peer(2), Ok(1)), Next::Go);
        let next = offer(504 * MS, peer(1), errno(refusal));
        let Next::Fail(failed) = next else {
            panic!("{next:?}");
        };
        assert_eq!((failed.dst, failed.errno), (peer(1), refusal));
        assert_eq!(offer(505 * MS, peer(1), Ok(1)), Next::Go);
        assert_eq!(offer(2000 * MS, peer(1), errno(refusal)), Next::Go);
    }
}

#[test]
fn trains_are_of_one_peer_and_close_with_a_shorter_packet() {
    let mut o = outbox();
    add(&mut o, peer(1), 2);
    o.add(peer(1), 2000, 500, None);
    o.add(peer(1), 2500, 500, None);
    o.add(peer(2), 3000, 500, None);
    // Behind the port of RoCEv2 may be a device that sees how packets are numbered.
    o.add(peer(ROCE_PORT), 3500, 500, None);
    o.add(peer(ROCE_PORT), 4000, 500, None);
    let whole = [
        (1, 0, 3),
        (1, 2500, 1),
        (2, 3000, 1),
        (ROCE_PORT, 3500, 1),
        (ROCE_PORT, 4000, 1),
    ];
    assert_eq!(places(&o), whole);
}

#[test]
fn what_is_lent_travels_alone_and_is_kept_where_it_has_to_wait() {
    let mut o = outbox();
    let lent = |addr| Lent {
        at: 28,
        addr,
        len: 960,
    };
    o.add(peer(1), 0, 1000, Some(lent(0x1000)));
    o.add(peer(1), 1000, 1000, Some(lent(0x2000)));
    o.add(peer(1), 2000, 1000, None);
    assert_eq!(places(&o), [(1, 0, 1), (1, 1000, 1), (1, 2000, 1)]);
    assert_eq!(o.answered(0, Ok(1)), Next::Go);
    assert_eq!(o.answered(0, errno(libc::EAGAIN)), Next::Wait);
    let mut read = Vec::new();
    o.keep(|gap, lent| read.push((gap, lent.addr)));
    assert_eq!(read, [(1028, 0x2000)]);
    assert!(o.waiting().iter().all(|train| train.lent.is_none()));
    o.keep(|_, _| panic!("once is enough"));
}
