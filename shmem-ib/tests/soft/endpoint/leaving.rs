//! Closing endpoints: nobody waits for the acknowledgement of somebody who has gone.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shmem_ib::connect::endpoint::ConnError;
use shmem_ib::soft::Faults;
use shmem_ib::verbs::Hca;

use shmem_ib_kit::job::{Job, Pe, Plain};

/// So long that whoever waits for its end counts as hung.
const LONG: Duration = Duration::from_secs(600);

fn close(pe: &Pe) -> Duration {
    let began = Instant::now();
    pe.endpoint.close();
    began.elapsed()
}

#[test]
fn two_peers_part_with_one_datagram_each() {
    let job = Job::with(2, |config, _| config.linger = LONG);
    job.pes[0].put_word(1, 0, 1);
    job.pes[0].endpoint.quiet().unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| close(&job.pes[0]));
        // The slower one is waited for.
        while job.pes[1].endpoint.stats().connect.byes_received == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!first.is_finished());
        assert!(close(&job.pes[1]) < LONG / 2);
        assert!(first.join().unwrap() < LONG / 2);
    });
    for pe in &job.pes {
        let stats = pe.endpoint.stats();
        // The one that waits repeats its BYE, and gets no second answer for that.
        assert_eq!(stats.connect.byes_sent - stats.connect.byes_repeated, 1);
        assert_eq!((stats.connect.byes_missed, stats.queue_pairs), (0, 0));
    }
    assert_eq!(job.pes[1].endpoint.stats().connect.byes_repeated, 0);
}

#[test]
fn without_connections_closing_takes_no_time() {
    let job = Job::with(3, |config, _| config.linger = LONG);
    let before = job.pes[2].endpoint.stats().hca;
    assert!(close(&job.pes[2]) < LONG / 2);
    let after = job.pes[2].endpoint.stats().hca;
    assert_eq!(
        (before.packets_sent, before.send_calls),
        (after.packets_sent, after.send_calls)
    );
}

/// The last message of a barrier: who has got it leaves at once, and its acknowledgement is lost
/// as often as anything else.
#[test]
fn the_last_write_of_a_lossy_job_is_acknowledged() {
    let mut served = 0;
    for seed in 0..12 {
        let job = Job::with(3, |_, soft| {
            soft.faults = Faults {
                drop: 150_000,
                duplicate: 50_000,
                reorder: 50_000,
                seed,
            };
        });
        // Connections exist before.
        job.run(|pe| {
            for to in (0..3).filter(|to| *to != pe.number) {
                pe.endpoint.add_nbi(to, 0, 1).unwrap();
            }
            pe.endpoint.quiet().unwrap();
        });
        job.run(|pe| {
            if pe.number == 0 {
                pe.put_word(1, 64, 1);
                pe.put_word(2, 64, 1);
                pe.endpoint.quiet().unwrap();
            } else {
                while pe.word(64) == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            pe.endpoint.close();
        });
        served += job.pes[1].endpoint.stats().hca.duplicates;
    }
    assert!(served > 0, "no acknowledgement was ever lost");
}

#[test]
fn operations_towards_one_that_has_left_say_so() {
    let job = Job::with(3, |config, _| config.linger = LONG);
    for to in [1, 2] {
        job.pes[0].put_word(to, 0, 1);
    }
    job.pes[0].endpoint.quiet().unwrap();
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| job.pes[1].endpoint.close());
        let error = loop {
            match job.pes[0].endpoint.fetch_add(1, 0, 1) {
                Ok(_) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ConnError::PeerLeft { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("PE 1 (node 0) has left"), "{text}");
        // A PE that had no connection with it is told when it asks for one.
        let error = job.pes[2].endpoint.fetch_add(1, 0, 1).unwrap_err();
        assert!(matches!(error, ConnError::PeerLeft { .. }), "{error:?}");
        // Others are not concerned.
        job.pes[0].put_word(2, 8, 5);
        job.pes[0].endpoint.quiet().unwrap();
        assert_eq!(job.pes[2].word(8), 5);
        assert!(!leaving.is_finished());
        job.pes[0].endpoint.abort();
        job.pes[2].endpoint.abort();
        job.pes[1].endpoint.abort();
        leaving.join().unwrap();
    });
}

#[test]
fn one_that_died_costs_the_linger_time_and_little_work() {
    const LINGER: Duration = Duration::from_millis(400);
    let mut job = Job::with(2, |config, _| config.linger = LINGER);
    job.pes[0].put_word(1, 0, 1);
    job.pes[0].endpoint.quiet().unwrap();
    job.pes[1].die();
    let before = job.pes[0].endpoint.stats().hca;
    let took = close(&job.pes[0]);
    assert!(took >= LINGER, "{took:?}");
    let stats = job.pes[0].endpoint.stats();
    assert_eq!(stats.connect.byes_missed, 1);
    let calls = stats.hca.recv_calls - before.recv_calls;
    // About 40, and more where other threads are in the way; one each millisecond would be 400.
    assert!(calls < 300, "{calls} looks at the socket while waiting");
}

#[test]
fn all_threads_that_close_wait_for_the_end() {
    let job = Job::with(2, |config, _| config.linger = LONG);
    job.pes[0].put_word(1, 0, 1);
    job.pes[0].endpoint.quiet().unwrap();
    let (start, closed) = (Barrier::new(4), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                start.wait();
                job.pes[0].endpoint.close();
                assert_eq!(job.pes[0].endpoint.stats().queue_pairs, 0);
                closed.fetch_add(1, Ordering::Relaxed);
            });
        }
        start.wait();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(closed.load(Ordering::Relaxed), 0);
        job.pes[1].endpoint.close();
    });
    assert_eq!(closed.load(Ordering::Relaxed), 3);
}

#[test]
fn dozens_leave_together() {
    let n = 32;
    let job = Job::with(n, |config, _| config.linger = LONG);
    job.run(|pe| {
        for step in [1, 2, 5] {
            pe.endpoint.add_nbi((pe.number + step) % n, 0, 1).unwrap();
        }
        pe.endpoint.quiet().unwrap();
    });
    let began = Instant::now();
    job.run(|pe| pe.endpoint.close());
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    for pe in &job.pes {
        assert_eq!(pe.word(0), 3);
        assert_eq!(pe.endpoint.stats().connect.byes_missed, 0);
    }
}

/// Who leaves more peers than it tells at a time looks at what they say in between.
#[test]
fn many_peers_are_told_in_turns() {
    const PEERS: u32 = 30;
    let mut job = Job::with(PEERS + 1, |config, _| config.linger = LONG);
    for to in 1..=PEERS {
        job.pes[0].put_word(to, 0, 1);
    }
    job.pes[0].endpoint.quiet().unwrap();
    // What the peers say has been received, and not looked at, when the first of them is told.
    job.pes[0].pause();
    let hca = job.pes[0].hca();
    let heard = hca.counters().ud_received + u64::from(PEERS);
    std::thread::scope(|scope| {
        for pe in &job.pes[1..] {
            scope.spawn(|| pe.endpoint.close());
        }
        while hca.counters().ud_received < heard {
            hca.wait(Duration::from_millis(1));
        }
        job.pes[0].endpoint.close();
    });
    for pe in &job.pes {
        let stats = pe.endpoint.stats();
        assert_eq!((stats.connect.byes_missed, stats.queue_pairs), (0, 0));
    }
}
