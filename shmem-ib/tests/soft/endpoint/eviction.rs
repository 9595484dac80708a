//! Fewer queue pairs than peers: connections make room for each other, and no operation is lost
//! or executed twice.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shmem_ib::soft::Faults;

use shmem_ib_kit::job::{Job, Plain};

/// Everybody puts to, gets from and adds at everybody, in an order of its own.
fn all_to_all(job: &Job, rounds: u64, faulty: bool) {
    let n = job.pes.len() as u32;
    let cap = 2;
    job.run(|pe| {
        let me = u64::from(pe.number);
        for round in 0..rounds {
            for step in 1..n {
                let to = (pe.number + step * (1 + round as u32 % 2 * (n - 2))) % n;
                if to == pe.number {
                    continue;
                }
                let at = 4096 + (me * 64 + round) * 8;
                let value = me << 32 | round;
                pe.put_word(to, at, value);
                pe.endpoint.add_nbi(to, 8, 1).unwrap();
                let before = pe.endpoint.fetch_add(to, 0, 1).unwrap();
                assert!(before < rounds * u64::from(n - 1));
                assert_eq!(pe.get_word(to, at), value);
                assert!(pe.endpoint.stats().queue_pairs <= cap);
            }
            let bulk: Vec<u8> = (0..50_000u64).map(|i| (i * 7 + me + round) as u8).collect();
            let to = (pe.number + 1 + round as u32 % (n - 1)) % n;
            let at = 65_536 * (1 + me);
            pe.put_bytes(to, at, &bulk);
            let mut back = vec![0; bulk.len()];
            pe.get_bytes(to, at, &mut back);
            assert!(back == bulk);
        }
        pe.endpoint.quiet().unwrap();
    });
    let expected = rounds * u64::from(n - 1);
    let (mut evictions, mut reconnects) = (0, 0);
    for (me, pe) in (0u64..).zip(&job.pes) {
        assert_eq!((pe.word(0), pe.word(8)), (expected, expected), "PE {me}");
        for from in (0..u64::from(n)).filter(|from| *from != me) {
            for round in 0..rounds {
                assert_eq!(pe.word(4096 + (from * 64 + round) * 8), from << 32 | round);
            }
        }
        let stats = pe.endpoint.stats();
        assert!(stats.queue_pairs <= cap);
        assert_eq!((stats.in_flight, stats.connect.failed), (0, 0));
        assert_eq!(stats.connect.drains_abandoned, 0);
        evictions += stats.connect.evictions + stats.connect.evictions_by_peer;
        reconnects += stats.connect.reconnects;
    }
    assert!(evictions > 0 && reconnects > 0);
    // And everybody leaves in order, whatever was being closed just then.
    job.run(|pe| pe.endpoint.close());
    let missed = job
        .pes
        .iter()
        .map(|pe| pe.endpoint.stats().connect.byes_missed);
    assert!(faulty || missed.sum::<u64>() == 0);
    println!("{evictions} ends of connections made room, {reconnects} opened again");
}

#[test]
fn six_use_each_other_with_two_queue_pairs_each() {
    let job = Job::with(6, |config, _| config.max_qps = 2);
    all_to_all(&job, 20, false);
}

#[test]
fn six_use_each_other_with_two_queue_pairs_each_on_a_bad_network() {
    for (percent, seed) in [(1, 1), (5, 2)] {
        let ppm = percent * 10_000;
        let job = Job::with(6, |config, soft| {
            config.max_qps = 2;
            soft.faults = Faults {
                drop: ppm,
                duplicate: ppm,
                reorder: ppm,
                seed,
            };
        });
        all_to_all(&job, 6, true);
    }
}

#[test]
fn a_ring_with_one_queue_pair_each_does_not_lock_up() {
    let n = 5;
    let job = Job::with(n, |config, _| config.max_qps = 1);
    let start = Barrier::new(n as usize);
    job.run(|pe| {
        for _ in 0..20 {
            start.wait();
            let next = (pe.number + 1) % n;
            pe.endpoint.fetch_add(next, 0, 1).unwrap();
            pe.endpoint.fetch_add((next + 1) % n, 0, 1).unwrap();
        }
    });
    assert!(job.pes.iter().all(|pe| pe.word(0) == 40));
}

#[test]
fn threads_that_never_pause_give_way_to_others() {
    let job = Job::with(4, |config, _| config.max_qps = 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // PE 0 writes to PE 1 without end, from two threads, and yet answers PEs 2 and 3.
        let busy: Vec<_> = (0..2u64)
            .map(|thread| {
                let (pe, stop) = (&job.pes[0], &stop);
                scope.spawn(move || {
                    let mut count = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        pe.endpoint.add_nbi(1, 8 * thread, 1).unwrap();
                        count += 1;
                        if count.is_multiple_of(50) {
                            pe.endpoint.quiet().unwrap();
                        }
                    }
                    pe.endpoint.quiet().unwrap();
                    count
                })
            })
            .collect();
        for _ in 0..10 {
            for from in [2, 3] {
                job.pes[from].endpoint.fetch_add(0, 64, 1).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        for (thread, handle) in (0u64..).zip(busy) {
            let count = handle.join().unwrap();
            assert_eq!(job.pes[1].word(8 * thread), count);
        }
    });
    assert_eq!(job.pes[0].word(64), 20);
}

#[test]
fn the_least_recently_used_connection_goes() {
    let job = Job::with(4, |config, _| {
        if config.pe == 0 {
            config.max_qps = 2;
        }
    });
    let pe = &job.pes[0];
    for to in [1, 2, 1] {
        pe.endpoint.fetch_add(to, 0, 1).unwrap();
    }
    pe.endpoint.fetch_add(3, 0, 1).unwrap();
    assert_eq!(pe.endpoint.connected_peers(), [1, 3]);
    // What PE 3 does with its connection to us counts as well.
    for to in [3, 1] {
        pe.endpoint.fetch_add(to, 0, 1).unwrap();
    }
    job.pes[3].endpoint.fetch_add(0, 8, 1).unwrap();
    pe.endpoint.fetch_add(2, 0, 1).unwrap();
    assert_eq!(pe.endpoint.connected_peers(), [2, 3]);
    let stats = pe.endpoint.stats().connect;
    assert_eq!((stats.evictions, stats.reconnects), (2, 1));
    assert_eq!(stats.drain_time.count, 2);
    assert_eq!((job.pes[1].word(0), job.pes[0].word(8)), (3, 1));
}

#[test]
fn inbound_connections_make_room_too() {
    let job = Job::with(5, |config, _| {
        if config.pe == 0 {
            config.max_qps = 1;
        }
    });
    // Nobody but PE 0 has a limit, and it makes no call of its own.
    for round in 1..=3 {
        for from in 1..5 {
            let old = job.pes[from].endpoint.fetch_add(0, 0, 1).unwrap();
            assert_eq!(old, (round - 1) * 4 + from as u64 - 1);
        }
    }
    let stats = job.pes[0].endpoint.stats();
    assert_eq!((stats.queue_pairs, stats.connect.opened), (1, 0));
    assert_eq!(stats.connect.evictions, 11);
}

#[test]
fn a_stopped_peer_does_not_hold_up_others() {
    let mut job = Job::with(4, |config, _| {
        if config.pe == 0 {
            config.max_qps = 2;
        }
    });
    for to in [1, 2] {
        job.pes[0].endpoint.fetch_add(to, 0, 1).unwrap();
    }
    // PE 1 answers nothing: the drain of its connection, the least recently used, takes as long
    // as that lasts. PE 2 makes room in its stead.
    job.pes[1].pause();
    job.pes[0].endpoint.fetch_add(3, 0, 1).unwrap();
    assert_eq!(job.pes[3].word(0), 1);
    let stats = job.pes[0].endpoint.stats();
    assert_eq!((stats.connect.evictions, stats.queue_pairs), (2, 2));
    std::thread::sleep(Duration::from_millis(300));
    job.pes[1].resume();
    // And now it is used again.
    job.pes[0].endpoint.fetch_add(1, 0, 1).unwrap();
    assert_eq!(job.pes[1].word(0), 2);
}

#[test]
fn a_peer_that_died_during_a_drain_does_not_hold_up_others() {
    let mut job = Job::with(4, |config, _| {
        if config.pe == 0 {
            (config.max_qps, config.linger) = (2, Duration::from_millis(50));
        }
    });
    for to in [1, 2] {
        job.pes[0].endpoint.fetch_add(to, 0, 1).unwrap();
    }
    job.pes[1].die();
    for _ in 0..3 {
        for to in [3, 2] {
            job.pes[0].endpoint.fetch_add(to, 0, 1).unwrap();
        }
    }
    assert_eq!((job.pes[3].word(0), job.pes[2].word(0)), (3, 4));
}

#[test]
fn static_connections_end_with_as_many_as_allowed() {
    let n = 6;
    let job = Job::with(n, |config, _| config.max_qps = 2);
    job.run(|pe| pe.endpoint.connect_all(0..n).unwrap());
    job.run(|pe| {
        assert!(pe.endpoint.stats().queue_pairs <= 2);
        for to in (0..n).filter(|to| *to != pe.number) {
            pe.endpoint.fetch_add(to, 0, 1).unwrap();
        }
    });
    assert!(job.pes.iter().all(|pe| pe.word(0) == u64::from(n) - 1));
}
