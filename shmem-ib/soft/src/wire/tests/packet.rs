//! Golden vectors and round trips of the packet codec.

use proptest::prelude::*;

use super::*;
use crate::wire::{NakCode, PACKET_MAX};
use shmem_verbs::{Gid, SrqNum};
use std::net::Ipv4Addr;

fn flow(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16) -> Flow {
    let av = |ip: [u8; 4], udp_port| shmem_verbs::AddressVector {
        gid: Gid::from(Ipv4Addr::from(ip)),
        udp_port,
    };
    Flow {
        src: av(src, sport),
        dst: av(dst, dport),
    }
}

/// A congestion notification captured from a ConnectX-4 Lx (IP identification 0x718c).
#[test]
fn icrc_of_a_captured_cnp() {
    let mut packet = [0_u8; 32];
    packet[..12].copy_from_slice(&[0x81, 0, 0xff, 0xff, 0x40, 0, 1, 0x18, 0, 0, 0, 0]);
    packet[28..].copy_from_slice(&[0x82, 0xfd, 0x00, 0x2a]);
    let flow = flow([10, 0, 17, 1], 0, [10, 0, 18, 1], 4791);
    let crc = icrc::compute_with_id(&flow, &packet[..28], 0x718c);
    assert_eq!(crc.to_le_bytes(), [0x82, 0xfd, 0x00, 0x2a]);
    assert_eq!(icrc::solve_ip_id(&flow, &packet), Some(0x718c));
    let decoded = Packet::decode(&packet).unwrap();
    assert_eq!(decoded.bth.opcode, Opcode::Cnp);
    assert_eq!(decoded.bth.dest_qp, Qpn(0x118));
    assert!(decoded.bth.becn && !decoded.bth.fecn);
    assert_eq!(decoded.payload.len(), 16);
    // A changed bit or identification is noticed.
    assert!(!icrc::verify(&flow, &packet, 0));
}

/// A UC SEND captured from a ConnectX-4 Lx (IP identification 1144): UC is not decoded here,
/// but its signature is made in the same way.
#[test]
fn icrc_of_a_captured_uc_send() {
    let mut packet = vec![0x24, 0x60, 0xff, 0xff, 0, 0, 0, 211, 0];
    packet.extend_from_slice(&13_571_856_u32.to_be_bytes()[1..]);
    packet.extend_from_slice(b"F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P\x00\x00");
    let flow = flow([192, 168, 0, 7], 49152, [192, 168, 0, 7], 4791);
    let crc = icrc::compute_with_id(&flow, &packet, 1144);
    assert_eq!(crc.to_le_bytes(), [0x78, 0xf3, 0x53, 0xf3]);
}

#[test]
fn write_only_bytes_are_where_they_belong() {
    let header = Header {
        bth: Bth::new(Opcode::WriteOnly, Qpn(0x123456), Psn(0xabcdef), true),
        ext: Ext::Reth(Reth {
            va: 0x1122_3344_5566_7788,
            rkey: Rkey(0x99aa_bbcc),
            len: 3,
        }),
    };
    let mut buf = [0xee; 64];
    let n = header.encode(&mut buf, 3);
    buf[n..n + 3].copy_from_slice(b"abc");
    let len = header.seal(&mut buf, 3, &flow([127, 0, 0, 1], 1, [127, 0, 0, 1], 2));
    assert_eq!(len, header.packet_len(3));
    assert_eq!(len, 36);
    let expected = [
        0x0a, 0x50, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef, // BTH, pad 1
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0, 0, 0, 3, b'a',
        b'b', b'c', 0,
    ];
    assert_eq!(buf[..32], expected);
}

#[test]
fn opcode_codes_and_syndromes_round_trip() {
    for op in Opcode::ALL {
        assert_eq!(Opcode::from_code(*op as u8), Some(*op));
    }
    assert_eq!(
        Opcode::ALL.len(),
        (0..=255).filter_map(Opcode::from_code).count()
    );
    for code in 0..=255 {
        assert_eq!(Syndrome::from_code(code).code(), code);
    }
    assert_eq!(
        Syndrome::from_code(0x62),
        Syndrome::Nak(NakCode::RemoteAccess)
    );
    assert_eq!(shmem_verbs::timeouts::rnr_delay_ns(0), 655_360_000);
    assert_eq!(shmem_verbs::timeouts::rnr_delay_ns(1), 10_000);
    assert_eq!(shmem_verbs::timeouts::rnr_delay_ns(31), 491_520_000);
}

fn ext(kind: ExtKind) -> BoxedStrategy<Ext> {
    let reth = (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(va, k, len)| Reth {
        va,
        rkey: Rkey(k),
        len,
    });
    let deth = (any::<u32>(), 0..=Psn::MASK).prop_map(|(k, q)| Deth {
        qkey: Qkey(k),
        src_qp: Qpn(q),
    });
    let aeth = (any::<u8>(), 0..=Psn::MASK).prop_map(|(s, msn)| Aeth {
        syndrome: Syndrome::from_code(s),
        msn,
    });
    match kind {
        ExtKind::None => Just(Ext::None).boxed(),
        ExtKind::Imm => any::<u32>().prop_map(Ext::Imm).boxed(),
        ExtKind::Reth => reth.prop_map(Ext::Reth).boxed(),
        ExtKind::RethImm => (reth, any::<u32>())
            .prop_map(|(r, i)| Ext::RethImm(r, i))
            .boxed(),
        ExtKind::Aeth => aeth.prop_map(Ext::Aeth).boxed(),
        ExtKind::AtomicAck => (aeth, any::<u64>())
            .prop_map(|(a, o)| Ext::AtomicAck(a, o))
            .boxed(),
        ExtKind::Atomic => (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>())
            .prop_map(|(va, k, swap_add, compare)| {
                Ext::Atomic(AtomicEth {
                    va,
                    rkey: Rkey(k),
                    swap_add,
                    compare,
                })
            })
            .boxed(),
        ExtKind::Deth => deth.prop_map(Ext::Deth).boxed(),
        ExtKind::DethImm => (deth, any::<u32>())
            .prop_map(|(d, i)| Ext::DethImm(d, i))
            .boxed(),
    }
}

fn header() -> impl Strategy<Value = Header> {
    let op = prop::sample::select(Opcode::ALL);
    let fields = (
        any::<[bool; 6]>(),
        any::<u16>(),
        0..=Psn::MASK,
        0..=Psn::MASK,
    );
    (op, fields).prop_flat_map(|(opcode, ([a, b, c, d, e, xrc], pkey, qpn, psn))| {
        let xrc = match opcode {
            op if xrc && op.is_rc_request() => Xrc::Request(SrqNum(qpn ^ psn)),
            op if xrc && op.is_rc_response() => Xrc::Response,
            _ => Xrc::No,
        };
        let bth = Bth {
            opcode,
            xrc,
            solicited: a,
            mig_req: b,
            pkey,
            fecn: c,
            becn: d,
            dest_qp: Qpn(qpn),
            ack_req: e,
            psn: Psn(psn),
        };
        ext(opcode.ext()).prop_map(move |ext| Header { bth, ext })
    })
}

proptest! {
    #[test]
    fn decode_inverts_encode(
        header in header(),
        payload in prop::collection::vec(any::<u8>(), 0..600),
        flip in any::<prop::sample::Index>(),
    ) {
        let flow = flow([10, 1, 2, 3], 0xc001, [10, 3, 2, 1], 4791);
        let mut buf = vec![0xaa_u8; PACKET_MAX];
        let n = header.encode(&mut buf, payload.len());
        buf[n..n + payload.len()].copy_from_slice(&payload);
        let len = header.seal(&mut buf, payload.len(), &flow);
        prop_assert_eq!(len, header.packet_len(payload.len()));
        let packet = Packet::decode(&buf[..len]).unwrap();
        prop_assert_eq!(packet.header(), header);
        prop_assert_eq!(packet.payload, &payload[..]);
        prop_assert!(icrc::verify(&flow, &buf[..len], 0));
        // Any bit outside of the masked congestion byte is covered.
        let bit = flip.index(len * 8);
        if bit / 8 != 4 {
            buf[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!icrc::verify(&flow, &buf[..len], 0));
        }
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), op: u8) {
        let flow = flow([10, 1, 2, 3], 1, [10, 3, 2, 1], 2);
        let _ = Packet::decode(&bytes);
        let _ = icrc::verify(&flow, &bytes, 0);
        if bytes.len() > 2 {
            bytes[0] = op;
            bytes[1] &= 0xf0;
            bytes.truncate(bytes.len() & !3);
            let _ = Packet::decode(&bytes);
        }
    }
}

#[test]
fn credits_are_said_as_the_next_smaller_number() {
    for credits in 0..40_000 {
        let said = Syndrome::with_credits(credits).credits().unwrap();
        assert!(said >= 1 && said <= credits.max(1), "{credits}: {said}");
        assert!(said * 2 > credits || said == 32_768, "{credits}: {said}");
    }
    assert_eq!(Syndrome::OK.credits(), None);
    assert_eq!(Syndrome::Rnr(3).credits(), None);
}
