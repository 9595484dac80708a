use super::*;
use proptest::prelude::*;

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Up), Just(Direction::Down)]
}

/// A random valid message, encoded.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let gather = (1usize..20, 0usize..6).prop_flat_map(|(len, count)| {
        (
            direction(),
            any::<u64>(),
            Just(len),
            prop::collection::vec(any::<u8>(), len * count),
        )
    });
    let pairs = prop::collection::vec(
        (
            prop::collection::vec(any::<u8>(), 1..=MAX_KEY),
            prop::collection::vec(any::<u8>(), 0..50),
        ),
        0..5,
    );
    prop_oneof![
        gather.prop_map(|(direction, request, value_len, values)| {
            let values = &values[..];
            let body = Body::Gather { value_len, values };
            Message {
                direction,
                request,
                body,
            }
            .encode()
            .unwrap()
        }),
        (direction(), any::<u64>(), pairs).prop_map(|(direction, request, pairs)| {
            let mut message = vec![0; FENCE_PAIRS];
            for (key, value) in &pairs {
                append_pair(&mut message, key, value);
            }
            seal_fence(&mut message, direction, request, pairs.len() as u32).unwrap();
            let decoded = Message::decode(&message).unwrap();
            let Body::Fence(read) = decoded.body else {
                panic!("{decoded:?}")
            };
            assert_eq!(read.count() as usize, pairs.len());
            for ((k, v), (key, value)) in read.iter().zip(&pairs) {
                assert_eq!((k, v), (&key[..], &value[..]));
            }
            message
        }),
        (direction(), any::<u64>(), any::<u32>(), "\\PC{0,30}").prop_map(
            |(direction, request, rank, reason)| failed(direction, request, rank, &reason)
        ),
        (
            direction(),
            any::<u64>(),
            any::<[u32; 2]>(),
            any::<[Vec<u8>; 2]>()
        )
            .prop_map(|(direction, request, [first, count], [left, right])| {
                let part = RingPart {
                    first,
                    count,
                    left: &left,
                    right: &right,
                };
                let body = Body::Ring(part);
                let message = Message {
                    direction,
                    request,
                    body,
                }
                .encode()
                .unwrap();
                assert_eq!(Message::decode(&message).unwrap().body, body);
                message
            }),
        (any::<u64>(), any::<bool>(), "[a-z]{1,9}").prop_map(|(request, puts, key)| {
            let mut bytes = Vec::new();
            append_pair(
                &mut bytes,
                key.as_bytes(),
                if puts { b"value" } else { b"" },
            );
            let pairs = Pairs::checked(&bytes);
            assert_eq!(pairs.count(), 1);
            let (direction, body) = match puts {
                true => (Direction::Up, Body::Puts(pairs)),
                false => (Direction::Down, Body::Changed(pairs)),
            };
            let message = Message {
                direction,
                request,
                body,
            };
            let message = message.encode().unwrap();
            assert_eq!(Message::decode(&message).unwrap().body, body);
            message
        }),
        (
            direction(),
            any::<u64>(),
            prop::sample::select(&Operation::ALL[..]),
            any::<u32>(),
            prop::collection::vec((any::<u32>(), any::<Vec<u8>>()), 0..4)
        )
            .prop_map(|(direction, request, operation, root, records)| {
                let mut message = vec![0; DATA_RECORDS];
                for (rank, bytes) in &records {
                    append_record(&mut message, *rank, bytes);
                }
                let count = records.len() as u32;
                seal_data(&mut message, direction, request, (operation, root), count).unwrap();
                let decoded = Message::decode(&message).unwrap();
                let Body::Data { records: read, .. } = decoded.body else {
                    panic!("{decoded:?}")
                };
                let given = records.iter().map(|(rank, bytes)| (*rank, &bytes[..]));
                assert!(read.iter().eq(given));
                message
            }),
        (
            direction(),
            any::<u64>(),
            any::<u32>(),
            any::<bool>(),
            any::<Vec<u8>>()
        )
            .prop_map(|(direction, request, asker, asks, what)| {
                let body = match asks {
                    true => Body::Ask {
                        asker,
                        question: &what,
                    },
                    false => Body::Answer {
                        asker,
                        answer: &what,
                    },
                };
                Message {
                    direction,
                    request,
                    body,
                }
                .encode()
                .unwrap()
            }),
    ]
}

proptest! {
    #[test]
    fn messages_round_trip(bytes in message()) {
        let decoded = Message::decode(&bytes).unwrap();
        prop_assert_eq!(decoded.encode().unwrap(), bytes);
    }

    #[test]
    fn damaged_messages_never_panic(mut bytes in message(), at: usize, to: u8, cut: usize) {
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = Message::decode(&bytes);
        let _ = Message::decode(&bytes[..cut % bytes.len()]);
        let mut decoder = Decoder::new();
        decoder.push(&bytes);
        while let Ok(Some(message)) = decoder.next_message() {
            let _ = Message::decode(&message);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        let _ = Message::decode(&bytes);
        let mut decoder = Decoder::new();
        decoder.push(&bytes);
        while let Ok(Some(_)) = decoder.next_message() {}
    }

    #[test]
    fn fragmentation_does_not_matter(
        messages in prop::collection::vec(message(), 1..6),
        cuts in prop::collection::vec(1usize..80, 1..20),
    ) {
        let stream = messages.concat();
        let (mut decoder, mut seen, mut rest) = (Decoder::new(), Vec::new(), &stream[..]);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            rest = later;
            decoder.push(now);
            while let Some(message) = decoder.next_message().unwrap() {
                seen.push(message);
            }
        }
        prop_assert_eq!(seen, messages);
        prop_assert_eq!(decoder.pending(), 0);
    }
}

#[test]
fn header_on_the_wire() {
    let message = Message {
        direction: Direction::Down,
        request: 0x0102,
        body: Body::Gather {
            value_len: 2,
            values: b"abcd",
        },
    };
    assert_eq!(
        message.encode().unwrap(),
        [
            &[VERSION, 2, 0, 0, 12, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0][..],
            &[2, 0, 0, 0, 2, 0, 0, 0],
            b"abcd",
        ]
        .concat()
    );
}

#[test]
fn announced_lengths_cost_no_memory() {
    let mut header = vec![0; HEADER_LEN];
    header[0] = VERSION;
    header[1] = 3;
    header[4..8].copy_from_slice(&(MAX_BODY as u32).to_le_bytes());
    let mut decoder = Decoder::new();
    decoder.push(&header);
    assert_eq!(decoder.next_message(), Ok(None));
    assert!(decoder.buffer.capacity() < 1000);
    header[7] = 0xff;
    decoder = Decoder::new();
    decoder.push(&header);
    assert!(matches!(
        decoder.next_message(),
        Err(TreeWireError::Header { .. })
    ));
    assert!(decoder.next_message().is_err());
}

#[test]
fn long_reasons_are_cut_between_characters() {
    let reason = "ä".repeat(600);
    let bytes = failed(Direction::Up, 1, 2, &format!("x{reason}"));
    let Body::Failed { rank: 2, reason } = Message::decode(&bytes).unwrap().body else {
        panic!("not a failure");
    };
    assert_eq!(reason.len(), 1023);
}
