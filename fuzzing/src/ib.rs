//! Bytes from the network: packets of RoCEv2, connection messages, UD addresses.

use std::net::Ipv4Addr;

use shmem_ib::connect::message::{Body, Codec, Epoch, MAX_LEN, Message, Offer, Segment};
use shmem_ib::connect::{Published, UdAddress};
use shmem_ib::verbs::{AddressVector, Fabric, Gid, Mtu, Psn, Qkey, Qpn, Rkey};
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
    let _ = icrc::verify(&flow(), data);
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
    assert!(icrc::verify(&flow(), &out[..total]));
    // The ICRC covers the whole queue pair and PSN, extensions and payload.
    let bit = data.iter().map(|b| usize::from(*b)).sum::<usize>() % (8 * (total - 5));
    let at = 5 + bit / 8;
    out[at] ^= 1 << (bit % 8);
    assert!(!icrc::verify(&flow(), &out[..total]), "byte {at}");
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
            Ext::Inval(Rkey(7)),
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
    let segments = |n: u8| {
        let segment = |id| Segment {
            address: 0x7f00_0000_0000,
            size: 1 << 20,
            rkey: Rkey(5),
            id,
            generation: 7,
        };
        (0..n).map(segment).collect()
    };
    let offer = |n| {
        Body::Offer(Offer {
            ud: address(),
            qpn: Qpn(0x44_5566),
            psn: Psn(0x77_8899),
            mtu: Mtu::M4096,
            max_rd_atomic: 16,
            revision: 1,
            heard: u32::from(n),
            segments: segments(n),
        })
    };
    let epoch = |incarnation| Epoch {
        incarnation,
        generation: 1,
    };
    let bodies = [
        offer(0),
        offer(1),
        offer(2),
        Body::Wait,
        Body::Bye,
        Body::Drain(address()),
        Body::Segments {
            revision: 3,
            segments: segments(2),
        },
        Body::SegmentsAck { revision: 3 },
    ];
    let encode = |(n, body): (usize, Body)| {
        let message = Message {
            src_pe: 3,
            dst_pe: 4,
            epoch: epoch(11),
            echo: (n > 0).then(|| epoch(12)),
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
            let crc = crc32(&bytes[..28]);
            bytes[28..].copy_from_slice(&crc.to_be_bytes());
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
    };
    let [soft, roce] = [Fabric::Soft, Fabric::Roce].map(|f| published(f).to_bytes().to_vec());
    vec![soft, roce, vec![0; Published::LEN]]
}

/// CRC-32 of IEEE 802.3, bit by bit: the other side of the checksum, made by other code.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), step);
    !bytes.iter().fold(!0, byte)
}
