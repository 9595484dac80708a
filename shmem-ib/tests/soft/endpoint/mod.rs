//! Endpoints over software HCAs on the loopback, with threads as PEs: connections on demand,
//! one-sided operations, completion, faults and errors.

mod branches;
mod contexts;
mod errors;
mod eviction;
mod leaving;
mod lives;
mod operations;
mod owner;
mod segments;
mod silent;
mod threads;
mod through;
mod times;
mod xrc;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use shmem_ib::soft::Faults;
use shmem_ib_kit::job::{Job, Plain, WORDS};

#[test]
fn connections_come_to_exist_only_where_they_are_used() {
    let job = Job::new(5);
    assert!(
        job.pes
            .iter()
            .all(|pe| pe.endpoint.stats().queue_pairs_created == 0)
    );
    job.run(|pe| {
        let next = (pe.number + 1) % 4;
        if pe.number < 4 {
            pe.put_word(next, 8, u64::from(pe.number) + 1);
            pe.endpoint.quiet().unwrap();
        }
    });
    for (i, pe) in job.pes.iter().enumerate() {
        let mut expected = match i {
            4 => vec![],
            i => vec![(i as u32 + 1) % 4, (i as u32 + 3) % 4],
        };
        expected.sort_unstable();
        assert_eq!(pe.endpoint.connected_peers(), expected);
        let stats = pe.endpoint.stats();
        assert_eq!(stats.queue_pairs as usize, expected.len());
        assert_eq!(stats.connect.first_contact.count, u64::from(i < 4));
        if i < 4 {
            assert_eq!(pe.word(8), (i as u64 + 3) % 4 + 1);
        }
    }
}

#[test]
fn a_target_that_computes_is_connected_and_written() {
    let job = Job::new(2);
    // PE 1 makes no call at all: its progress thread answers.
    let pe = &job.pes[0];
    pe.put_word(1, 0, 7);
    pe.endpoint.quiet().unwrap();
    assert_eq!(job.pes[1].word(0), 7);
    let stats = job.pes[1].endpoint.stats();
    assert_eq!(
        (
            stats.connect.started,
            stats.connect.accepted,
            stats.answered
        ),
        (0, 1, 1)
    );
    // And now the other direction, over the same pair of queue pairs.
    job.pes[1].put_word(0, 0, 8);
    job.pes[1].endpoint.quiet().unwrap();
    assert_eq!(job.pes[0].word(0), 8);
    for pe in &job.pes {
        assert_eq!(
            (
                pe.endpoint.stats().queue_pairs_created,
                pe.endpoint.stats().open
            ),
            (1, 1)
        );
    }
}

/// The requester knows what job this is, the target learns it when the request is there already.
#[test]
fn a_request_waits_for_a_target_that_does_not_know_its_job_yet() {
    let job = Job::with(2, |config, _| {
        // Only the first request is in time: nothing is gained by repeating it.
        config.connect_retry = Duration::from_secs(10);
        if config.pe == 1 {
            (config.job_id, config.job_key) = ([0; 16], &[0; 32]);
            config.identity_later = true;
        }
    });
    let [asks, target] = [&job.pes[0], &job.pes[1]];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            asks.put_word(1, 8, 5);
            asks.endpoint.quiet().unwrap();
        });
        while asks.endpoint.stats().connect.started == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(target.endpoint.stats().connect.accepted, 0);
        target.endpoint.set_identity([1; 16], &[2; 32]);
    });
    assert_eq!(target.word(8), 5);
    // Saying it again, or otherwise, changes nothing.
    target.endpoint.set_identity([9; 16], &[9; 32]);
    asks.put_word(1, 16, 6);
    asks.endpoint.quiet().unwrap();
    assert_eq!(target.word(16), 6);
}

#[test]
fn both_sides_at_once_share_one_pair_of_queue_pairs() {
    let mut simultaneous = 0;
    for _ in 0..30 {
        let job = Job::new(2);
        let start = Barrier::new(2);
        job.run(|pe| {
            start.wait();
            pe.put_word(1 - pe.number, 16, 5);
            pe.endpoint.quiet().unwrap();
        });
        for pe in &job.pes {
            let stats = pe.endpoint.stats();
            assert_eq!((stats.queue_pairs_created, stats.open), (1, 1));
            assert_eq!(pe.word(16), 5);
            simultaneous += stats.connect.simultaneous;
        }
    }
    println!("{simultaneous} simultaneous opens seen by a side, of 60 possible");
}

#[test]
fn static_mode_connects_everybody_with_everybody() {
    let n = 7;
    let job = Job::new(n);
    job.run(|pe| pe.endpoint.connect_all(0..n).unwrap());
    for pe in &job.pes {
        let stats = pe.endpoint.stats();
        assert_eq!(
            (stats.open, stats.queue_pairs_created),
            (n - 1, u64::from(n) - 1)
        );
    }
    job.run(|pe| {
        for to in (0..n).filter(|to| *to != pe.number) {
            pe.put_word(to, u64::from(pe.number) * 8, u64::from(pe.number) + 100);
        }
        pe.endpoint.quiet().unwrap();
    });
    for (me, pe) in (0..n).zip(&job.pes) {
        for from in (0..n).filter(|from| *from != me) {
            assert_eq!(pe.word(u64::from(from) * 8), u64::from(from) + 100);
        }
        assert_eq!(pe.endpoint.stats().queue_pairs_created, u64::from(n) - 1);
    }
}

#[test]
fn many_contact_one_at_the_same_moment() {
    let n = 24;
    let job = Job::new(n);
    let start = Barrier::new(n as usize);
    job.run(|pe| {
        start.wait();
        if pe.number > 0 {
            pe.endpoint.fetch_add(0, 0, 1).unwrap();
        }
    });
    assert_eq!(job.pes[0].word(0), u64::from(n) - 1);
    assert_eq!(job.pes[0].endpoint.stats().answered, n - 1);
}

#[test]
fn a_slow_starter_keeps_its_peers_waiting_but_not_failing() {
    // Long enough that a machine busy with other things is not taken for a silent peer.
    const DEADLINE: Duration = Duration::from_secs(4);
    let job = Job::with(2, |config, _| config.connect_deadline = DEADLINE);
    let late = job.unregistered(2, DEADLINE);
    std::thread::scope(|scope| {
        let began = Instant::now();
        let waiting = scope.spawn(|| {
            job.pes[0].put_word(1, 0, 1); // another connection is not held up
            late.pes[0].put_word(1, 0, 9);
            late.pes[0].endpoint.quiet().unwrap();
        });
        std::thread::sleep(2 * DEADLINE);
        late.pes[1].register();
        waiting.join().unwrap();
        assert!(began.elapsed() >= 2 * DEADLINE);
    });
    assert_eq!(late.pes[1].word(0), 9);
    assert!(late.pes[1].endpoint.stats().connect.waits_sent > 0);
}

#[test]
fn everything_arrives_once_on_a_bad_network() {
    for (percent, seed) in [(1, 1), (4, 2), (10, 3)] {
        let ppm = percent * 10_000;
        let faults = Faults {
            drop: ppm,
            duplicate: ppm,
            reorder: ppm,
            seed,
        };
        let job = Job::with(3, |_, soft| soft.faults = faults);
        job.run(|pe| {
            let me = u64::from(pe.number);
            for i in 0..60 {
                for to in (0..3).filter(|to| *to != pe.number) {
                    pe.put_word(to, 1024 + (me * 64 + i) * 8, me << 32 | i);
                    pe.endpoint.fetch_add(to, 0, 1).unwrap();
                }
            }
            let bulk: Vec<u8> = (0..200_000u32).map(|i| (i * 7 + pe.number) as u8).collect();
            let to = (pe.number + 1) % 3;
            pe.put_bytes(to, 65_536, &bulk);
            pe.endpoint.quiet().unwrap();
            let mut back = vec![0; bulk.len()];
            pe.get_bytes(to, 65_536, &mut back);
            assert!(back == bulk, "at {percent} % faults");
        });
        for (me, pe) in (0..3u64).zip(&job.pes) {
            assert_eq!(pe.word(0), 120, "atomics are executed exactly once");
            for from in (0..3).filter(|from| *from != me) {
                for i in 0..60 {
                    assert_eq!(pe.word(1024 + (from * 64 + i) * 8), from << 32 | i);
                }
            }
        }
        let resent: u64 = job
            .pes
            .iter()
            .map(|pe| pe.endpoint.stats().hca.retransmitted)
            .sum();
        assert!(
            resent > 0,
            "at {percent} % faults nothing had to be repeated"
        );
    }
}

#[test]
fn threads_of_one_pe_use_the_endpoint_together() {
    let job = Job::new(4);
    let pe = &job.pes[0];
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            scope.spawn(move || {
                for i in 0..100u64 {
                    let to = 1 + ((thread + i) % 3) as u32;
                    let at = (100 + thread * 100 + i) * 8;
                    pe.put_word(to, at, thread * 1000 + i);
                    pe.endpoint.add_nbi(to, 0, 1).unwrap();
                    if i % 10 == 0 {
                        pe.endpoint.quiet().unwrap();
                        assert_eq!(pe.get_word(to, at), thread * 1000 + i);
                    }
                }
                pe.endpoint.quiet().unwrap();
            });
        }
    });
    let sum: u64 = job.pes[1..].iter().map(|pe| pe.word(0)).sum();
    assert_eq!(sum, 600);
    assert_eq!(pe.endpoint.stats().in_flight, 0);
    const { assert!(WORDS > 1000) };
}
