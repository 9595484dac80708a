//! Atomics that owners execute: atomic with respect to the processor's own, complete when they say
//! so, and answered whatever happens to queues, packets and connections.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use shmem_ib::atomic::{AtomicOp, Width};
use shmem_ib::connect::endpoint::{
    Atomics, ConnError, ContextId, EndpointConfig, Source, Transport,
};
use shmem_ib::rng::Rng;
use shmem_ib::soft::{Faults, SoftConfig, SoftHca};
use shmem_ib::verbs::Hca;

use shmem_ib_kit::job::{Job, Pe, Plain};

fn owners(n: u32, change: impl Fn(&mut EndpointConfig, &mut SoftConfig)) -> Job {
    Job::with(n, |config, soft| {
        config.atomics = Atomics::Owner;
        change(config, soft);
    })
}

fn word8(pe: &Pe, offset: u64) -> &AtomicU64 {
    assert!(offset.is_multiple_of(8));
    // SAFETY: inside of the segment, aligned, and accessed by atomics only.
    unsafe { AtomicU64::from_ptr(pe.place(offset).cast()) }
}

fn word4(pe: &Pe, offset: u64) -> &AtomicU32 {
    assert!(offset.is_multiple_of(4));
    // SAFETY: as above.
    unsafe { AtomicU32::from_ptr(pe.place(offset).cast()) }
}

/// What the HCA counts and what the owner counts: who executed the atomics.
fn served(job: &Job) -> u64 {
    let count = |pe: &Pe| pe.endpoint.stats().atomics_served;
    job.pes.iter().map(count).sum()
}

#[test]
fn processor_and_peers_add_to_the_same_words() {
    let job = owners(3, |_, _| {});
    let (rounds, local) = (400u64, 50_000u64);
    let tickets = Mutex::new(HashSet::new());
    let mine = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        let owner = &job.pes[0];
        for _ in 0..2 {
            scope.spawn(|| {
                for i in 0..local {
                    let old = word8(owner, 0).fetch_add(1, Ordering::SeqCst);
                    if i % 100 == 0 {
                        mine.lock().unwrap().insert(old);
                    }
                    word4(owner, 12).fetch_add(1, Ordering::SeqCst);
                    word8(owner, 16).fetch_xor(1 << (i % 32), Ordering::SeqCst);
                }
            });
        }
        for pe in &job.pes[1..] {
            scope.spawn(|| {
                for i in 0..rounds {
                    let old = pe.endpoint.fetch_add(0, 0, 1).unwrap();
                    assert!(tickets.lock().unwrap().insert(old), "{old} given twice");
                    let (e, w4) = (&pe.endpoint, Width::W4);
                    e.context(ContextId::DEFAULT)
                        .atomic_plain(0, 0, 12, w4, AtomicOp::Add(1))
                        .unwrap();
                    let bit = AtomicOp::Xor(1 << (32 + i % 32));
                    e.context(ContextId::DEFAULT)
                        .atomic_plain(0, 0, 16, Width::W8, bit)
                        .unwrap();
                }
                pe.endpoint.quiet().unwrap();
            });
        }
    });
    let owner = &job.pes[0];
    assert_eq!(owner.word(0), 2 * rounds + 2 * local);
    assert_eq!(
        u64::from(word4(owner, 12).load(Ordering::SeqCst)),
        2 * (rounds + local)
    );
    // The 32-bit neighbour of that word was not touched.
    assert_eq!(word4(owner, 8).load(Ordering::SeqCst), 0);
    assert_eq!(
        owner.word(16),
        0,
        "every bit was flipped an even number of times"
    );
    assert!(tickets.lock().unwrap().is_disjoint(&mine.lock().unwrap()));
    assert_eq!(served(&job), 2 * 3 * rounds);
}

#[test]
fn every_operation_does_what_the_processor_does() {
    // Both ways, side by side: the owner executes, or the HCA with compare-and-swap for the rest.
    for atomics in [Atomics::Owner, Atomics::Hca] {
        let job = Job::with(2, |config, _| config.atomics = atomics);
        let (pe, owner) = (&job.pes[0], &job.pes[1]);
        assert_eq!(pe.endpoint.atomics_by_owner(), atomics == Atomics::Owner);
        let mut rng = Rng::new(5);
        let mut model = [0u64; 4];
        for round in 0..600 {
            let width = [Width::W4, Width::W8][rng.below(2) as usize];
            let per = 32 / width.bytes() as u64;
            let offset = rng.below(per) * width.bytes() as u64;
            let shift = (offset % 8) * 8;
            let ones = match width {
                Width::W4 => 0xffff_ffff,
                Width::W8 => u64::MAX,
            };
            let cell = &mut model[offset as usize / 8];
            let old = *cell >> shift & ones;
            let n = rng.next_u64() & ones;
            let op = match rng.below(8) {
                0 => AtomicOp::Fetch,
                1 => AtomicOp::Swap(n),
                2 => AtomicOp::CompareSwap {
                    compare: old,
                    new: n,
                },
                3 => AtomicOp::CompareSwap { compare: n, new: 1 },
                4 => AtomicOp::Add(n),
                5 => AtomicOp::And(n),
                6 => AtomicOp::Or(n),
                _ => AtomicOp::Xor(n),
            };
            *cell = *cell & !(ones << shift) | op.apply(old, width) << shift;
            if rng.below(2) == 0 {
                let got = pe
                    .endpoint
                    .context(ContextId::DEFAULT)
                    .atomic(1, 0, 64 + offset, width, op)
                    .unwrap();
                assert_eq!(got, old, "{op:?} {width:?} in round {round}, {atomics:?}");
            } else {
                pe.endpoint
                    .context(ContextId::DEFAULT)
                    .atomic_plain(1, 0, 64 + offset, width, op)
                    .unwrap();
            }
            if round % 7 == 0 {
                pe.endpoint.quiet().unwrap();
                let seen: Vec<u64> = (0..4).map(|i| owner.word(64 + 8 * i)).collect();
                assert_eq!(
                    seen, model,
                    "{op:?} {width:?} in round {round}, {atomics:?}"
                );
            }
        }
        assert_eq!(
            served(&job),
            if atomics == Atomics::Owner { 600 } else { 0 }
        );
    }
}

/// Everybody adds to everybody without waiting, and then everything is there.
fn flood(job: &Job, adds: u64) {
    let n = job.pes.len() as u32;
    let start = Barrier::new(n as usize);
    job.run(|pe| {
        start.wait();
        for _ in 0..adds {
            for to in (0..n).filter(|to| *to != pe.number) {
                pe.endpoint.add_nbi(to, 8, 1).unwrap();
            }
        }
        pe.endpoint.quiet().unwrap();
    });
    for pe in &job.pes {
        assert_eq!(pe.word(8), adds * (u64::from(n) - 1));
        assert_eq!(pe.endpoint.stats().in_flight, 0);
    }
    assert_eq!(served(job), adds * u64::from(n) * (u64::from(n) - 1));
}

#[test]
fn two_that_flood_each_other_both_get_through() {
    flood(&owners(2, |_, _| {}), 20_000);
}

#[test]
fn floods_get_through_the_smallest_send_queues() {
    flood(&owners(3, |config, _| config.sq_depth = 1), 1500);
    flood(&owners(4, |config, _| config.cq_depth = 64), 1000);
}

#[test]
fn more_peers_than_receives_are_served() {
    // Six windows of 64 are more than the 256 receives.
    flood(&owners(7, |_, _| {}), 1200);
}

#[test]
fn a_target_without_help_of_its_program_answers_a_flood() {
    let job = owners(5, |_, _| {});
    std::thread::scope(|scope| {
        for pe in &job.pes[1..] {
            scope.spawn(|| {
                for _ in 0..5000 {
                    pe.endpoint.add_nbi(0, 0, 1).unwrap();
                }
                pe.endpoint.quiet().unwrap();
            });
        }
    });
    assert_eq!(job.pes[0].word(0), 20_000);
}

#[test]
fn a_bad_network_loses_and_repeats_nothing() {
    for (percent, seed) in [(2, 11), (8, 12)] {
        let ppm = percent * 10_000;
        let job = owners(3, |_, soft| {
            soft.faults = Faults {
                drop: ppm,
                duplicate: ppm,
                reorder: ppm,
                seed,
            };
        });
        let tickets = Mutex::new(HashSet::new());
        job.run(|pe| {
            for _ in 0..60 {
                for to in (0..3).filter(|to| *to != pe.number) {
                    pe.endpoint.add_nbi(to, 8, 1).unwrap();
                    let old = pe.endpoint.fetch_add(to, 0, 1).unwrap();
                    assert!(tickets.lock().unwrap().insert((to, old)));
                }
            }
            pe.endpoint.quiet().unwrap();
        });
        for pe in &job.pes {
            assert_eq!((pe.word(0), pe.word(8)), (120, 120), "at {percent} %");
        }
        assert_eq!(served(&job), 720);
        let resent = job
            .pes
            .iter()
            .map(|pe| pe.endpoint.stats().hca.retransmitted);
        assert!(resent.sum::<u64>() > 0, "at {percent} %");
    }
}

/// Keeps the HCA of a PE going whose endpoint stands still: it acknowledges and writes, but nobody
/// executes.
fn device_alone<R>(pe: &Pe, body: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    let hca = pe.hca();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                hca.wait(Duration::from_millis(5));
            }
        });
        let result = body();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Waits until the HCA of `pe` has the acknowledgements of all that it has sent.
fn acknowledged(pe: &Pe, sent_before: u64) {
    loop {
        let stats = pe.endpoint.stats();
        if stats.hca.packets_sent > sent_before && stats.in_flight == 0 {
            return;
        }
        pe.endpoint.progress();
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_fence_orders_puts_behind_atomics() {
    let mut job = owners(2, |_, _| {});
    job.pes[0].put_word(1, 8, 0);
    job.pes[0].endpoint.quiet().unwrap();
    job.pes[1].pause();
    std::thread::scope(|scope| {
        let (before, rest) = job.pes.split_at_mut(1);
        let (a, b) = (&before[0], &mut rest[0]);
        let sent = a.endpoint.stats().hca.packets_sent;
        for _ in 0..5 {
            a.endpoint.add_nbi(1, 8, 1).unwrap();
        }
        let fenced = scope.spawn(|| {
            a.endpoint.fence();
            a.put_word(1, 0, 1);
            a.endpoint.quiet().unwrap();
        });
        let meanwhile = device_alone(b, || {
            acknowledged(a, sent);
            std::thread::sleep(Duration::from_millis(50));
            (b.word(0), b.word(8))
        });
        b.resume();
        fenced.join().unwrap();
        assert_eq!(meanwhile, (0, 0), "the put is behind the fence");
        assert_eq!((b.word(0), b.word(8)), (1, 5));
    });
    // And under way, many times.
    let (a, b) = (&job.pes[0], &job.pes[1]);
    for round in 2..=200u64 {
        for _ in 0..5 {
            a.endpoint.add_nbi(1, 8, 1).unwrap();
        }
        a.endpoint.fence();
        a.put_word(1, 0, round);
        while b.word(0) != round {
            std::thread::yield_now();
        }
        assert_eq!(b.word(8), 5 * round);
    }
    a.endpoint.quiet().unwrap();
}

#[test]
fn quiet_waits_for_the_execution() {
    let mut job = owners(2, |_, _| {});
    job.pes[0].endpoint.fetch_add(1, 8, 1).unwrap();
    job.pes[1].pause();
    let (before, rest) = job.pes.split_at_mut(1);
    let (a, b) = (&before[0], &mut rest[0]);
    let sent = a.endpoint.stats().hca.packets_sent;
    a.endpoint.add_nbi(1, 8, 1).unwrap();
    std::thread::scope(|scope| {
        let quiet = scope.spawn(|| a.endpoint.quiet().unwrap());
        let waits = device_alone(b, || {
            acknowledged(a, sent);
            std::thread::sleep(Duration::from_millis(50));
            !quiet.is_finished() && b.word(8) == 1
        });
        b.resume();
        quiet.join().unwrap();
        assert!(waits);
        assert_eq!(b.word(8), 2);
    });
}

#[test]
fn an_atomic_comes_after_the_put_before_it() {
    let job = owners(2, |_, _| {});
    let (a, b) = (&job.pes[0], &job.pes[1]);
    for round in 1..=50u64 {
        let bytes = vec![round as u8; 100_000];
        // SAFETY: `bytes` lives until after `quiet`.
        unsafe {
            a.endpoint
                .put(1, 64, bytes.as_ptr(), bytes.len(), Source::UntilQuiet)
                .unwrap()
        };
        a.endpoint.add_nbi(1, 0, 1).unwrap();
        while b.word(0) != round {
            std::thread::yield_now();
        }
        assert_eq!(b.word(64 + 99_992), u64::from_ne_bytes([round as u8; 8]));
        a.endpoint.quiet().unwrap();
    }
}

#[test]
fn threads_of_one_pe_ask_together() {
    let job = owners(3, |_, _| {});
    let pe = &job.pes[0];
    std::thread::scope(|scope| {
        for thread in 0..5u64 {
            scope.spawn(move || {
                for i in 0..400u64 {
                    let to = 1 + ((thread + i) % 2) as u32;
                    pe.endpoint.add_nbi(to, 0, 1).unwrap();
                    match i % 50 {
                        10 => pe.endpoint.fence(),
                        20 => pe.endpoint.quiet().unwrap(),
                        30 => drop(pe.endpoint.fetch_add(to, 8, 1).unwrap()),
                        _ => {}
                    }
                }
                pe.endpoint.quiet().unwrap();
            });
        }
    });
    let sum = |at| job.pes[1..].iter().map(|pe| pe.word(at)).sum::<u64>();
    assert_eq!((sum(0), sum(8)), (2000, 40));
}

#[test]
fn connections_make_room_only_between_atomics() {
    for cap in [1, 2] {
        let n = 5;
        let job = owners(n, |config, _| config.max_qps = cap);
        job.run(|pe| {
            for round in 0..12 {
                for step in 1..n {
                    let to = (pe.number + step) % n;
                    for _ in 0..20 {
                        pe.endpoint.add_nbi(to, 8, 1).unwrap();
                    }
                    let old = pe.endpoint.fetch_add(to, 0, 1).unwrap();
                    assert!(old < 12 * u64::from(n - 1));
                    if round % 3 == 0 {
                        pe.endpoint.fence();
                    }
                    assert!(pe.endpoint.stats().queue_pairs <= cap);
                }
            }
            pe.endpoint.quiet().unwrap();
        });
        let each = 12 * u64::from(n - 1);
        for pe in &job.pes {
            assert_eq!((pe.word(0), pe.word(8)), (each, 20 * each), "cap {cap}");
            let connect = pe.endpoint.stats().connect;
            assert_eq!((connect.failed, connect.drains_abandoned), (0, 0));
        }
        let evicted = job
            .pes
            .iter()
            .map(|pe| pe.endpoint.stats().connect.evictions);
        assert!(evicted.sum::<u64>() > 0);
        job.run(|pe| pe.endpoint.close());
    }
}

#[test]
fn who_closes_serves_what_is_under_way() {
    let job = owners(4, |config, _| config.linger = Duration::from_secs(5));
    let start = Barrier::new(4);
    job.run(|pe| {
        // Everybody leaves at once, with atomics under way in all directions.
        for to in (0..4).filter(|to| *to != pe.number) {
            pe.endpoint.fetch_add(to, 0, 1).unwrap();
        }
        start.wait();
        for _ in 0..50 {
            for to in (0..4).filter(|to| *to != pe.number) {
                match pe.endpoint.add_nbi(to, 8, 1) {
                    Ok(()) => {
                        word8(pe, 16 + 8 * u64::from(to)).fetch_add(1, Ordering::SeqCst);
                    }
                    Err(ConnError::PeerLeft { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        }
        pe.endpoint.close();
    });
    for (i, pe) in (0u64..).zip(&job.pes) {
        let sent: u64 = job.pes.iter().map(|from| from.word(16 + 8 * i)).sum();
        assert_eq!(
            pe.word(8),
            sent,
            "what was accepted was executed, at PE {i}"
        );
        assert_eq!(pe.endpoint.stats().connect.byes_missed, 0);
    }
}

#[test]
fn an_owner_that_dies_before_it_answers_is_found_out() {
    let mut job = owners(2, |config, _| {
        (config.rc_timeout, config.rc_retry) = (12, 3);
    });
    job.pes[0].endpoint.fetch_add(1, 0, 1).unwrap();
    // Its HCA acknowledges, but nobody executes.
    job.pes[1].pause();
    let (before, rest) = job.pes.split_at_mut(1);
    let (asker, owner) = (&before[0], &mut rest[0]);
    let sent = asker.endpoint.stats().hca.packets_sent;
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| asker.endpoint.fetch_add(1, 0, 1));
        let answered = device_alone(owner, || {
            acknowledged(asker, sent);
            asking.is_finished()
        });
        owner.die();
        assert!(!answered, "nobody can have executed it");
        let error = asking.join().unwrap().unwrap_err().to_string();
        assert!(
            error.contains("PE 1") && error.contains("has died"),
            "{error}"
        );
    });
    // And so for all that comes later.
    assert!(job.pes[0].endpoint.fetch_add(1, 0, 1).is_err());
}

#[test]
fn misaligned_and_outside_words_are_errors_of_the_caller() {
    let job = owners(2, |_, _| {});
    let e = &job.pes[0].endpoint;
    let size = shmem_ib_kit::job::WORDS as u64 * 8;
    let fetch = |offset, width| {
        e.context(ContextId::DEFAULT)
            .atomic(1, 0, offset, width, AtomicOp::Fetch)
    };
    assert!(matches!(
        fetch(4, Width::W8),
        Err(ConnError::Misaligned { bytes: 8, .. })
    ));
    assert!(matches!(
        fetch(2, Width::W4),
        Err(ConnError::Misaligned { bytes: 4, .. })
    ));
    assert!(matches!(
        fetch(size, Width::W4),
        Err(ConnError::OutOfRange { len: 4, .. })
    ));
    assert_eq!(fetch(size - 4, Width::W4).unwrap(), 0);
}

#[test]
fn pes_that_differ_in_it_do_not_connect() {
    let job = Job::with(2, |config, _| {
        config.connect_deadline = Duration::from_millis(300);
        if config.pe == 0 {
            config.atomics = Atomics::Owner;
        }
    });
    let result = job.pes[0].endpoint.fetch_add(1, 0, 1);
    assert!(matches!(result, Err(ConnError::Unreachable { .. })));
}

#[test]
fn over_xrc_it_is_refused() {
    let hca = SoftHca::open(&SoftConfig::loopback(1)).unwrap();
    let config = EndpointConfig {
        transport: Transport::Xrc { domain: None },
        atomics: Atomics::Owner,
        ..EndpointConfig::default()
    };
    let error = shmem_ib::connect::endpoint::Endpoint::new(hca.into(), config).unwrap_err();
    assert!(matches!(error, ConnError::OwnerOverXrc), "{error}");
}

#[test]
fn auto_takes_the_hca_where_it_is_coherent() {
    let job = Job::new(2);
    job.pes[0].endpoint.fetch_add(1, 0, 1).unwrap();
    assert!(!job.pes[0].endpoint.atomics_by_owner());
    assert_eq!(served(&job), 0);
}
