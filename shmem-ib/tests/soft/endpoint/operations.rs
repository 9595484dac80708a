//! Puts, gets and atomics of all sizes and kinds of buffers, and what `quiet` promises.

use std::collections::HashSet;
use std::sync::{Barrier, Mutex};

use shmem_ib::connect::endpoint::Source;
use shmem_ib_kit::job::{Job, Pe, Plain};

/// Around every limit: inline, copied slots, packets, and several work requests' worth.
const SIZES: [usize; 25] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    63,
    64,
    65,
    127,
    255,
    257,
    4095,
    4096,
    4097,
    16_383,
    16_384,
    16_385,
    65_537,
    262_143,
    262_144,
    300_001,
    4 << 20,
];

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + i / 256 * 7 + salt) as u8)
        .collect()
}

/// Fills a range of the own segment.
fn fill(pe: &Pe, offset: u64, bytes: &[u8]) {
    for (i, byte) in (0u64..).zip(bytes) {
        // SAFETY: inside the segment, and no peer uses it at the moment.
        unsafe { pe.place(offset + i).write_volatile(*byte) };
    }
}

fn content(pe: &Pe, offset: u64, len: usize) -> Vec<u8> {
    // SAFETY: as above.
    (0..len as u64)
        .map(|i| unsafe { pe.place(offset + i).read_volatile() })
        .collect()
}

#[test]
fn puts_of_all_sizes_from_all_kinds_of_sources() {
    puts_of_all_sizes(&Job::new(2));
}

#[test]
fn the_same_where_registering_is_expensive() {
    let job = Job::with(2, |config, _| config.copied = Some(256 << 10));
    puts_of_all_sizes(&job);
    gets_of_all_sizes(&job);
}

fn puts_of_all_sizes(job: &Job) {
    let (a, b) = (&job.pes[0], &job.pes[1]);
    for (salt, len) in SIZES.into_iter().enumerate() {
        let kinds = [
            Source::UntilReturn,
            Source::UntilRelease,
            Source::UntilQuiet,
        ];
        let kinds = kinds.map(|stays| [(stays, false), (stays, true)]);
        for (kind, (stays, inside)) in kinds.into_iter().flatten().enumerate() {
            let salt = salt * 6 + kind;
            let mut bytes = pattern(len, salt);
            let expected = bytes.clone();
            let at = 8 + salt as u64 % 9;
            fill(b, at, &vec![0xa5; len + 1]);
            let src = if inside {
                fill(a, 64, &bytes);
                a.place(64)
            } else {
                bytes.as_mut_ptr()
            };
            // SAFETY: the source lives, and keeps its content as long as promised.
            unsafe { a.endpoint.put(1, at, src, len, stays).unwrap() };
            if stays == Source::UntilRelease {
                a.endpoint.plain().release_sources().unwrap();
            }
            if stays != Source::UntilQuiet {
                // It may be overwritten at once.
                bytes.fill(0xee);
                if inside {
                    fill(a, 64, &vec![0xee; len]);
                }
            }
            a.endpoint.quiet().unwrap();
            let context = format!("{len} bytes, {stays:?}, inside {inside}");
            assert!(content(b, at, len) == expected, "{context}");
            assert_eq!(content(b, at + len as u64, 1), [0xa5], "behind: {context}");
        }
    }
    assert_eq!(a.endpoint.stats().in_flight, 0);
}

#[test]
fn gets_of_all_sizes_to_all_kinds_of_destinations() {
    gets_of_all_sizes(&Job::new(2));
}

fn gets_of_all_sizes(job: &Job) {
    let (a, b) = (&job.pes[0], &job.pes[1]);
    for (salt, len) in SIZES.into_iter().enumerate() {
        for (blocking, inside) in [(true, false), (false, false), (true, true), (false, true)] {
            let expected = pattern(len, salt);
            let at = 8 + salt as u64 % 9;
            fill(b, at, &expected);
            let mut outside = vec![0xa5; len + 1];
            fill(a, 64, &outside);
            let dst = if inside {
                a.place(64)
            } else {
                outside.as_mut_ptr()
            };
            // SAFETY: the destination lives and is not looked at before `quiet`.
            unsafe { a.endpoint.get(1, at, dst, len, blocking).unwrap() };
            if !blocking {
                a.endpoint.quiet().unwrap();
            }
            let got = if inside {
                content(a, 64, len + 1)
            } else {
                outside
            };
            let context = format!("{len} bytes, blocking {blocking}, inside {inside}");
            assert!(got[..len] == expected, "{context}");
            assert_eq!(got[len], 0xa5, "behind: {context}");
        }
    }
}

#[test]
fn fetch_add_hands_out_every_number_once() {
    let n = 4;
    let job = Job::new(n);
    let tickets = Mutex::new(HashSet::new());
    job.run(|pe| {
        if pe.number > 0 {
            for _ in 0..200 {
                let ticket = pe.endpoint.fetch_add(0, 0, 1).unwrap();
                assert!(
                    tickets.lock().unwrap().insert(ticket),
                    "ticket {ticket} given twice"
                );
                pe.endpoint.add_nbi(0, 8, 3).unwrap();
            }
            pe.endpoint.quiet().unwrap();
        }
    });
    assert_eq!(tickets.lock().unwrap().len(), 600);
    assert_eq!((job.pes[0].word(0), job.pes[0].word(8)), (600, 1800));
}

#[test]
fn a_lock_made_of_compare_swap_excludes() {
    let job = Job::new(3);
    let rounds = 40u64;
    job.run(|pe| {
        if pe.number == 0 {
            return;
        }
        for _ in 0..rounds {
            while pe
                .endpoint
                .compare_swap(0, 0, 0, u64::from(pe.number))
                .unwrap()
                != 0
            {}
            // Not atomic on purpose: the lock has to protect it.
            let count = pe.get_word(0, 8);
            pe.put_word(0, 8, count + 1);
            pe.endpoint.quiet().unwrap();
            let me = u64::from(pe.number);
            assert_eq!(pe.endpoint.compare_swap(0, 0, me, 0).unwrap(), me);
        }
    });
    assert_eq!(job.pes[0].word(8), 2 * rounds);
    assert_eq!(job.pes[0].word(0), 0);
}

#[test]
fn after_quiet_everything_is_there() {
    let job = Job::new(3);
    let turn = Barrier::new(3);
    let count = 500u64;
    job.run(|pe| {
        let me = u64::from(pe.number);
        for round in 0..5u64 {
            let source: Vec<u64> = (0..count).map(|i| round << 40 | me << 20 | i).collect();
            for to in (0..3).filter(|to| *to != pe.number) {
                for i in 0..count {
                    let src = std::ptr::from_ref(&source[i as usize]).cast();
                    let at = (me * count + i) * 8;
                    // SAFETY: `source` lives until after `quiet`.
                    unsafe { pe.endpoint.put(to, at, src, 8, Source::UntilQuiet).unwrap() };
                }
            }
            pe.endpoint.quiet().unwrap();
            turn.wait();
            for from in (0..3).filter(|from| *from != me) {
                for i in 0..count {
                    assert_eq!(
                        pe.word((from * count + i) * 8),
                        round << 40 | from << 20 | i
                    );
                }
            }
            turn.wait();
        }
    });
}

#[test]
fn operations_to_one_pe_are_executed_in_order() {
    let job = Job::new(2);
    let (a, b) = (&job.pes[0], &job.pes[1]);
    // Data of changing kind, then a flag: who sees the flag must see the data.
    for round in 1..=50u64 {
        let len = [8usize, 200, 9_000, 100_000][round as usize % 4];
        let bytes = vec![round as u8; len];
        // SAFETY: `bytes` lives until after `quiet`.
        unsafe {
            a.endpoint
                .put(1, 64, bytes.as_ptr(), len, Source::UntilQuiet)
                .unwrap()
        };
        a.put_word(1, 0, round);
        while b.word(0) != round {
            std::thread::yield_now();
        }
        assert_eq!(content(b, 64, len), bytes);
        a.endpoint.quiet().unwrap();
    }
}
