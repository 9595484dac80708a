//! Bytes from the network: packets of RoCEv2, connection messages, UD addresses, atomics for owners.

use std::net::Ipv4Addr;

use shmem_ib::connect::endpoint::recode_message;
use shmem_ib::connect::message::{
    Body, Codec, Generation, MAX_LEN, Memory, Message, Offer, Segment,
};
use shmem_ib::connect::{Published, UdAddress};
use shmem_ib::verbs::{AddressVector, Fabric, Gid, Mtu, Psn, Qkey, Qpn, Rkey, SrqNum};
use shmem_ib::wire::{
    Aeth, AtomicEth, Bth, Deth, Ext, Flow, Header, Opcode, PACKET_MAX, Packet, Reth, Syndrome, icrc,
};

fn flow() -> Flow {
    let av = |last| AddressVector {
        gid: Gid::from(Ipv4Addr::new(10, 0, 0, last)),
        udp_port: 4791,
    };
    Flow {
        src: av(1),
        dst: av(2),
    }
}

/// A decoded packet says the same when it is encoded again, and its ICRC notices every bit.
///
/// # Panics
/// If not.
pub fn packet(data: &[u8]) {
    let _ = icrc::verify(&flow(), data, 0);
    let Ok(packet) = Packet::decode(data) else {
        return;
    };
    let header = packet.header();
    let len = packet.payload.len();
    if header.packet_len(len) > PACKET_MAX {
        return;
    }
    let mut out = [0; PACKET_MAX];
    let start = header.encode(&mut out, len);
    out[start..start + len].copy_from_slice(packet.payload);
    let total = header.seal(&mut out, len, &flow());
    assert_eq!(total, header.packet_len(len));
    assert_eq!(Packet::decode(&out[..total]).as_ref(), Ok(&packet));
    assert!(icrc::verify(&flow(), &out[..total], 0));
    // The ICRC covers the whole queue pair and PSN, extensions and payload.
    let bit = data.iter().map(|b| usize::from(*b)).sum::<usize>() % (8 * (total - 5));
    let at = 5 + bit / 8;
    out[at] ^= 1 << (bit % 8);
    assert!(!icrc::verify(&flow(), &out[..total], 0), "byte {at}");
}

/// One sealed packet of every kind.
#[must_use]
pub fn packet_seeds() -> Vec<Vec<u8>> {
    let reth = Reth {
        va: 0x1000,
        rkey: Rkey(7),
        len: 9,
    };
    let aeth = Aeth {
        syndrome: Syndrome::OK,
        msn: 5,
    };
    let deth = Deth {
        qkey: Qkey(1),
        src_qp: Qpn(3),
    };
    let atomic = AtomicEth {
        va: 0x1008,
        rkey: Rkey(7),
        swap_add: 1,
        compare: 2,
    };
    let of_kind = |opcode: Opcode| {
        [
            Ext::None,
            Ext::Imm(1),
            Ext::Reth(reth),
            Ext::RethImm(reth, 1),
            Ext::Aeth(aeth),
            Ext::AtomicAck(aeth, 4),
            Ext::Atomic(atomic),
            Ext::Deth(deth),
            Ext::DethImm(deth, 1),
        ]
        .into_iter()
        .find(|ext| ext.kind() == opcode.ext())
    };
    (0..=255)
        .filter_map(Opcode::from_code)
        .filter_map(|opcode| {
            let bth = Bth::new(opcode, Qpn(0x12), Psn(0x34), true);
            let header = Header {
                bth,
                ext: of_kind(opcode)?,
            };
            let mut out = [0; 128];
            let start = header.encode(&mut out, 9);
            out[start..start + 9].copy_from_slice(b"a payload");
            let len = header.seal(&mut out, 9, &flow());
            Some(out[..len].to_vec())
        })
        .collect()
}

fn codec() -> Codec {
    Codec::new(&[7; 16], &[9; 32])
}

/// Strangers' bytes are refused. Bytes that a member of the job has signed are refused or mean
/// a message which is encoded to the same bytes.
///
/// # Panics
/// If not.
pub fn connection_message(data: &[u8]) {
    let codec = codec();
    assert!(codec.decode(data).is_err() || data.len() <= MAX_LEN);
    let Some(end) = data.len().checked_sub(16) else {
        return;
    };
    let mut signed = data.to_vec();
    signed[end..].copy_from_slice(&codec.mac(&data[..end]));
    let Ok(message) = codec.decode(&signed) else {
        return;
    };
    let mut out = [0; MAX_LEN];
    let len = codec.encode(&message, &mut out);
    assert_eq!(&out[..len], &signed, "{message:?}");
}

/// One message of each kind; OFFERs with and without segments.
#[must_use]
pub fn connection_message_seeds() -> Vec<Vec<u8>> {
    let memory = |n: u8| {
        let segment = |id| Segment {
            address: 0x7f00_0000_0000,
            size: 1 << 20,
            rkey: Rkey(5),
            id,
        };
        Memory {
            srqn: SrqNum(n.into()),
            segments: (0..n).map(segment).collect(),
        }
    };
    let offer = |n| {
        Body::Offer(Offer {
            ud: address(),
            qpn: Qpn(0x44_5566),
            psn: Psn(0x77_8899),
            mtu: Mtu::M4096,
            max_rd_atomic: 16,
            heard: u32::from(n),
            memory: memory(n),
        })
    };
    let bodies = [
        offer(0),
        offer(1),
        offer(2),
        Body::Wait,
        Body::Bye,
        Body::Drain(address()),
        Body::Segments(memory(2)),
        Body::SegmentsAck(3),
        Body::Ask(address()),
    ];
    let encode = |(n, body): (usize, Body)| {
        let message = Message {
            src_pe: 3,
            dst_pe: 4,
            generation: Generation(1),
            echo: (n > 0).then_some(Generation(2)),
            want_reply: n > 1,
            ticket: n as u64,
            body,
        };
        let mut out = [0; MAX_LEN];
        let len = codec().encode(&message, &mut out);
        out[..len].to_vec()
    };
    bodies.into_iter().enumerate().map(encode).collect()
}

fn address() -> UdAddress {
    UdAddress {
        gid: Ipv4Addr::LOCALHOST.into(),
        udp_port: 4791,
        qpn: Qpn(0x11_2233),
        qkey: Qkey(0x1234_5678),
    }
}

/// Bytes are refused, or mean an address which is encoded to the same bytes. The checksum is
/// also made right, so that what lies behind it is reached.
///
/// # Panics
/// If not.
pub fn ud_address(data: &[u8]) {
    let mut bytes = [0; Published::LEN];
    let len = data.len().min(bytes.len());
    bytes[..len].copy_from_slice(&data[..len]);
    for mended in [false, true] {
        if mended {
            let (covered, checksum) = bytes.split_at_mut(Published::LEN - 4);
            let crc = crc32(covered);
            checksum.copy_from_slice(&crc.to_be_bytes());
        }
        if let Ok(address) = Published::from_bytes(&bytes) {
            assert_eq!(address.to_bytes(), bytes);
            assert!(!address.ud.to_string().is_empty());
        }
    }
}

/// One address.
#[must_use]
pub fn ud_address_seeds() -> Vec<Vec<u8>> {
    let published = |fabric| Published {
        ud: address(),
        fabric,
        by_owner: fabric == Fabric::Roce,
        ..Published::default()
    };
    let [soft, roce] = [Fabric::Soft, Fabric::Roce].map(|f| published(f).to_bytes().to_vec());
    vec![soft, roce, vec![0; Published::LEN]]
}

/// Bytes are refused, or mean a message which is encoded to the same bytes. Of a request whose
/// operation nobody knows only what its refusal needs is kept.
///
/// # Panics
/// If not.
pub fn owner_message(data: &[u8]) {
    let Some(again) = recode_message(data) else {
        return;
    };
    assert_eq!(recode_message(&again).as_ref(), Some(&again));
    let nameless = data[1] == 1 && again[2..4] == [0, 0];
    if !nameless {
        assert_eq!(again, data);
        return;
    }
    assert!(!(1..=7).contains(&data[2]) || !matches!(data[3], 4 | 8));
    assert_eq!(again.len(), data.len());
    for kept in [0..2, 4..24, 40..44] {
        assert_eq!(again[kept.clone()], data[kept]);
    }
    assert_eq!(again[24..40], [0; 16]);
}

/// A request for each operation, on words of both widths, and for one that does not exist; answers
/// with values and refusals; a probe.
#[must_use]
pub fn owner_message_seeds() -> Vec<Vec<u8>> {
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_be_bytes()).collect();
    let message = |head: [u8; 4], rest: Vec<u8>| [&head, &[0, 0, 0, 3][..], &rest].concat();
    let request = |operation: u8, width| {
        // Token, offset, operand, expected value.
        let operand = if operation == 1 { 0 } else { 5 };
        let expected = if operation == 3 { 6 } else { 0 };
        let mut rest: Vec<u8> = words(&[0x77, 0x1000, operand, expected]);
        rest.extend([2, 0, 0, 0]);
        message([1, 1, operation, width], rest)
    };
    let answers = |list: &[u64]| message([1, 2, list.len() as u8 / 2, 0], words(list));
    let refused = |status: u64| status << 56 | 0x77;
    let mut seeds: Vec<_> = (1..=8).map(|operation| request(operation, 8)).collect();
    seeds.extend([
        request(3, 4),
        request(1, 2),
        answers(&[0x77, 9]),
        answers(&[
            0x77,
            9,
            refused(1),
            0,
            refused(2),
            0,
            refused(3),
            0,
            refused(4),
            0,
            1,
            2,
            3,
            4,
        ]),
        message([1, 3, 0, 0], Vec::new()),
    ]);
    seeds
}

/// CRC-32 of IEEE 802.3, bit by bit: the other side of the checksum, made by other code.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), step);
    !bytes.iter().fold(!0, byte)
}
