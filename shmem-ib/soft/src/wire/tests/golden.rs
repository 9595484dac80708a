//! Every opcode against frames that a program of another language made from the specification:
//! see `tests/golden/frames.py`.

use super::*;
use shmem_verbs::{AddressVector, Gid, Psn, Qkey, Qpn, Rkey, SrqNum};

const FRAMES: &str = include_str!("golden.txt");
const DPORT: u16 = 4791;

struct Frame {
    name: &'static str,
    flow: Flow,
    id: u16,
    bytes: Vec<u8>,
}

fn frames() -> impl Iterator<Item = Frame> {
    FRAMES
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let [name, src, sport, dst, id, hex] = line
                .split(' ')
                .collect::<Vec<_>>()
                .try_into()
                .expect("six words");
            let av = |ip: &str, udp_port| AddressVector {
                gid: Gid::from(ip.parse::<std::net::IpAddr>().unwrap()),
                udp_port,
            };
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            Frame {
                name,
                flow: Flow {
                    src: av(src, sport.parse().unwrap()),
                    dst: av(dst, DPORT),
                },
                id: id.parse().unwrap(),
                bytes: (0..hex.len()).step_by(2).map(byte).collect(),
            }
        })
}

/// The headers that the script gives an opcode.
fn header(opcode: Opcode, xrc: bool) -> Header {
    let code = opcode as u32 | if xrc { 0xa0 } else { 0 };
    let reth = Reth {
        va: 0x1122_3344_5566_7788,
        rkey: Rkey(0x99aa_bbcc),
        len: 0x0001_0005,
    };
    let aeth = Aeth {
        syndrome: Syndrome::OK,
        msn: 0xbeef,
    };
    let deth = Deth {
        qkey: Qkey(0x0123_4567),
        src_qp: Qpn(0x0b17),
    };
    let imm = 0xd00d_feed;
    let ext = match opcode.ext() {
        ExtKind::None => Ext::None,
        ExtKind::Imm => Ext::Imm(imm),
        ExtKind::Reth => Ext::Reth(reth),
        ExtKind::RethImm => Ext::RethImm(reth, imm),
        ExtKind::Aeth => Ext::Aeth(aeth),
        ExtKind::AtomicAck => Ext::AtomicAck(aeth, 0xcafe_babe_00c0_ffee),
        ExtKind::Atomic => Ext::Atomic(AtomicEth {
            va: reth.va,
            rkey: reth.rkey,
            swap_add: 0x0102_0304_0506_0708,
            compare: 0xf1f2_f3f4_f5f6_f7f8,
        }),
        ExtKind::Deth => Ext::Deth(deth),
        ExtKind::DethImm => Ext::DethImm(deth, imm),
    };
    let psn = Psn::new(0x00ff_ff00 + code);
    let mut bth = Bth::new(opcode, Qpn(0x000a_0b0c), psn, code & 1 == 1);
    bth.becn = opcode == Opcode::Cnp;
    bth.xrc = match (xrc, opcode.is_rc_request()) {
        (false, _) => Xrc::No,
        (true, true) => Xrc::Request(SrqNum(0x000d_0e0f)),
        (true, false) => Xrc::Response,
    };
    Header { bth, ext }
}

fn payload_len(opcode: Opcode) -> usize {
    use Opcode as O;
    match opcode {
        O::SendFirst
        | O::SendMiddle
        | O::WriteFirst
        | O::WriteMiddle
        | O::ReadFirst
        | O::ReadMiddle => 256,
        O::ReadRequest | O::Ack | O::AtomicAck | O::CompareSwap | O::FetchAdd => 0,
        O::Cnp => 16,
        _ => 5,
    }
}

#[test]
fn every_opcode_is_encoded_to_the_golden_bytes() {
    let mut seen = std::collections::HashSet::new();
    for Frame {
        name,
        flow,
        id,
        bytes,
    } in frames()
    {
        let (xrc, rc_name) = match name.strip_prefix("Xrc") {
            Some(name) => (true, name),
            None => (false, name),
        };
        let opcode = *Opcode::ALL
            .iter()
            .find(|op| format!("{op:?}") == rc_name)
            .unwrap_or_else(|| panic!("no opcode {name}"));
        seen.insert((opcode, xrc));
        let header = header(opcode, xrc);
        let payload: Vec<u8> = (0..payload_len(opcode))
            .map(|i| match opcode {
                Opcode::Cnp => 0,
                _ => (7 * i + usize::from(bytes[0])) as u8,
            })
            .collect();
        let packet = Packet::decode(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(packet.header(), header, "{name}");
        assert_eq!(packet.payload, payload, "{name}");
        let mut out = vec![0xee; PACKET_MAX];
        let at = header.encode(&mut out, payload.len());
        out[at..at + payload.len()].copy_from_slice(&payload);
        let len = header.seal(&mut out, payload.len(), &flow);
        let crc = len - ICRC_LEN;
        assert_eq!(out[..crc], bytes[..crc], "{name}");
        assert_eq!(out[crc..len] == bytes[crc..], id == 0, "{name}");
        assert_eq!(icrc::verify(&flow, &bytes, 0), id == 0, "{name}");
    }
    let rc = |op: &&Opcode| op.is_rc_request() || op.is_rc_response();
    let xrc = Opcode::ALL.iter().filter(rc).count();
    // An INVITE is none of InfiniBand's.
    let standard = Opcode::ALL.iter().filter(|op| **op != Opcode::Invite);
    assert_eq!(seen.len(), standard.count() + xrc);
}

#[test]
fn identifications_that_nobody_sees_are_worked_out() {
    let v4 = |flow: &Flow| flow.src.gid.ip().is_ipv4();
    assert!(frames().any(|f| f.id != 0) && frames().any(|f| !v4(&f.flow)));
    for Frame {
        name,
        flow,
        id,
        mut bytes,
    } in frames()
    {
        let solved = icrc::solve_ip_id(&flow, &bytes);
        assert_eq!(solved, v4(&flow).then_some(id), "{name}");
        // A damaged packet has no identification. The search spends 16 bits of the check, so
        // that some of the bits flipped below could pass by chance; of these, none does.
        for bit in (0..8 * bytes.len()).step_by(11).filter(|bit| bit / 8 != 4) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(icrc::solve_ip_id(&flow, &bytes), None, "{name} bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
