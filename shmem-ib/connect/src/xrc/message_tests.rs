//! Tests of the XRC codec: round trips, golden bytes, limits, damage.

use proptest::prelude::*;

use super::*;
use crate::message::{Body, Codec, Message, Segment};
use shmem_verbs::{Gid, Qkey, Rkey};

fn codec() -> Codec {
    Codec::new(&[7; 16], &[9; 32])
}

fn message(body: Xrc) -> Message {
    let epoch = |incarnation, generation| Epoch {
        incarnation,
        generation,
    };
    Message {
        src_pe: 3,
        dst_pe: 4,
        epoch: epoch(11, 1),
        echo: Some(epoch(12, 2)),
        want_reply: true,
        ticket: 0,
        body: Body::Xrc(body),
    }
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut buf = [0xee; MAX_LEN];
    let len = codec().encode(message, &mut buf);
    buf[..len].to_vec()
}

fn memory(segments: usize) -> Memory {
    let segment = |i: usize| Segment {
        address: 0x7f00_0000_0000 + i as u64,
        size: 1 << 20,
        rkey: Rkey(5),
        id: i as u8,
        generation: 1,
    };
    Memory {
        srqn: SrqNum(0x01_0203),
        segments: (0..segments).map(segment).collect(),
    }
}

fn ud() -> UdAddress {
    UdAddress {
        gid: std::net::Ipv4Addr::LOCALHOST.into(),
        udp_port: 4791,
        qpn: Qpn(0x11_2233),
        qkey: Qkey(0x1234_5678),
    }
}

fn accept(segments: usize) -> Accept {
    Accept {
        qpn: Qpn(0x44_5566),
        psn: Psn(0x77_8899),
        mtu: Mtu::M4096,
        max_rd_atomic: 16,
        memory: memory(segments),
    }
}

#[test]
fn lengths_are_those_of_the_documentation() {
    let len = |body| encoded(&message(body)).len();
    assert_eq!(len(Xrc::Accept(accept(6))), 224);
    assert_eq!(len(Xrc::Accept(accept(1))), 104);
    assert_eq!(len(Xrc::Info(memory(1))), 96);
    assert_eq!(len(Xrc::Ask { ud: ud() }), 96);
    assert_eq!(len(Xrc::Gone), 68);
}

#[test]
fn fields_stand_where_the_drawing_says() {
    let bytes = encoded(&message(Xrc::Accept(accept(1))));
    assert_eq!(bytes[..4], [2, 17, 0x80, 1]);
    assert_eq!(
        bytes[52..64],
        [0x44, 0x55, 0x66, 5, 0x77, 0x88, 0x99, 16, 1, 2, 3, 0]
    );
    assert_eq!(bytes[64..72], 0x7f00_0000_0000_u64.to_be_bytes());
    let bytes = encoded(&message(Xrc::Leave { ud: ud() }));
    assert_eq!(bytes[..4], [2, 22, 0x80, 0]);
    assert_eq!(bytes[62..68], [0xff, 0xff, 127, 0, 0, 1]);
    assert_eq!(
        bytes[68..80],
        [
            0x12, 0x34, 0x56, 0x78, 0x11, 0x22, 0x33, 0, 0x12, 0xb7, 0, 0
        ]
    );
}

/// Who decodes for another purpose is not to find a queue pair that does not exist.
#[test]
fn messages_that_name_nothing_are_refused() {
    let nothing = Epoch {
        incarnation: 11,
        generation: 0,
    };
    for body in [Xrc::Ask { ud: ud() }, Xrc::Open(open())] {
        let bad = Message {
            epoch: nothing,
            ..message(body)
        };
        let refused = Err(DecodeError::Field("generation"));
        assert_eq!(codec().decode(&encoded(&bad)), refused);
    }
    let answers = [
        Xrc::Gone,
        Xrc::Info(memory(1)),
        Xrc::Accept(accept(1)),
        Xrc::Leave { ud: ud() },
    ];
    for body in answers {
        let bad = Message {
            echo: None,
            ..message(body)
        };
        let refused = Err(DecodeError::Field("echo"));
        assert_eq!(codec().decode(&encoded(&bad)), refused);
    }
}

fn open() -> Open {
    Open {
        ud: ud(),
        qpn: Qpn(5),
        psn: Psn(6),
        mtu: Mtu::M1024,
        max_rd_atomic: 4,
    }
}

#[test]
fn only_accept_and_info_have_segments() {
    for body in [Xrc::Gone, Xrc::Ask { ud: ud() }, Xrc::Open(open())] {
        let kind = body.kind();
        let mut out = [0; MAX_LEN];
        let len = body.encode(&mut out);
        let epoch = message(body.clone()).epoch;
        let read = |count, len, bytes: &[u8]| {
            Xrc::decode(kind, count, len, (epoch, epoch), &mut Reader::new(bytes))
        };
        assert_eq!(read(0, len, &out[COMMON..len]), Ok(body));
        let refused = Err(DecodeError::Field("segment count"));
        assert_eq!(read(1, len + 24, &out[COMMON..len + 24]), refused);
        assert_eq!(
            read(0, len + 4, &out[COMMON..len + 4]),
            Err(DecodeError::Length(len + 4))
        );
    }
    let (epoch, none) = (message(Xrc::Gone).epoch, &mut Reader::new(&[]));
    let unknown = Err(DecodeError::Field("kind"));
    assert_eq!(Xrc::decode(23, 0, COMMON, (epoch, epoch), none), unknown);
}

fn any_epoch(from: u32) -> impl Strategy<Value = Epoch> {
    (any::<u64>(), from..).prop_map(|(incarnation, generation)| Epoch {
        incarnation,
        generation,
    })
}

fn any_ud() -> impl Strategy<Value = UdAddress> {
    (
        any::<[u8; 16]>(),
        any::<u16>(),
        0u32..1 << 24,
        0u32..1 << 31,
    )
        .prop_map(|(gid, udp_port, qpn, qkey)| UdAddress {
            gid: Gid(gid),
            udp_port,
            qpn: Qpn(qpn),
            qkey: Qkey(qkey),
        })
}

fn any_memory() -> impl Strategy<Value = Memory> {
    let segment =
        (0u64..1 << 63, 0u64..1 << 63, any::<u32>()).prop_map(|(address, size, rkey)| Segment {
            address,
            size,
            rkey: Rkey(rkey),
            id: 0,
            generation: 1,
        });
    (
        0u32..1 << 24,
        proptest::collection::vec(segment, 0..=MAX_SEGMENTS),
    )
        .prop_map(|(srqn, mut segments)| {
            for (id, segment) in (0u8..).zip(&mut segments) {
                segment.id = id;
            }
            Memory {
                srqn: SrqNum(srqn),
                segments: segments.into(),
            }
        })
}

fn any_body() -> impl Strategy<Value = Xrc> {
    let end = (
        0u32..1 << 24,
        0u32..1 << 24,
        prop::sample::select(vec![Mtu::M256, Mtu::M4096]),
        any::<u8>(),
    );
    (0..7, any_ud(), any_memory(), end).prop_map(|(kind, ud, memory, end)| {
        let (qpn, psn, mtu, max_rd_atomic) = (Qpn(end.0), Psn(end.1), end.2, end.3);
        match kind {
            0 => Xrc::Open(Open {
                ud,
                qpn,
                psn,
                mtu,
                max_rd_atomic,
            }),
            1 => Xrc::Accept(Accept {
                qpn,
                psn,
                mtu,
                max_rd_atomic,
                memory,
            }),
            2 => Xrc::Ask { ud },
            3 => Xrc::Info(memory),
            4 => Xrc::Bye { ud },
            5 => Xrc::Gone,
            _ => Xrc::Leave { ud },
        }
    })
}

proptest! {
    #[test]
    fn every_message_round_trips(
        body in any_body(), epoch in any_epoch(1), echo in any_epoch(1), want_reply: bool,
    ) {
        let message = Message { epoch, echo: Some(echo), want_reply, ..message(body) };
        prop_assert_eq!(codec().decode(&encoded(&message)), Ok(message));
    }

    #[test]
    fn every_flipped_bit_and_truncation_is_noticed(body in any_body(), at: prop::sample::Index) {
        let good = encoded(&message(body));
        let bit = at.index(good.len() * 8);
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(codec().decode(&bad).is_err());
        prop_assert!(codec().decode(&good[..at.index(good.len())]).is_err());
    }

    #[test]
    fn authentic_random_bytes_never_panic(
        kind in 16u8..24, count: u8, bytes in proptest::collection::vec(any::<u8>(), 0..260),
    ) {
        let epoch = message(Xrc::Gone).epoch;
        let input = &mut Reader::new(&bytes);
        if let Ok(body) =
            Xrc::decode(kind, count, 44 + bytes.len(), (epoch, epoch), input)
        {
            // What is read is what would be written.
            let mut out = [0; MAX_LEN];
            let end = body.encode(&mut out);
            prop_assert_eq!(end, COMMON + bytes.len());
        }
    }
}
