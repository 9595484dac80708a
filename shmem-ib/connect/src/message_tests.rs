//! Tests of the codec: round trips, golden bytes, damage, and bytes from strangers.

use proptest::prelude::*;

use super::*;

fn codec() -> Codec {
    Codec::new(&[7; 16], &[9; 32])
}

fn offer(segments: usize) -> Message {
    let segment = |i: usize| Segment {
        address: 0x7f00_0000_0000 + i as u64,
        size: 1 << 20,
        rkey: Rkey(5),
        id: i as u8,
    };
    Message {
        src_pe: 3,
        dst_pe: 4,
        generation: Generation(1),
        echo: Some(Generation(2)),
        want_reply: true,
        ticket: 0x0102_0304_0506_0708,
        body: Body::Offer(Offer {
            ud: UdAddress {
                gid: std::net::Ipv4Addr::LOCALHOST.into(),
                udp_port: 4791,
                qpn: Qpn(0x11_2233),
                qkey: Qkey(0x1234_5678),
            },
            qpn: Qpn(0x44_5566),
            psn: Psn(0x77_8899),
            mtu: Mtu::M4096,
            max_rd_atomic: 16,
            heard: 22,
            memory: Memory {
                srqn: SrqNum(0x21_2223),
                segments: (0..segments).map(segment).collect(),
            },
        }),
    }
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut buf = [0xee; MAX_LEN];
    let len = codec().encode(message, &mut buf);
    buf[..len].to_vec()
}

/// Replaces the MAC by a valid one, as a member of the job with a bug would send it.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - MAC_LEN;
    let mac = codec().mac(&bytes[..end]);
    bytes[end..].copy_from_slice(&mac);
    bytes
}

#[test]
fn lengths_are_those_of_the_documentation() {
    assert_eq!(encoded(&offer(1)).len(), 120);
    assert_eq!(encoded(&offer(MAX_SEGMENTS)).len(), 240);
    let length = |body| encoded(&Message { body, ..offer(0) }).len();
    assert_eq!((length(Body::Wait), length(Body::Bye)), (52, 52));
    assert_eq!(length(Body::Drain(UdAddress::default())), 80);
    assert_eq!(length(Body::Ask(UdAddress::default())), 80);
    assert_eq!(length(Body::SegmentsAck(1)), 56);
    let Body::Offer(Offer { memory, .. }) = offer(MAX_SEGMENTS).body else {
        unreachable!()
    };
    assert_eq!(length(Body::Segments(memory)), 200);
}

fn bye() -> Message {
    Message {
        body: Body::Bye,
        ..offer(0)
    }
}

#[test]
fn a_bye_names_both_queue_pairs() {
    let bytes = encoded(&bye());
    assert_eq!(
        (bytes.len(), bytes[1], bytes[2], bytes[3]),
        (52, 3, 0x80, 0)
    );
    assert_eq!(codec().decode(&bytes), Ok(bye()));
    let without_qp = Message {
        generation: Generation::NONE,
        ..bye()
    };
    assert_eq!(codec().decode(&encoded(&without_qp)), Ok(without_qp));
    // For nobody's queue pair it would be for all.
    let mut for_none = bytes.clone();
    for_none[24..28].fill(0);
    assert_eq!(
        codec().decode(&resealed(for_none)),
        Err(DecodeError::Field("echo"))
    );
    let mut with_segment = bytes;
    with_segment[3] = 1;
    assert_eq!(
        codec().decode(&resealed(with_segment)),
        Err(DecodeError::Field("segment count"))
    );
}

#[test]
fn fields_stand_where_the_drawing_says() {
    let bytes = encoded(&offer(1));
    assert_eq!(bytes[..4], [4, 1, 0x80, 1]);
    assert_eq!(bytes[12..20], [0, 0, 0, 3, 0, 0, 0, 4]);
    assert_eq!(bytes[20..28], [0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(bytes[28..36], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bytes[46..52], [0xff, 0xff, 127, 0, 0, 1]);
    assert_eq!(
        bytes[52..72],
        [
            0x12, 0x34, 0x56, 0x78, 0x11, 0x22, 0x33, 5, 0x12, 0xb7, 0, 0, 0x44, 0x55, 0x66, 16,
            0x77, 0x88, 0x99, 0
        ]
    );
    assert_eq!(bytes[72..80], [0, 0, 0, 22, 0x21, 0x22, 0x23, 0]);
    assert_eq!(bytes[80..88], 0x7f00_0000_0000u64.to_be_bytes());
    assert_eq!(bytes[88..96], (1u64 << 20).to_be_bytes());
    assert_eq!(bytes[96..104], [0, 0, 0, 5, 0, 0, 0, 0]);

    let ud = UdAddress {
        qpn: Qpn(0x11_2233),
        ..UdAddress::default()
    };
    for (kind, body) in [(4, Body::Drain(ud)), (7, Body::Ask(ud))] {
        let bytes = encoded(&Message { body, ..offer(0) });
        assert_eq!(bytes[1], kind);
        assert_eq!(bytes[56..64], [0x11, 0x22, 0x33, 0, 0, 0, 0, 0]);
    }
    let body = Body::Segments(Memory {
        srqn: SrqNum(0x21_2223),
        segments: std::iter::once(Segment::default()).collect(),
    });
    let bytes = encoded(&Message { body, ..offer(0) });
    assert_eq!((bytes[1], bytes[3], bytes.len()), (5, 1, 40 + 24 + 16));
    assert_eq!(bytes[36..40], [0x21, 0x22, 0x23, 0]);
    let body = Body::SegmentsAck(24);
    let bytes = encoded(&Message { body, ..offer(0) });
    assert_eq!((bytes[1], bytes[3]), (6, 0));
    assert_eq!(bytes[36..40], [0, 0, 0, 24]);
}

#[test]
fn the_mac_is_siphash_2_4_128_of_what_comes_before() {
    // First reference vector of SipHash-2-4-128: key 00..0f, empty input.
    let key: [u8; 16] = std::array::from_fn(|i| i as u8);
    let hash = SipHasher24::new_with_key(&key).finish128();
    assert_eq!(
        (hash.h1, hash.h2),
        (0xe6a8_25ba_047f_81a3, 0x9302_55c7_1472_f66d)
    );
    let bytes = encoded(&offer(1));
    assert_eq!(codec().mac(&bytes[..104]), bytes[104..]);
}

#[test]
fn strangers_are_told_apart() {
    let bytes = encoded(&offer(1));
    let other_job = Codec::new(&[8; 16], &[9; 32]);
    assert_eq!(other_job.decode(&bytes), Err(DecodeError::WrongJob));
    let other_key = Codec::new(&[7; 16], &[10; 32]);
    assert_eq!(other_key.decode(&bytes), Err(DecodeError::BadMac));
    let mut half_key = [9; 32];
    half_key[31] ^= 1;
    assert_eq!(
        Codec::new(&[7; 16], &half_key).decode(&bytes),
        Err(DecodeError::BadMac)
    );
}

#[test]
fn authentic_nonsense_is_refused_by_field() {
    let change = |at: usize, value: u8| {
        let mut bytes = encoded(&offer(1));
        bytes[at] = value;
        codec().decode(&resealed(bytes)).unwrap_err()
    };
    assert_eq!(change(0, 1), DecodeError::Version(1));
    assert_eq!(change(1, 8), DecodeError::Field("kind"));
    assert_eq!(change(1, 0), DecodeError::Field("kind"));
    assert_eq!(change(1, 7), DecodeError::Field("segment count"));
    assert_eq!(change(1, 2), DecodeError::Field("segment count"));
    assert_eq!(change(1, 4), DecodeError::Field("segment count"));
    assert_eq!(change(2, 0x81), DecodeError::Field("flags"));
    assert_eq!(change(3, 7), DecodeError::Field("segment count"));
    assert_eq!(change(3, 2), DecodeError::Length(120));
    assert_eq!(change(4, 0xff), DecodeError::WrongJob);
    assert_eq!(change(23, 0), DecodeError::Field("generation"));
    assert_eq!(change(52, 0x80), DecodeError::Field("UD Q_Key"));
    assert_eq!(change(59, 0), DecodeError::Field("MTU"));
    assert_eq!(change(63, 1), DecodeError::Field("reserved"));
    for at in [71, 79, 102] {
        assert_eq!(change(at, 1), DecodeError::Field("reserved"));
    }
    let mut wraps = encoded(&offer(1));
    wraps[80..96].fill(0xff);
    let answer = codec().decode(&resealed(wraps));
    assert_eq!(answer, Err(DecodeError::Field("segment size")));
    let mut twins = encoded(&offer(2));
    twins[80 + 24 + 23] = twins[80 + 23];
    let answer = codec().decode(&resealed(twins));
    assert_eq!(answer, Err(DecodeError::Field("segment identifier")));
    let mut with_mtu = encoded(&Message {
        body: Body::Drain(UdAddress::default()),
        ..offer(0)
    });
    with_mtu[59] = 1;
    let answer = codec().decode(&resealed(with_mtu));
    assert_eq!(answer, Err(DecodeError::Field("reserved")));
}

fn any_generation() -> impl Strategy<Value = Generation> {
    (1u32..).prop_map(Generation)
}

fn any_memory() -> impl Strategy<Value = Memory> {
    let any = (any::<u64>(), any::<u64>(), any::<u32>());
    let segments = proptest::collection::vec(any, 0..=MAX_SEGMENTS);
    (0u32..1 << 24, segments).prop_map(|(srqn, all)| {
        let segment = |(id, (address, size, rkey)): (u8, (u64, u64, u32))| Segment {
            address,
            size: size.min(u64::MAX - address),
            rkey: Rkey(rkey),
            id: id * 40,
        };
        Memory {
            srqn: SrqNum(srqn),
            segments: (0u8..).zip(all).map(segment).collect(),
        }
    })
}

fn any_address() -> impl Strategy<Value = UdAddress> {
    let any = (
        any::<[u8; 16]>(),
        any::<u16>(),
        0u32..1 << 24,
        0u32..1 << 31,
    );
    any.prop_map(|(gid, udp_port, qpn, qkey)| UdAddress {
        gid: Gid(gid),
        udp_port,
        qpn: Qpn(qpn),
        qkey: Qkey(qkey),
    })
}

fn any_offer() -> impl Strategy<Value = Offer> {
    let rc = (0u32..1 << 24, 0u32..1 << 24, 1u8..=5, any::<u8>());
    (any_address(), rc, any::<u32>(), any_memory()).prop_map(
        |(ud, (qpn, psn, mtu, max_rd_atomic), heard, memory)| Offer {
            ud,
            qpn: Qpn(qpn),
            psn: Psn(psn),
            mtu: Mtu::from_code(mtu).expect("1 to 5 are codes"),
            max_rd_atomic,
            heard,
            memory,
        },
    )
}

fn any_message() -> impl Strategy<Value = Message> {
    let body = prop_oneof![
        any_offer().prop_map(Body::Offer),
        Just(Body::Wait),
        Just(Body::Bye),
        any_address().prop_map(Body::Drain),
        any_memory().prop_map(Body::Segments),
        any::<u32>().prop_map(Body::SegmentsAck),
        any_address().prop_map(Body::Ask),
    ];
    let echo = proptest::option::of(any_generation());
    (
        (any::<u32>(), any::<u32>()),
        any_generation(),
        (echo, any_generation()),
        (any::<bool>(), any::<u64>()),
        body,
    )
        .prop_map(
            |((src_pe, dst_pe), generation, (echo, set), (want_reply, ticket), body)| {
                let optional =
                    !matches!(body, Body::Bye | Body::Segments(_) | Body::SegmentsAck(_));
                Message {
                    src_pe,
                    dst_pe,
                    generation,
                    echo: echo.or((!optional).then_some(set)),
                    want_reply,
                    ticket,
                    body,
                }
            },
        )
}

proptest! {
    #[test]
    fn every_message_round_trips(message in any_message()) {
        prop_assert_eq!(codec().decode(&encoded(&message)), Ok(message));
    }

    #[test]
    fn every_flipped_bit_is_noticed(message in any_message(), at: prop::sample::Index) {
        let mut bytes = encoded(&message);
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(codec().decode(&bytes).is_err());
    }

    #[test]
    fn every_truncation_is_noticed(message in any_message(), at: prop::sample::Index) {
        let bytes = encoded(&message);
        prop_assert!(codec().decode(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(codec().decode(&bytes).is_err());
    }

    /// Behind a valid MAC, too, no byte string makes the decoder panic, and what it accepts
    /// encodes to the same bytes again.
    #[test]
    fn authentic_random_bytes_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), COMMON + MAC_LEN..=MAX_LEN),
        kind in 0u8..9,
        count in 0u8..8,
    ) {
        let model = encoded(&offer(0));
        bytes[..12].copy_from_slice(&model[..12]);
        (bytes[1], bytes[3]) = (kind, count);
        let bytes = resealed(bytes);
        if let Ok(message) = codec().decode(&bytes) {
            prop_assert_eq!(encoded(&message), bytes);
        }
    }
}
