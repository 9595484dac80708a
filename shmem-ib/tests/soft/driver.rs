//! The software HCA's driver: sleeping, waking, and progress without anybody who polls.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shmem_ib::soft::{Faults, SoftConfig, SoftHca};
use shmem_ib::verbs::{
    Access, Completion, Cq, Hca, Mtu, Psn, QpInit, QpType, Qpn, RcDest, RcStart, SendOp, SendWr,
    Wake, WcStatus,
};
use shmem_ib_kit::conformance::Region;
use shmem_testkit::{PATIENCE, wait_until};

/// Longer than any test: a sleep that ends by its time alone fails its test as one that hangs.
const LONG: Duration = Duration::from_secs(100_000);

struct Port {
    hca: Arc<SoftHca>,
    cq: Cq,
    qp: Qpn,
    mem: Region,
}

fn open(seed: u64, faults: Faults) -> Port {
    let config = SoftConfig {
        faults,
        ..SoftConfig::loopback(seed)
    };
    let hca = Arc::new(SoftHca::open(&config).unwrap());
    let cq = hca.create_cq(1024).unwrap();
    let init = QpInit {
        max_send_wr: 128,
        max_inline: 64,
        ..QpInit::new(QpType::Rc, cq)
    };
    let qp = hca.create_qp(&init).unwrap();
    let mem = Region::new(&*hca, 1 << 20, Access::ALL);
    Port { hca, cq, qp, mem }
}

impl Port {
    fn connect(&self, peer: &Self) {
        let dest = RcDest::new(peer.hca.port().av, peer.qp, Psn(7), Mtu::M4096);
        let start = RcStart {
            timeout: 20,
            ..RcStart::new(dest, Psn(7))
        };
        for attr in start.attrs() {
            self.hca.modify_qp(self.qp, &attr).unwrap();
        }
    }

    fn post(&self, wr_id: u64, op: SendOp, len: usize) {
        let sges = [self.mem.sge(0, len)];
        let wr = SendWr::new(wr_id, op, &sges);
        // SAFETY: regions are never freed.
        unsafe { self.hca.post_send(self.qp, &wr) }.unwrap();
    }

    fn reap(&self) -> Completion {
        let mut out = [Completion::EMPTY];
        soon("a completion comes", || {
            self.hca.poll_cq(self.cq, &mut out) > 0
        });
        out[0]
    }

    /// A thread that waits for work until the returned guard is dropped. It is asleep when this returns.
    fn progress(&self) -> Progress {
        let stop = Arc::new(AtomicBool::new(false));
        let (hca, flag) = (Arc::clone(&self.hca), Arc::clone(&stop));
        let thread = asleep(move || {
            while !flag.load(Ordering::Relaxed) {
                hca.wait(LONG);
            }
        });
        Progress {
            hca: Arc::clone(&self.hca),
            stop,
            thread: Some(thread),
        }
    }
}

struct Progress {
    hca: Arc<SoftHca>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.hca.wake();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Looks again and again until a condition holds.
#[track_caller]
fn soon(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// Starts a thread whose first wait is in `body`, and returns when it is asleep there.
#[track_caller]
fn asleep<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (say, hear) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let own = std::fs::read_link("/proc/thread-self").expect("/proc");
        say.send(own).expect("the test waits for it");
        body()
    });
    let own = hear.recv().expect("the thread has started");
    let stat = Path::new("/proc").join(own).join("stat");
    let state = || {
        let stat = std::fs::read_to_string(&stat).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
        // A thread that is gone did not sleep, which its result tells.
        state.unwrap_or(b'S')
    };
    wait_until(
        "the thread sleeps",
        || state() == b'S' || thread.is_finished(),
        || char::from(state()).to_string(),
    );
    thread
}

/// The result of a thread that something should have woken.
#[track_caller]
fn woken<T>(thread: JoinHandle<T>) -> T {
    soon("the sleeper wakes", || thread.is_finished());
    thread.join().expect("no panic")
}

/// Posts a write of 42 to a peer that is not ready, waits until the peer has dropped it, makes the peer ready,
/// and waits until the write has been repeated.
#[track_caller]
fn is_repeated(a: &Port, b: &Port) {
    a.mem.set_word(0, 42);
    a.post(1, write(b), 8);
    soon("the peer drops the packet", || {
        b.hca.counters().packets_received > 0
    });
    assert_eq!(b.mem.word(0), 0);
    b.connect(a);
    wait_until(
        "the write is repeated",
        || b.mem.word(0) == 42,
        || format!("{:?}", a.hca.counters()),
    );
    assert!(a.hca.counters().retransmitted > 0);
}

fn write(to: &Port) -> SendOp {
    SendOp::write(to.mem.at(0), to.mem.mr.rkey)
}

#[test]
fn wait_times_out_and_wakes() {
    let a = open(1, Faults::default());
    let start = Instant::now();
    assert_eq!(a.hca.wait(Duration::from_millis(30)), Wake::Timeout);
    assert!(start.elapsed() >= Duration::from_millis(30));
    // A wake before the wait counts; several count once.
    a.hca.wake();
    a.hca.wake();
    assert_eq!(a.hca.wait(PATIENCE), Wake::Woken);
    assert_eq!(a.hca.wait(Duration::from_millis(1)), Wake::Timeout);
    let hca = Arc::clone(&a.hca);
    let sleeper = asleep(move || hca.wait(LONG));
    a.hca.wake();
    assert_eq!(woken(sleeper), Wake::Woken);
}

/// A thread counts the wake-ups before it looks at what it waits for; another thread returns for
/// the one that comes then before the first has fallen asleep.
#[test]
fn a_wake_up_that_another_thread_took_still_counts() {
    let a = open(1, Faults::default());
    let wakes = a.hca.wakes();
    a.hca.wake();
    assert_eq!(a.hca.wait(PATIENCE), Wake::Woken);
    assert_eq!(a.hca.wait_since(wakes, PATIENCE), Wake::Woken);
    let now = a.hca.wakes();
    assert_eq!(
        a.hca.wait_since(now, Duration::from_millis(1)),
        Wake::Timeout
    );
}

/// A wake-up ends all sleeps, also of a thread that is slow to get the processor.
#[test]
fn a_wake_up_reaches_all_who_sleep() {
    let a = open(1, Faults::default());
    for _ in 0..20 {
        let wakes = a.hca.wakes();
        let sleepers = [(); 3].map(|()| {
            let hca = Arc::clone(&a.hca);
            std::thread::spawn(move || {
                assert_eq!(hca.wait_since(wakes, PATIENCE), Wake::Woken);
            })
        });
        std::thread::yield_now();
        a.hca.wake();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    }
}

#[test]
fn a_sleeping_target_serves_its_peer() {
    let (a, b) = (open(1, Faults::default()), open(2, Faults::default()));
    a.connect(&b);
    b.connect(&a);
    let _progress = b.progress();
    for i in 1..=50 {
        a.mem.set_word(0, i);
        a.post(i, write(&b), 8);
        assert_eq!(a.reap().status, WcStatus::Success);
        assert_eq!(b.mem.word(0), i);
    }
}

/// The initiator posts and never polls; the first packets are dropped by a peer that is not
/// ready. Its progress thread, asleep for a day, has to learn of the new timer and repeat.
#[test]
fn a_sleeping_initiator_repeats_what_was_lost() {
    let (a, b) = (open(1, Faults::default()), open(2, Faults::default()));
    a.connect(&b);
    let _pa = a.progress();
    let _pb = b.progress();
    is_repeated(&a, &b);
}

/// Whoever sleeps returns for an alarm that another thread sets, sets earlier, or takes back.
#[test]
fn an_alarm_ends_the_sleep_of_another_thread() {
    let a = open(1, Faults::default());
    let sleeper = || {
        let hca = Arc::clone(&a.hca);
        asleep(move || hca.wait(LONG))
    };
    for earlier in [None, Some(LONG / 2), Some(LONG * 2)] {
        a.hca.set_alarm(earlier);
        let sleeper = sleeper();
        a.hca.set_alarm(Some(Duration::from_millis(5)));
        assert_eq!(woken(sleeper), Wake::Work);
    }
    // Until it is set anew nobody sleeps.
    assert_eq!(a.hca.wait(LONG), Wake::Work);
    a.hca.set_alarm(None);
    assert_eq!(a.hca.wait(Duration::from_millis(1)), Wake::Timeout);
}

/// An alarm that was taken back ends no sleep, although the descriptor may have been armed for it.
#[test]
fn an_alarm_that_was_taken_back_ends_no_sleep() {
    let a = open(1, Faults::default());
    let mut alarm = Duration::from_millis(5);
    loop {
        let hca = Arc::clone(&a.hca);
        let sleeper = asleep(move || hca.wait(LONG));
        let before = Instant::now();
        a.hca.set_alarm(Some(alarm));
        a.hca.set_alarm(None);
        let in_time = before.elapsed() < alarm;
        std::thread::sleep(alarm * 4);
        a.hca.wake();
        let end = woken(sleeper);
        if in_time {
            assert_eq!(end, Wake::Woken);
            return;
        }
        // This thread had no processor between the two: the alarm may have rung.
        alarm *= 2;
        a.hca.wait(Duration::ZERO); // takes the wake-up, if the sleeper did not return for it
    }
}

/// Two threads sleep, and the one with less time leaves. A deadline that a post makes then is
/// still news to the other, which would sleep for a day: it has to repeat the lost packet.
#[test]
fn a_sleeper_that_leaves_does_not_hide_the_others() {
    // The short sleep begins before the long one, or while that lasts.
    for short_first in [false, true] {
        let mut short = Duration::from_millis(30);
        loop {
            let (a, b) = (open(1, Faults::default()), open(2, Faults::default()));
            a.connect(&b);
            let _pb = b.progress();
            let began = Instant::now();
            let nap = || {
                let hca = Arc::clone(&a.hca);
                asleep(move || hca.wait(short))
            };
            let first = short_first.then(nap);
            let _pa = a.progress();
            let both_sleep = first.is_none() || began.elapsed() < short;
            let sleeper = first.unwrap_or_else(nap);
            assert_eq!(woken(sleeper), Wake::Timeout);
            if both_sleep {
                // Nobody polls.
                is_repeated(&a, &b);
                break;
            }
            // The short sleep may have been over before the long one began.
            short *= 2;
        }
    }
}

/// Posts that are held back for a batch leave without a poll.
#[test]
fn held_back_posts_leave_by_themselves() {
    let (a, b) = (open(1, Faults::default()), open(2, Faults::default()));
    a.connect(&b);
    b.connect(&a);
    let (_pa, _pb) = (a.progress(), b.progress());
    for round in 1..=20 {
        a.mem.set_word(0, round);
        for i in 0..5 {
            let raddr = b.mem.at(8 * i);
            a.post(round, SendOp::write(raddr, b.mem.mr.rkey), 8);
        }
        soon("the last of five posts has left", || {
            b.mem.word(32) == round
        });
        for _ in 0..5 {
            assert_eq!(a.reap().status, WcStatus::Success);
        }
    }
}

/// A completion waits to be polled, and the poster does something else: `wait` still moves the
/// wire, so that posts held back behind it leave when the acknowledgement comes.
#[test]
fn unpolled_completions_do_not_stop_the_wire() {
    let (a, b) = (open(1, Faults::default()), open(2, Faults::default()));
    a.connect(&b);
    b.connect(&a);
    let _pb = b.progress();
    let at = |i: usize| SendOp::write(b.mem.at(8 * i), b.mem.mr.rkey);
    a.mem.set_word(0, 7);
    a.post(1, at(0), 8);
    while a.hca.wait(LONG) != Wake::Work {}
    // The first has completed and nobody polls. Of these the first leaves at once, the others
    // with its acknowledgement.
    for i in 1..5 {
        a.post(i as u64 + 1, at(i), 8);
    }
    soon("all posts have left", || {
        assert_eq!(a.hca.wait(PATIENCE), Wake::Work);
        b.mem.word(32) == 7
    });
    for i in 1..=5 {
        let c = a.reap();
        assert_eq!((c.wr_id, c.status), (i, WcStatus::Success));
    }
}

/// A local thread reads a word while a peer writes it: it never sees half of a write.
#[test]
fn words_do_not_tear() {
    let (a, b) = (open(1, Faults::default()), open(2, Faults::default()));
    a.connect(&b);
    b.connect(&a);
    let _progress = b.progress();
    let stop = Arc::new(AtomicBool::new(false));
    let (at, flag) = (b.mem.at(0) as usize, Arc::clone(&stop));
    let both = Arc::new(Barrier::new(2));
    let begin = Arc::clone(&both);
    let reader = std::thread::spawn(move || {
        // SAFETY: an aligned word of a region that is never freed.
        let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) };
        let mut seen = 0_u64;
        begin.wait();
        loop {
            let last = flag.load(Ordering::Acquire);
            let value = word.load(Ordering::Acquire);
            assert_eq!(
                value >> 32,
                value & 0xffff_ffff,
                "half of a write: {value:#x}"
            );
            seen += u64::from(value != 0);
            if last {
                return seen;
            }
        }
    });
    both.wait();
    for i in 1..=3000_u64 {
        a.mem.set_word(0, i << 32 | i);
        a.post(i, write(&b), 8);
        assert_eq!(a.reap().status, WcStatus::Success);
    }
    stop.store(true, Ordering::Release);
    assert!(reader.join().unwrap() > 0);
}

/// Remote atomics and atomics of the owner's CPU on one word lose nothing.
#[test]
fn remote_and_local_atomics_are_coherent() {
    const N: u64 = 2000;
    let (a, b) = (open(1, Faults::default()), open(2, Faults::default()));
    a.connect(&b);
    b.connect(&a);
    let _progress = b.progress();
    let at = b.mem.at(0) as usize;
    let local = std::thread::spawn(move || {
        // SAFETY: an aligned word of a region that is never freed.
        let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) };
        for _ in 0..N * 50 {
            word.fetch_add(1, Ordering::AcqRel);
        }
    });
    let op = SendOp::fetch_add(b.mem.at(0), b.mem.mr.rkey, 1 << 32);
    for i in 0..N {
        a.post(i, op, 8);
        assert_eq!(a.reap().status, WcStatus::Success);
        assert_eq!(a.mem.word(0) >> 32, i);
    }
    local.join().unwrap();
    assert_eq!(b.mem.word(0), N << 32 | (N * 50));
}

#[test]
fn faults_are_survived_with_sleeping_threads() {
    let faults = |seed| Faults {
        drop: 100_000,
        duplicate: 50_000,
        reorder: 100_000,
        seed,
    };
    let (a, b) = (open(1, faults(1)), open(2, faults(2)));
    a.connect(&b);
    b.connect(&a);
    let (_pa, _pb) = (a.progress(), b.progress());
    for i in 1..=100_u64 {
        a.mem.set_word(0, i);
        a.post(i, write(&b), 8 + 1000 * i as usize);
        let c = a.reap();
        assert_eq!((c.wr_id, c.status), (i, WcStatus::Success));
        assert_eq!(b.mem.word(0), i);
    }
    assert!(a.hca.counters().retransmitted > 0);
}

#[test]
fn addresses_that_nobody_could_answer_to_are_refused() {
    for bind in ["0.0.0.0", "::", "224.0.0.1", "192.0.2.1"] {
        let config = SoftConfig {
            bind: bind.parse().unwrap(),
            ..SoftConfig::loopback(1)
        };
        let error = SoftHca::open(&config).unwrap_err().to_string();
        assert!(error.contains(bind), "{error}");
    }
}

#[test]
fn each_takes_a_port_of_its_own_out_of_a_range() {
    // An address that other processes hardly have.
    let [_, b, c, d] = std::process::id().to_be_bytes();
    let open = |seed| {
        let config = SoftConfig {
            bind: [127, 16 + b % 200, c, d].into(),
            ports: (20_000, 20_002),
            ..SoftConfig::loopback(seed)
        };
        SoftHca::open(&config)
    };
    let all: Vec<_> = [5, 5, 6].map(|seed| open(seed).unwrap()).into();
    let mut ports: Vec<_> = all.iter().map(|hca| hca.port().av.udp_port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [20_000, 20_001, 20_002]);
    let error = open(7).unwrap_err().to_string();
    assert!(error.contains("port 20000 to 20002"), "{error}");
    drop(all);
    open(8).unwrap();
}
