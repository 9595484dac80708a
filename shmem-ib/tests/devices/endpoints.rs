//! Endpoints over RDMA devices, with threads as PEs: connections on demand, one-sided operations,
//! sleeping and waking.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use shmem_ib::connect::endpoint::Source;
use shmem_ib::device::VerbsConfig;
use shmem_ib::device::ibv::VerbsHca;
use shmem_ib::verbs::{
    Access, Completion, Cq, Hca, Psn, Qkey, QpAttr, QpInit, QpType, RecvWr, SendOp, SendWr, Sge,
    VerbsError, Wake,
};
use shmem_ib_kit::job::{Job, Pe, Plain};
use shmem_testkit::needs::skipped;

use crate::{Tally, device, wanted};

/// Checks and their names.
const CHECKS: [(&str, fn()); 8] = [
    (
        "operations_over_connections_on_demand",
        operations_over_connections_on_demand,
    ),
    (
        "a_target_that_computes_is_connected_and_written",
        a_target_that_computes_is_connected_and_written,
    ),
    (
        "a_stream_arrives_while_its_origin_computes",
        a_stream_arrives_while_its_origin_computes,
    ),
    (
        "connections_make_room_for_others",
        connections_make_room_for_others,
    ),
    ("threads_share_an_endpoint", threads_share_an_endpoint),
    (
        "threads_share_the_datagrams_of_a_queue",
        threads_share_the_datagrams_of_a_queue,
    ),
    (
        "objects_come_and_go_under_load",
        objects_come_and_go_under_load,
    ),
    ("sleeps_end_for_each_reason", sleeps_end_for_each_reason),
];

/// Runs the checks that the arguments ask for. Returns whether they passed.
pub(crate) fn run(arguments: &[String]) -> bool {
    if let Err(why) = device::pair() {
        skipped("rdma", why);
        return true;
    }
    let mut tally = Tally::default();
    for (name, check) in CHECKS {
        if wanted(name, arguments) {
            tally.check(name, check, Vec::new);
        }
    }
    tally.end()
}

/// The ports to use.
fn ports() -> [VerbsConfig; 2] {
    device::pair().expect("there was a device before").0
}

/// A job whose even and odd PEs are on one port each.
fn job(n: u32, max_qps: u32) -> Job<VerbsHca> {
    let ports = ports();
    let job = Job::on(n, |number, config| {
        config.max_qps = max_qps;
        // The guest of an emulator is slow.
        config.connect_deadline = Duration::from_secs(60);
        VerbsHca::open(&ports[number as usize % 2]).unwrap_or_else(|e| panic!("{e}"))
    });
    job.pes.iter().for_each(Pe::register);
    job
}

fn operations_over_connections_on_demand() {
    let job = job(2, 0);
    assert!(
        job.pes
            .iter()
            .all(|pe| pe.endpoint.stats().queue_pairs_created == 0)
    );
    job.run(|pe| {
        let (me, peer) = (u64::from(pe.number), 1 - pe.number);
        let fill = |i: usize| (i as u64 * 31 + me) as u8;
        for len in [1, 8, 200, 5000, 65_536, 262_144, 300_000, 2_000_000] {
            let data: Vec<u8> = (0..len).map(fill).collect();
            pe.put_bytes(peer, 4096, &data);
            pe.endpoint.quiet().unwrap();
            let mut back = vec![0; len];
            pe.get_bytes(peer, 4096, &mut back);
            assert!(back == data, "{len} bytes");
        }
        for _ in 0..100 {
            pe.endpoint.fetch_add(peer, 0, 1).unwrap();
        }
        pe.put_word(peer, 8, me + 7);
        pe.endpoint.quiet().unwrap();
        assert_eq!(pe.get_word(peer, 8), me + 7);
    });
    for pe in &job.pes {
        assert_eq!(pe.word(0), 100);
        assert_eq!(pe.word(8), 8 - u64::from(pe.number));
        let stats = pe.endpoint.stats();
        assert_eq!((stats.queue_pairs_created, stats.open), (1, 1));
    }
}

/// The progress thread of a PE that makes no call sleeps on the device, and wakes for a peer.
fn a_target_that_computes_is_connected_and_written() {
    let job = job(2, 0);
    // Everybody is asleep by now.
    std::thread::sleep(Duration::from_millis(300));
    job.pes[0].put_word(1, 0, 7);
    job.pes[0].endpoint.quiet().unwrap();
    assert_eq!(job.pes[1].word(0), 7);
    let stats = job.pes[1].endpoint.stats();
    assert_eq!((stats.connect.started, stats.answered), (0, 1));
}

/// Puts that are held while others are under way arrive though the program makes no call, and few requests tell.
fn a_stream_arrives_while_its_origin_computes() {
    let job = job(2, 0);
    let (a, b) = (&job.pes[0], &job.pes[1]);
    a.put_word(1, 0, 1);
    a.endpoint.quiet().unwrap();
    let before = a.endpoint.stats();
    const ROUNDS: u64 = 20;
    for round in 1..=ROUNDS {
        for i in 0..50 {
            let from = a.place(8 * (1000 + i));
            // SAFETY: nobody else uses it before quiet.
            unsafe {
                from.cast::<u64>().write_volatile(round);
                a.endpoint
                    .put(1, 8 * i, from, 8, Source::UntilQuiet)
                    .unwrap();
            }
        }
        let began = Instant::now();
        while b.word(8 * 49) != round {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "round {round}: it was not sent"
            );
            std::thread::yield_now();
        }
        a.endpoint.quiet().unwrap();
        assert!((0..50).all(|i| b.word(8 * i) == round), "round {round}");
    }
    let after = a.endpoint.stats();
    assert!(after.silent - before.silent > (after.requests - before.requests) / 2);
    assert_eq!(after.in_flight, 0);
}

/// With fewer queue pairs than peers, connections are closed and made again.
fn connections_make_room_for_others() {
    const N: u32 = 6;
    let job = job(N, 2);
    let start = std::sync::Barrier::new(N as usize);
    job.run(|pe| {
        start.wait();
        for round in 0..2 {
            for step in 1..N {
                let to = (pe.number + step) % N;
                pe.endpoint.fetch_add(to, 8 * round, 1).unwrap();
            }
        }
        pe.endpoint.quiet().unwrap();
    });
    for pe in &job.pes {
        assert_eq!(
            (pe.word(0), pe.word(8)),
            (u64::from(N - 1), u64::from(N - 1))
        );
        assert!(pe.endpoint.stats().queue_pairs_created > 2);
    }
}

/// Many threads of one PE at once: each sleeps, and is woken by whoever finds its completion.
fn threads_share_an_endpoint() {
    const EACH: u64 = 50;
    let job = job(2, 0);
    job.run(|pe| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        pe.endpoint.fetch_add(1 - pe.number, 0, 1).unwrap();
                    }
                });
            }
        });
    });
    assert!(job.pes.iter().all(|pe| pe.word(0) == 4 * EACH));
}

fn ud(hca: &VerbsHca, cq: Cq) -> shmem_ib::verbs::Qpn {
    let init = QpInit {
        max_recv_wr: 32,
        max_inline: 16,
        ..QpInit::new(QpType::Ud, cq)
    };
    let qp = hca.create_qp(&init).unwrap();
    for attr in QpAttr::of_ud(Qkey(5), Psn(0)) {
        hca.modify_qp(qp, &attr).unwrap();
    }
    qp
}

/// Threads that poll one queue share its datagrams, and each of these has its sender.
fn threads_share_the_datagrams_of_a_queue() {
    const ALL: u32 = 3000;
    const ROOM: u32 = 32;
    let [port, _] = ports();
    let hca = VerbsHca::open(&port).unwrap();
    let cq = hca.create_cq(64).unwrap();
    let qp = ud(&hca, cq);
    let mut buffer = Box::new([0_u64; 64 * ROOM as usize]);
    let at = buffer.as_mut_ptr().cast::<u8>();
    // SAFETY: the buffer lives longer than the HCA, and nobody else uses it.
    let mr = unsafe { hca.reg_mr(at, 512 * ROOM as usize, Access::LOCAL_WRITE) }.unwrap();
    let receive = |slot: u64| {
        let sges = [Sge {
            addr: mr.addr + 512 * slot,
            len: 512,
            lkey: mr.lkey,
        }];
        let wr = RecvWr {
            wr_id: slot,
            sges: &sges,
        };
        // SAFETY: as above.
        unsafe { hca.post_recv(qp, &wr) }.unwrap();
    };
    (0..u64::from(ROOM)).for_each(receive);
    let (av, received, strangers) = (hca.port().av, AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut some = [Completion::EMPTY; 5];
                while received.load(Ordering::Relaxed) < ALL {
                    let n = hca.poll_cq(cq, &mut some);
                    for completion in &some[..n] {
                        let known = completion.src == Some((av, qp));
                        strangers.fetch_add(u32::from(!known), Ordering::Relaxed);
                        receive(completion.wr_id);
                        received.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for sent in 0..ALL {
            while sent - received.load(Ordering::Relaxed).min(sent) >= ROOM {
                std::thread::yield_now();
            }
            let op = SendOp::UdSend {
                av,
                qpn: qp,
                qkey: Qkey(5),
                imm: None,
            };
            let wr = SendWr {
                inline: Some(b"good morning"),
                signaled: false,
                ..SendWr::new(100, op, &[])
            };
            // SAFETY: inline payload is copied.
            while unsafe { hca.post_send(qp, &wr) }.is_err() {
                std::thread::yield_now();
            }
        }
    });
    drop(hca);
    drop(buffer);
    assert_eq!(strangers.into_inner(), 0);
}

/// Objects come and go while other threads use theirs, poll, and sleep; what is gone is refused, and
/// nothing waits for ever.
fn objects_come_and_go_under_load() {
    const ROUNDS: usize = 40;
    let [port, _] = ports();
    let hca = VerbsHca::open(&port).unwrap();
    let done = AtomicBool::new(false);
    let shared = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let users: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut used = 0;
                    while !done.load(Ordering::Relaxed) {
                        // Its owner may destroy it at any moment.
                        let cq = Cq(shared.load(Ordering::Relaxed));
                        hca.poll_cq(cq, &mut [Completion::EMPTY; 2]);
                        match hca.create_qp(&QpInit::new(QpType::Rc, cq)) {
                            Ok(qp) => {
                                used += 1;
                                hca.destroy_qp(qp).unwrap();
                                let gone = hca.modify_qp(qp, &QpAttr::Err);
                                assert!(matches!(gone, Err(VerbsError::NoSuchQp(_))));
                            }
                            Err(e) => assert!(matches!(e, VerbsError::NoSuchCq(_)), "{e}"),
                        }
                    }
                    used
                })
            })
            .collect();
        let sleeper = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                hca.wait(Duration::from_millis(1));
            }
        });
        for round in 0..ROUNDS {
            let cq = hca.create_cq(16).unwrap();
            shared.store(cq.0, Ordering::Relaxed);
            let other = hca.create_cq(16).unwrap();
            let qp = ud(&hca, other);
            hca.modify_qp(qp, &QpAttr::Err).unwrap();
            std::thread::sleep(Duration::from_millis(round as u64 % 4));
            hca.destroy_qp(qp).unwrap();
            hca.destroy_cq(other).unwrap();
            // Busy as long as a queue pair reports to it, which may be always.
            let mut refusals = 0;
            while let Err(e) = hca.destroy_cq(cq) {
                assert!(matches!(e, VerbsError::Busy { .. }), "{e}");
                refusals += 1;
                if refusals == 5 {
                    shared.store(u32::MAX, Ordering::Relaxed);
                }
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
        sleeper.join().unwrap();
        let used: u32 = users.into_iter().map(|u| u.join().unwrap()).sum();
        println!("{used} queue pairs came and went");
    });
}

/// A sleep ends with a wake-up, with its time, and with a completion; a completion that nobody has
/// polled lets nobody sleep.
fn sleeps_end_for_each_reason() {
    const LONG: Duration = Duration::from_secs(60);
    let [port, _] = ports();
    let hca = VerbsHca::open(&port).unwrap();
    let cq = hca.create_cq(16).unwrap();
    let qp = ud(&hca, cq);
    let (start, short) = (Instant::now(), Duration::from_millis(20));
    assert_eq!(hca.wait(short), Wake::Timeout);
    assert!(start.elapsed() >= short);
    // A wake-up before the sleep counts.
    let seen = hca.wakes();
    hca.wake();
    assert_eq!(hca.wait_since(seen, LONG), Wake::Woken);
    assert_eq!(hca.wait(short), Wake::Timeout, "it was answered");
    // So does an alarm, set before the sleep or by another thread during it.
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| hca.wait(LONG));
        std::thread::sleep(short);
        hca.set_alarm(Some(short));
        assert_eq!(sleeper.join().unwrap(), Wake::Work);
    });
    assert_eq!(hca.wait(LONG), Wake::Work, "it stays");
    hca.set_alarm(None);
    assert_eq!(hca.wait(short), Wake::Timeout);

    let mut buffer = Box::new([0_u64; 64]);
    let at = buffer.as_mut_ptr().cast::<u8>();
    // SAFETY: the buffer lives longer than the HCA uses it, and is read after that.
    let mr = unsafe { hca.reg_mr(at, 512, Access::LOCAL_WRITE) }.unwrap();
    let sges = [Sge {
        addr: mr.addr,
        len: 512,
        lkey: mr.lkey,
    }];
    let send = || {
        let op = SendOp::UdSend {
            av: hca.port().av,
            qpn: qp,
            qkey: Qkey(5),
            imm: Some(9),
        };
        let wr = SendWr {
            inline: Some(b"good morning"),
            signaled: false,
            ..SendWr::new(2, op, &[])
        };
        // SAFETY: the buffer stays; inline payload is copied.
        unsafe {
            let receive = RecvWr {
                wr_id: 1,
                sges: &sges,
            };
            hca.post_recv(qp, &receive).unwrap();
            hca.post_send(qp, &wr).unwrap();
        }
    };
    let mut out = [Completion::EMPTY; 4];
    for _ in 0..20 {
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| hca.wait(LONG));
            std::thread::sleep(Duration::from_millis(10));
            send();
            assert_eq!(sleeper.join().unwrap(), Wake::Work);
        });
        assert_eq!(hca.wait(LONG), Wake::Work, "it was not polled");
        let mut n = 0;
        while n == 0 {
            n = hca.poll_cq(cq, &mut out);
        }
        assert_eq!((n, out[0].wr_id, out[0].imm), (1, 1, Some(9)));
        assert_eq!(out[0].src, Some((hca.port().av, qp)));
        assert_eq!(hca.poll_cq(cq, &mut out), 0);
    }
    // A thread that takes what was announced to others leaves them asleep, not deaf.
    let (returns, done) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                hca.wait(LONG);
                returns.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        let mut deaf = 0;
        for round in 0..200 {
            std::thread::sleep(Duration::from_millis(1));
            send();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(round * 10 % 700) {
                std::hint::spin_loop();
            }
            hca.wait(Duration::from_millis(5));
            while hca.poll_cq(cq, &mut out) == 0 {}
            // The other one is asleep, or is going to be.
            std::thread::sleep(Duration::from_millis(1));
            let before = returns.load(Ordering::Relaxed);
            send();
            let sent = Instant::now();
            while returns.load(Ordering::Relaxed) == before && deaf == 0 {
                deaf += u32::from(sent.elapsed() > LONG);
                std::thread::sleep(Duration::from_micros(100));
            }
            while hca.poll_cq(cq, &mut out) == 0 {}
        }
        done.store(true, Ordering::Relaxed);
        hca.wake();
        assert_eq!(deaf, 0, "nobody heard of a completion");
    });
    // Whoever sleeps is woken, all of them.
    let seen = hca.wakes();
    std::thread::scope(|scope| {
        let sleepers = [(); 3].map(|()| scope.spawn(|| hca.wait_since(seen, LONG)));
        std::thread::sleep(Duration::from_millis(50));
        hca.wake();
        for sleeper in sleepers {
            assert_eq!(sleeper.join().unwrap(), Wake::Woken);
        }
    });
    // Dropped with everything still there: queue pair, queues, registration.
    drop(hca);
    assert_eq!(&buffer[5].to_ne_bytes(), b"good mor");
}
