//! Contexts of an endpoint: each completes by itself, whoever executes atomics and over whatever kind
//! of connection; atomics of several steps; connecting ahead.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use shmem_ib::atomic::{AtomicOp, Width};
use shmem_ib::connect::endpoint::{
    Atomics, ConnError, Context, ContextId, Endpoint, EndpointConfig, Lookup, Source, Transport,
};
use shmem_ib::rng::Rng;
use shmem_ib::soft::{Faults, SoftHca};

use shmem_ib_kit::job::{Job, Pe, Plain};

fn ctx(pe: &Pe, number: u16) -> Context<'_, SoftHca> {
    pe.endpoint.context(ContextId::new(number))
}

fn put(ctx: Context<'_, SoftHca>, to: u32, offset: u64, value: u64) {
    let src = std::ptr::from_ref(&value).cast();
    // SAFETY: the source may go as soon as this returns.
    unsafe { ctx.put(to, 0, offset, src, 8, Source::UntilReturn).unwrap() };
}

/// The ways in which a job may work; PEs 0, 2 and 4 are on nodes of their own.
const WAYS: [fn(&mut EndpointConfig); 3] = [
    |_| {},
    |config| config.atomics = Atomics::Owner,
    |config| config.transport = Transport::Xrc { domain: None },
];

/// While one peer stands still, a context that has used only others completes, and so does a quiet
/// towards others; the context that has used it waits, and nobody else's operations matter.
#[test]
fn a_context_waits_for_its_own_operations() {
    for way in WAYS {
        let mut job = Job::with(5, |config, _| way(config));
        for pe in [2, 4] {
            put(ctx(&job.pes[0], 0), pe, 0, 1);
            job.pes[0].endpoint.quiet().unwrap();
        }
        job.pes[4].pause();
        let (first, rest) = job.pes.split_at_mut(4);
        let (a, stopped) = (&first[0], &mut rest[0]);
        put(ctx(a, 1), 4, 8, 7);
        ctx(a, 1)
            .atomic_plain(4, 0, 16, Width::W4, AtomicOp::Add(3))
            .unwrap();
        for round in 0..100 {
            put(ctx(a, 2), 2, 8, round);
            ctx(a, 2)
                .atomic_plain(2, 0, 16, Width::W4, AtomicOp::Add(1))
                .unwrap();
            ctx(a, 2).quiet().unwrap();
            assert_eq!(first[2].word(8), round);
            assert_eq!(first[2].word(16), round + 1);
        }
        put(ctx(a, 1), 2, 24, 5);
        ctx(a, 1).quiet_towards(2).unwrap();
        assert_eq!(first[2].word(24), 5);
        ctx(a, 3).quiet().unwrap();
        ctx(a, 0).quiet().unwrap();
        ctx(a, 2).fence();
        assert!(
            a.endpoint.stats().in_flight > 0,
            "the other one is not complete"
        );
        std::thread::scope(|scope| {
            let quiet = scope.spawn(|| ctx(a, 1).quiet().unwrap());
            std::thread::sleep(Duration::from_millis(30));
            let waits = !quiet.is_finished();
            stopped.resume();
            quiet.join().unwrap();
            assert!(waits);
            assert_eq!(stopped.word(8), 7);
            assert_eq!(stopped.word(16), 3);
        });
    }
}

/// Sources that were copied are free at once, whatever becomes of what was sent.
#[test]
fn sources_are_free_though_nobody_answers() {
    for way in WAYS {
        let mut job = Job::with(3, |config, _| way(config));
        put(ctx(&job.pes[0], 1), 2, 0, 1);
        ctx(&job.pes[0], 1).quiet().unwrap();
        job.pes[2].pause();
        let (first, rest) = job.pes.split_at_mut(2);
        let (a, stopped) = (&first[0], &mut rest[0]);
        let c = ctx(a, 1);
        let mut value = 7_u64;
        let src = (&raw const value).cast();
        // SAFETY: the source keeps its content until it is released.
        unsafe { c.put(2, 0, 8, src, 8, Source::UntilRelease) }.unwrap();
        c.release_sources().unwrap();
        value = 9;
        assert!(a.endpoint.stats().in_flight > 0, "nobody has answered");
        // SAFETY: as above.
        unsafe { c.put(2, 0, 16, (&raw const value).cast(), 8, Source::UntilRelease) }.unwrap();
        c.release_sources_towards(2).unwrap();
        stopped.resume();
        c.quiet().unwrap();
        assert_eq!((stopped.word(8), stopped.word(16)), (7, 9));
    }
}

/// A point is passed by what was started before it, whatever the peer does with what comes later, and other
/// peers with theirs.
#[test]
fn a_point_is_passed_without_what_comes_after_it() {
    for way in WAYS {
        let mut job = Job::with(5, |config, _| way(config));
        for pe in [2, 4] {
            put(ctx(&job.pes[0], 1), pe, 0, 1);
            ctx(&job.pes[0], 1).quiet().unwrap();
        }
        assert!(ctx(&job.pes[0], 1).point(4).is_none(), "nothing is left");
        put(ctx(&job.pes[0], 1), 4, 8, 1);
        let before = ctx(&job.pes[0], 1).point(4);
        ctx(&job.pes[0], 1).quiet().unwrap();
        job.pes[4].pause();
        let (first, rest) = job.pes.split_at_mut(4);
        let (a, stopped) = (&first[0], &mut rest[0]);
        let c = ctx(a, 1);
        put(c, 4, 8, 7);
        c.atomic_plain(4, 0, 16, Width::W4, AtomicOp::Or(3))
            .unwrap();
        let after = c.point(4).expect("it is under way");
        if let Some(point) = before {
            c.wait_for(&point).unwrap();
        }
        put(c, 2, 8, 5);
        if let Some(point) = c.point(2) {
            c.wait_for(&point).unwrap();
        }
        assert_eq!(first[2].word(8), 5);
        assert!(ctx(a, 2).point(4).is_none(), "another context's");
        assert!(!c.is_past(&after).unwrap());
        stopped.resume();
        while !c.is_past(&after).unwrap() {
            std::thread::yield_now();
        }
        assert_eq!((stopped.word(8), stopped.word(16)), (7, 3));
        c.wait_for(&after).unwrap();
        assert!(c.point(4).is_none());
    }
}

/// Of two contexts' atomics on one word the second waits for the first, and has posted nothing: it is under way all
/// the same.
#[test]
fn what_waits_for_its_word_is_under_way() {
    for way in WAYS {
        let mut job = Job::with(3, |config, _| way(config));
        put(ctx(&job.pes[0], 0), 2, 0, 40);
        ctx(&job.pes[0], 0).quiet().unwrap();
        job.pes[2].pause();
        let (first, rest) = job.pes.split_at_mut(2);
        let (a, b) = (&first[0], &mut rest[0]);
        let mut old = [u32::MAX; 2];
        let to = old.as_mut_ptr();
        let add = AtomicOp::Add(1);
        for number in 0..2 {
            // SAFETY: the results live until after quiet, and are looked at through these pointers alone.
            unsafe {
                let to = to.add(number).cast();
                ctx(a, 1 + number as u16)
                    .atomic_fetch_into(2, 0, 0, Width::W4, add, to)
                    .unwrap();
            }
        }
        let second = ctx(a, 2).point(2).expect("it has not begun");
        assert!(!ctx(a, 2).is_past(&second).unwrap());
        b.resume();
        ctx(a, 2).wait_for(&second).unwrap();
        assert!(ctx(a, 2).point(2).is_none());
        // SAFETY: it is complete.
        assert_eq!(unsafe { to.add(1).read_volatile() }, 41);
        ctx(a, 1).quiet().unwrap();
        assert_eq!(old, [40, 41]);
    }
}

/// Old values land when the operation completes, not before.
#[test]
fn old_values_are_stored_by_quiet() {
    for way in WAYS {
        let mut job = Job::with(3, |config, _| way(config));
        put(ctx(&job.pes[0], 1), 2, 0, 40);
        ctx(&job.pes[0], 1).quiet().unwrap();
        job.pes[2].pause();
        let (first, rest) = job.pes.split_at_mut(2);
        let (a, b) = (&first[0], &mut rest[0]);
        let mut wide = [u64::MAX; 3];
        let mut narrow = [u32::MAX; 2];
        let to = wide.as_mut_ptr();
        let narrow_to = narrow.as_mut_ptr();
        let c = ctx(a, 1);
        // SAFETY: the results live until after quiet, and are looked at through these pointers alone.
        unsafe {
            let add = AtomicOp::Add(2);
            c.atomic_fetch_into(2, 0, 0, Width::W8, add, to.cast())
                .unwrap();
            c.atomic_fetch_into(2, 0, 0, Width::W8, AtomicOp::Or(1), to.add(1).cast())
                .unwrap();
            // Behind one of several steps.
            c.atomic_fetch_into(2, 0, 0, Width::W8, AtomicOp::Fetch, to.add(2).cast())
                .unwrap();
            c.atomic_fetch_into(2, 0, 4, Width::W4, add, narrow_to.cast())
                .unwrap();
            c.atomic_fetch_into(2, 0, 4, Width::W4, AtomicOp::Fetch, narrow_to.add(1).cast())
                .unwrap();
            assert_eq!(to.read_volatile(), u64::MAX);
            assert_eq!(narrow_to.read_volatile(), u32::MAX);
        }
        b.resume();
        c.quiet().unwrap();
        assert_eq!(wide, [40, 42, 43]);
        assert_eq!(narrow, [0, 2]);
        assert_eq!(b.word(0), 43 | 2 << 32);
    }
}

/// A failure is told to the context whose operation it was.
#[test]
fn a_failure_belongs_to_a_context() {
    let mut job = Job::with(3, |config, _| {
        config.rc_timeout = 10;
        config.rc_retry = 1;
    });
    for pe in [1, 2] {
        put(ctx(&job.pes[0], 0), pe, 0, 1);
    }
    job.pes[0].endpoint.quiet().unwrap();
    job.pes[2].die();
    let a = &job.pes[0];
    put(ctx(a, 1), 2, 8, 7);
    let narrow = ctx(a, 2).atomic_plain(2, 0, 16, Width::W4, AtomicOp::Add(3));
    put(ctx(a, 3), 1, 8, 7);
    ctx(a, 3).quiet().unwrap();
    let error = ctx(a, 1).quiet().unwrap_err();
    assert!(
        matches!(error, ConnError::Operation { op: "put", .. }),
        "{error}"
    );
    let error = narrow.and_then(|()| ctx(a, 2).quiet()).unwrap_err();
    assert!(error.to_string().contains("PE 2"), "{error}");
    for number in 0..4 {
        ctx(a, number).quiet().unwrap();
    }
    a.endpoint.quiet_all().unwrap();
    assert_eq!(a.endpoint.stats().in_flight, 0);
}

/// Threads with contexts of their own, atomics in one step and in several, connections that make room
/// for each other, packets that get lost: nothing is lost or done twice, and what a context completes
/// is complete.
#[test]
fn contexts_of_threads_under_pressure() {
    let ways: [fn(&mut EndpointConfig); 4] = [
        |_| {},
        |config| config.max_qps = 1,
        |config| (config.max_qps, config.atomics) = (2, Atomics::Owner),
        |config| config.transport = Transport::Xrc { domain: None },
    ];
    for way in ways {
        const THREADS: u64 = 3;
        const EACH: u64 = 60;
        let n = 6;
        let job = Job::with(n, |config, soft| {
            way(config);
            soft.faults = Faults {
                drop: 5_000,
                duplicate: 5_000,
                reorder: 10_000,
                seed: 11,
            };
        });
        let hubs = [0usize, 2, 4];
        std::thread::scope(|scope| {
            for hub in hubs {
                for thread in 0..THREADS {
                    let pe = &job.pes[hub];
                    scope.spawn(move || {
                        let mut rng = Rng::new(hub as u64 * 10 + thread);
                        let mine = ctx(pe, thread as u16);
                        for _ in 0..EACH {
                            let to = hubs[rng.below(3) as usize];
                            if to == hub {
                                continue;
                            }
                            let to = to as u32;
                            let own = 1024 + 8 * (hub as u64 * THREADS + thread);
                            let before = mine.atomic(to, 0, own, Width::W8, AtomicOp::Fetch);
                            let one = AtomicOp::Add(1);
                            mine.atomic_plain(to, 0, 4, Width::W4, one).unwrap();
                            mine.atomic_plain(to, 0, 8, Width::W8, one).unwrap();
                            mine.atomic_plain(to, 0, own, Width::W4, one).unwrap();
                            mine.quiet().unwrap();
                            let after = mine.atomic(to, 0, own, Width::W8, AtomicOp::Fetch);
                            assert_eq!(after.unwrap(), before.unwrap() + 1);
                        }
                    });
                }
            }
        });
        for hub in hubs {
            job.pes[hub].endpoint.quiet_all().unwrap();
        }
        let sum = |offset: u64| {
            hubs.map(|hub| job.pes[hub].word(offset))
                .iter()
                .sum::<u64>()
        };
        let own: u64 = (0..6 * THREADS).map(|i| sum(1024 + 8 * i)).sum();
        assert_eq!((sum(0) >> 32, sum(8)), (own, own));
    }
}

/// Peers are connected although nobody waits for it, more than a window of them.
#[test]
fn connections_are_made_ahead() {
    let n = 24;
    let job = Job::new(n);
    let pe = &job.pes[0];
    pe.endpoint.connect_ahead(0..n + 3);
    pe.endpoint.connect_ahead(0..n);
    let began = Instant::now();
    while pe.endpoint.stats().open < n - 1 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{:?}",
            pe.endpoint.stats()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    let made = pe.endpoint.stats().queue_pairs_created;
    assert_eq!(made, u64::from(n) - 1);
    job.run(|pe| {
        for to in (0..n).filter(|to| *to != pe.number) {
            pe.put_word(to, 8 * u64::from(pe.number), 1);
        }
        pe.endpoint.quiet().unwrap();
    });
    pe.endpoint.connect_ahead(0..n);
    assert_eq!(pe.endpoint.stats().queue_pairs_created, made);

    let few = Job::with(4, |config, _| config.max_qps = 1);
    few.pes[0].endpoint.connect_ahead(0..4);
    assert_eq!(few.pes[0].endpoint.stats().queue_pairs_created, 0);
    few.pes[0].put_word(3, 0, 1);
    few.pes[0].endpoint.quiet().unwrap();
    assert_eq!(few.pes[0].endpoint.stats().queue_pairs_created, 1);
}

fn await_open(endpoint: &Endpoint<SoftHca>, n: u32) {
    let began = Instant::now();
    while endpoint.stats().open < n {
        let stats = endpoint.stats();
        assert!(began.elapsed() < Duration::from_secs(60), "{stats:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The rest is for those who come here, and for what is used.
#[test]
fn half_of_few_queue_pairs_are_made_ahead() {
    let job = Job::with(9, |config, _| config.max_qps = 4);
    let endpoint = &job.pes[0].endpoint;
    endpoint.connect_ahead(1..9);
    await_open(endpoint, 2);
    endpoint.connect_ahead(1..9);
    job.pes[0].put_word(8, 0, 1);
    endpoint.quiet().unwrap();
    let stats = endpoint.stats();
    assert_eq!((stats.queue_pairs_created, stats.open), (3, 3), "{stats:?}");
}

/// In the first collective addresses may still be on their way.
#[test]
fn who_is_connected_ahead_may_have_no_address_yet() {
    let job = Job::new(4);
    let addresses: Vec<_> = (1..4).map(|pe| job.address(pe)).collect();
    (1..4).for_each(|pe| job.set_address(pe, Lookup::Pending));
    let endpoint = &job.pes[0].endpoint;
    std::thread::scope(|scope| {
        scope.spawn(|| endpoint.connect_ahead(1..4));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(endpoint.stats().queue_pairs_created, 0);
        // They come together: the first one is waited for.
        for (pe, address) in (1..4).zip(addresses).rev() {
            job.set_address(pe, Lookup::Ready(address));
        }
    });
    await_open(endpoint, 3);
}

/// Loops on the same words by several threads and peers and by the processor, through queues that take
/// one request at a time: all sums are right, and streams on one word need fewer steps than
/// operations.
#[test]
fn loops_share_words_and_narrow_queues() {
    const EACH: u64 = 400;
    let job = Job::with(3, |config, _| config.sq_depth = 1);
    let target = &job.pes[2];
    // SAFETY: inside of the segment, aligned, and accessed by atomics only.
    let half = unsafe { AtomicU32::from_ptr(target.place(4).cast()) };
    std::thread::scope(|scope| {
        for pe in &job.pes[..2] {
            for thread in 0..2u16 {
                scope.spawn(move || {
                    let c = ctx(pe, thread);
                    for i in 0..EACH {
                        let bit = 1 << (2 * u64::from(pe.number) + u64::from(thread));
                        c.atomic_plain(2, 0, 0, Width::W4, AtomicOp::Add(1))
                            .unwrap();
                        c.atomic_plain(2, 0, 4, Width::W4, AtomicOp::Add(1))
                            .unwrap();
                        c.atomic_plain(2, 0, 8, Width::W8, AtomicOp::Xor(bit))
                            .unwrap();
                        if i % 50 == 0 {
                            c.fence();
                        }
                    }
                    c.quiet().unwrap();
                });
            }
        }
        scope.spawn(|| {
            for _ in 0..EACH {
                half.fetch_add(1, Ordering::SeqCst);
            }
        });
    });
    assert_eq!(target.word(0) & 0xffff_ffff, 4 * EACH);
    assert_eq!(u64::from(half.load(Ordering::SeqCst)), 5 * EACH);
    assert_eq!(target.word(8), 0);

    // The first is under way, and the others go as one behind it.
    let (mut pes, before) = (job.pes.iter(), job.pes[0].endpoint.stats());
    let pe = pes.next().unwrap();
    for _ in 0..1000 {
        ctx(pe, 5)
            .atomic_plain(2, 0, 16, Width::W4, AtomicOp::Add(2))
            .unwrap();
    }
    ctx(pe, 5).quiet().unwrap();
    assert_eq!(target.word(16), 2000);
    let sent = pe.endpoint.stats().hca.packets_sent - before.hca.packets_sent;
    assert!(sent < 800, "{sent} packets");
}
