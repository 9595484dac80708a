//! Endpoints whose transport is XRC: one queue pair per node, whatever its PEs do.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use shmem_ib::connect::endpoint::{ConnError, EndpointConfig, Transport};
use shmem_ib::soft::xrc::SharedWindow;
use shmem_ib::soft::{Faults, SoftConfig};

use shmem_ib_kit::job::{Job, Pe, Plain, WORDS};

/// PEs of a node, as the job's directory has it.
const PER_NODE: u32 = 2;

/// A file without a name.
fn file() -> Arc<OwnedFd> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let name = format!("shmem-xrc-{}-{serial}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let file = file.expect("a file in the directory for temporary ones");
    std::fs::remove_file(&path).expect("it was made just now");
    Arc::new(file.into())
}

fn xrc_job(n: u32, change: impl Fn(&mut EndpointConfig, &mut SoftConfig)) -> Job {
    let domains: Vec<_> = (0..n.div_ceil(PER_NODE)).map(|_| file()).collect();
    Job::with(n, |config, soft| {
        let domain = domains[(config.pe / PER_NODE) as usize].clone();
        config.transport = Transport::Xrc {
            domain: Some(domain),
        };
        // SAFETY: all PEs of the job are threads of this process.
        soft.shared = Some(unsafe { SharedWindow::everything() });
        change(config, soft);
    })
}

fn others(pe: &Pe, n: u32) -> impl Iterator<Item = u32> + use<> {
    let node = pe.number / PER_NODE;
    (0..n).filter(move |to| to / PER_NODE != node)
}

fn everybody_with_everybody(job: &Job) {
    let n = job.pes.len() as u32;
    const ROUNDS: u64 = 20;
    job.run(|pe| {
        let me = u64::from(pe.number);
        for round in 0..ROUNDS {
            for to in others(pe, n) {
                pe.put_word(to, 1024 + 8 * me, round << 8 | me);
                pe.endpoint.add_nbi(to, 8, 1).unwrap();
                pe.endpoint.fetch_add(to, 16, me).unwrap();
            }
        }
        pe.endpoint.quiet().unwrap();
        for to in others(pe, n) {
            assert_eq!(
                pe.get_word(to, 1024 + 8 * me),
                (ROUNDS - 1) << 8 | me,
                "from PE {to}"
            );
        }
    });
    for pe in &job.pes {
        let from: Vec<u32> = others(pe, n).collect();
        assert_eq!(pe.word(8), ROUNDS * from.len() as u64);
        let sum: u64 = from.iter().map(|pe| u64::from(*pe)).sum();
        assert_eq!(pe.word(16), ROUNDS * sum);
        for from in from {
            let word = pe.word(1024 + 8 * u64::from(from));
            assert_eq!(word, (ROUNDS - 1) << 8 | u64::from(from));
        }
    }
}

#[test]
fn every_node_is_reached_over_one_queue_pair() {
    let job = xrc_job(8, |_, _| {});
    everybody_with_everybody(&job);
    let mut targets = 0;
    for pe in &job.pes {
        let stats = pe.endpoint.stats();
        assert_eq!((stats.xrc_initiators, stats.open), (3, 6));
        assert_eq!(stats.queue_pairs, stats.xrc_initiators + stats.xrc_targets);
        assert_eq!(
            (stats.connect.xrc.direct, stats.connect.xrc.indirect),
            (3, 3)
        );
        assert_eq!(stats.connect.first_contact.count, 6);
        targets += stats.xrc_targets;
    }
    assert_eq!(targets, 8 * 3);
}

#[test]
fn nothing_is_lost_or_doubled_when_packets_are() {
    let job = xrc_job(6, |_, soft| {
        soft.faults = Faults {
            drop: 20_000,
            duplicate: 20_000,
            reorder: 20_000,
            seed: 5,
        };
    });
    everybody_with_everybody(&job);
    assert!(job.pes.iter().all(|pe| pe.endpoint.stats().open > 0));
}

#[test]
fn long_transfers_go_through_the_target_of_another_pe() {
    let job = xrc_job(4, |_, _| {});
    let pe = &job.pes[0];
    pe.put_word(2, 0, 1);
    let data: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    pe.put_bytes(3, 4096, &data);
    pe.endpoint.quiet().unwrap();
    let mut back = vec![0; data.len()];
    pe.get_bytes(3, 4096, &mut back);
    assert!(back == data);
    let stats = pe.endpoint.stats();
    assert_eq!((stats.xrc_initiators, stats.open), (1, 2));
    assert_eq!(job.pes[3].endpoint.stats().xrc_targets, 0);
}

#[test]
fn only_the_segment_of_the_peer_can_be_reached() {
    let job = xrc_job(4, |_, _| {});
    let pe = &job.pes[0];
    pe.put_word(2, 0, 1);
    let end = WORDS as u64 * 8;
    let error = pe.endpoint.fetch_add(3, end, 1).unwrap_err();
    assert!(matches!(error, ConnError::OutOfRange { .. }), "{error}");
    assert_eq!(pe.endpoint.fetch_add(3, end - 8, 1).unwrap(), 0);
}

#[test]
fn an_error_names_the_peer_and_the_one_whose_queue_pair_is_used() {
    let mut job = xrc_job(4, |config, _| {
        config.rc_timeout = 17; // 0.54 s
        config.rc_retry = 1;
    });
    job.pes[0].put_word(2, 0, 1);
    job.pes[0].put_word(3, 0, 1);
    job.pes[0].endpoint.quiet().unwrap();
    job.pes[2].die();
    let pe = &job.pes[0];
    let text = pe.endpoint.fetch_add(3, 64, 1).unwrap_err().to_string();
    assert!(
        text.contains("PE 3 (node 1), reached through the queue pair of PE 2 (node 1), failed"),
        "{text}"
    );
    // The connection is one for the whole node.
    let cause = pe.endpoint.fetch_add(2, 64, 1).unwrap_err().to_string();
    assert_eq!(cause, text);
    // The other direction does not use it.
    assert_eq!(job.pes[3].endpoint.fetch_add(0, 64, 1).unwrap(), 0);
}

#[test]
fn memory_of_a_pe_that_is_gone_is_refused_by_its_node() {
    let mut job = xrc_job(4, |_, _| {});
    job.pes[0].put_word(2, 0, 1);
    job.pes[0].put_word(3, 0, 1);
    job.pes[0].endpoint.quiet().unwrap();
    job.pes[3].die();
    let error = job.pes[0].endpoint.fetch_add(3, 64, 1).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ConnError::Operation { .. }), "{error:?}");
    assert!(text.contains("PE 3 (node 1), reached through"), "{text}");
}

#[test]
fn a_direct_peer_that_leaves_early_gives_its_place_to_another() {
    let job = xrc_job(4, |config, _| config.linger = Duration::from_secs(20));
    let pe = &job.pes[0];
    for to in [2, 3] {
        pe.put_word(to, 0, 1);
    }
    pe.endpoint.quiet().unwrap();
    assert_eq!(job.pes[2].endpoint.stats().xrc_targets, 1);
    job.pes[2].endpoint.close();
    let missed = job.pes[2].endpoint.stats().connect.byes_missed;
    assert_eq!(missed, 0, "it was not released, but lingered");
    assert_eq!(pe.endpoint.fetch_add(3, 8, 5).unwrap(), 0);
    assert_eq!(pe.endpoint.fetch_add(3, 8, 0).unwrap(), 5);
    assert_eq!(job.pes[3].endpoint.stats().xrc_targets, 1);
    let stats = pe.endpoint.stats();
    assert_eq!((stats.connect.xrc.moved, stats.xrc_initiators), (1, 1));
    let error = pe.endpoint.fetch_add(2, 8, 1).unwrap_err();
    assert!(matches!(error, ConnError::PeerLeft { .. }), "{error:?}");
}

/// Operations go on all the time while the connection moves: each is executed once.
#[test]
fn operations_under_way_survive_the_move() {
    let job = xrc_job(4, |config, _| config.linger = Duration::from_secs(20));
    let pe = &job.pes[0];
    pe.put_word(2, 0, 1);
    const ADDS: u64 = 20_000;
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| {
            for _ in 0..ADDS {
                pe.endpoint.add_nbi(3, 8, 1).unwrap();
            }
            pe.endpoint.quiet().unwrap();
        });
        while job.pes[3].word(8) < ADDS / 20 {
            std::thread::yield_now();
        }
        job.pes[2].endpoint.close();
        adding.join().unwrap();
    });
    assert_eq!(job.pes[3].word(8), ADDS);
    assert_eq!(pe.endpoint.stats().connect.xrc.moved, 1);
}

#[test]
fn a_segment_that_comes_later_is_found() {
    let job = xrc_job(4, |_, _| {});
    let pe = &job.pes[0];
    pe.put_word(3, 0, 1);
    pe.endpoint.quiet().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pe.endpoint.fetch_add_in(3, 7, 8, 4));
        std::thread::sleep(Duration::from_millis(100));
        let (base, len) = (job.pes[3].place(1 << 20), 1 << 20);
        // SAFETY: the segment outlives the endpoint, and is accessed by atomics only.
        unsafe { job.pes[3].endpoint.register_segment(7, base, len).unwrap() };
        assert_eq!(waiting.join().unwrap().unwrap(), 0);
    });
    assert_eq!(job.pes[3].word((1 << 20) + 8), 4);
}

/// As in the last barrier of a job: whoever has got its message leaves, whether or not the
/// acknowledgement has arrived, and also if the message came through another PE's queue pair.
#[test]
fn the_last_acknowledgements_of_a_lossy_job_are_not_waited_for_in_vain() {
    for seed in 0..5 {
        let job = xrc_job(6, |config, soft| {
            config.linger = Duration::from_secs(3);
            soft.faults = Faults {
                drop: 50_000,
                seed,
                ..Faults::default()
            };
        });
        let barrier = Barrier::new(job.pes.len());
        job.run(|pe| {
            let me = u64::from(pe.number);
            for to in others(pe, 6) {
                pe.put_word(to, 8 * me, 1);
            }
            pe.endpoint.quiet().unwrap();
            barrier.wait();
            for to in others(pe, 6) {
                pe.put_word(to, 64 + 8 * me, 2);
            }
            let messages = || others(pe, 6).map(|from| pe.word(64 + 8 * u64::from(from)));
            while messages().any(|word| word == 0) {
                std::thread::yield_now();
            }
            pe.endpoint.close();
        });
        for pe in &job.pes {
            let here = others(pe, 6).filter(|from| pe.word(8 * u64::from(*from)) == 1);
            assert_eq!(here.count(), 4);
            assert_eq!(pe.endpoint.stats().queue_pairs, 0);
        }
    }
}

#[test]
fn jobs_of_different_transports_do_not_understand_each_other() {
    let rc = Job::with(4, |config, _| {
        config.connect_deadline = Duration::from_secs(1)
    });
    let xrc = xrc_job(4, |config, _| {
        config.connect_deadline = Duration::from_secs(1)
    });
    let there = rc.address(2);
    xrc.set_address(2, shmem_ib::connect::endpoint::Lookup::Ready(there));
    let error = xrc.pes[0].endpoint.fetch_add(2, 0, 1).unwrap_err();
    assert!(matches!(error, ConnError::Unreachable { .. }), "{error:?}");
    assert!(rc.pes[2].endpoint.stats().connect.wrong_job >= 3);
    assert_eq!(rc.pes[2].endpoint.stats().queue_pairs_created, 0);
}

/// Operations that wait for room in a queue when the direct peer leaves go the other way.
#[test]
fn waiting_for_room_survives_the_move_to_another_direct_peer() {
    const ADDS: u64 = 4_000;
    for _ in 0..3 {
        let job = xrc_job(4, |config, _| {
            config.linger = Duration::from_secs(20);
            config.sq_depth = 1;
        });
        let pe = &job.pes[0];
        pe.put_word(2, 0, 1);
        let result = std::thread::scope(|scope| {
            let adding = scope.spawn(|| {
                for _ in 0..ADDS {
                    pe.endpoint.add_nbi(3, 8, 1).unwrap();
                }
                pe.endpoint.quiet()
            });
            while job.pes[3].word(8) < ADDS / 20 {
                std::thread::yield_now();
            }
            job.pes[2].endpoint.close();
            adding.join().unwrap()
        });
        result.unwrap();
        assert_eq!(job.pes[3].word(8), ADDS);
    }
}

/// A PE that waits for an answer takes in what is for its neighbours, and says so at once.
#[test]
fn news_for_a_neighbour_is_told_while_a_call_waits() {
    let mut job = xrc_job(6, |_, _| {});
    job.pes[0].put_word(2, 0, 1);
    job.pes[4].put_word(0, 0, 1);
    job.pes[4].put_word(1, 0, 1);
    for i in [0, 4] {
        job.pes[i].endpoint.quiet().unwrap();
    }
    assert_eq!(job.pes[0].endpoint.stats().xrc_targets, 1);
    let news = std::sync::Arc::new(AtomicU32::new(0));
    let told = news.clone();
    job.pes[0].endpoint.on_inbound(move || {
        told.fetch_add(1, Ordering::SeqCst);
    });
    job.pes[0].pause();
    job.pes[2].pause();
    let job = &job;
    std::thread::scope(|scope| {
        // PE 2 does not answer yet.
        let waits = scope.spawn(|| job.pes[0].endpoint.fetch_add(2, 8, 1));
        for i in 0..20 {
            let before = news.load(Ordering::SeqCst);
            job.pes[4].put_word(1, 64, 100 + i);
            job.pes[4].endpoint.quiet().unwrap();
            assert_eq!(job.pes[1].word(64), 100 + i);
            let began = std::time::Instant::now();
            while news.load(Ordering::SeqCst) == before {
                assert!(
                    began.elapsed() < Duration::from_secs(60),
                    "write {i} was not told"
                );
                std::thread::yield_now();
            }
        }
        assert!(!waits.is_finished());
        while !waits.is_finished() {
            job.pes[2].endpoint.progress();
        }
        waits.join().unwrap().unwrap();
    });
}
