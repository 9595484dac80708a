//! Endpoints whose software HCA meets a kernel that does not take its datagrams, or loses completions.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::unwilling::Rule;
use super::{SoftConfig, SoftHca};
use shmem_connect::endpoint::{ConnError, Endpoint, EndpointConfig, Source};
use shmem_ib_kit::job::{Job, Plain as _};
use shmem_verbs::{Hca, Mtu, Psn, Qkey, QpAttr, QpInit, QpType, SendOp, SendWr};

/// 64-bit words of a long put: 1 MiB.
const WORDS: usize = 1 << 17;
/// Whatever takes as long is taken for a hang.
const HANG: Duration = Duration::from_secs(120);
/// The retry budgets of connections and handshakes are far above this: an error within it is told by
/// the HCA.
const LONG: Duration = Duration::from_secs(600);

/// A job, and what its first PE was told.
struct Failing {
    job: Job<SoftHca>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Failing {
    fn new(n: u32) -> Self {
        Self::of(n, Mtu::M4096)
    }

    fn of(n: u32, mtu: Mtu) -> Self {
        let mut job = Job::on(n, |number, config| {
            config.rc_timeout = 31;
            config.rc_retry = 7;
            config.connect_deadline = LONG;
            let config = SoftConfig {
                mtu,
                ..SoftConfig::loopback(number.into())
            };
            SoftHca::open(&config).expect("a socket")
        });
        for pe in &mut job.pes {
            pe.register();
            // A wake-up that is lost is not made good by the next turn.
            pe.sleep_at_most(Duration::from_secs(3600));
        }
        let told = Arc::new(Mutex::new(Vec::new()));
        let news = Arc::clone(&told);
        job.pes[0].endpoint.on_failure(move |error| {
            news.lock().expect("no panics").push(error.to_string());
        });
        Self { job, told }
    }

    /// PE 0, to which everything happens.
    fn end(&self) -> &Endpoint<SoftHca> {
        &self.job.pes[0].endpoint
    }

    fn hca(&self, pe: usize) -> Arc<SoftHca> {
        self.job.pes[pe].hca()
    }

    /// What PE 0 is refused on its way to `pe`.
    fn refuse(&self, pe: usize, rule: Rule) {
        let port = self.hca(pe).port().av.udp_port;
        self.hca(0).unwilling().set(port, Some(rule));
    }

    fn refused(&self) -> u64 {
        self.hca(0).unwilling().refused.load(Ordering::Relaxed)
    }

    /// Writes the first `len` bytes of the segment of `pe`.
    fn put(&self, pe: u32, byte: u8, len: usize) -> Result<(), ConnError> {
        let data = vec![byte; len];
        // SAFETY: `data` is copied, or waited for.
        unsafe {
            self.end()
                .put(pe, 0, data.as_ptr(), len, Source::UntilReturn)
        }?;
        self.end().quiet()
    }

    fn word(&self, pe: usize, at: usize) -> u64 {
        self.job.pes[pe].word(at as u64 * 8)
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().expect("no panics").clone()
    }

    fn wait_until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + HANG;
        while !condition(self) {
            assert!(Instant::now() < end, "waited in vain until {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Failing {
    /// A close waits for what is under way, with these budgets for days.
    fn drop(&mut self) {
        for pe in &self.job.pes {
            pe.endpoint.abort();
        }
    }
}

/// Runs `call` on a thread of its own: one that hangs fails the test instead.
fn bounded<R: Send>(what: &str, call: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(call);
        let end = Instant::now() + HANG;
        while !thread.is_finished() {
            if Instant::now() >= end {
                // Not a panic: the scope would wait for the thread.
                eprintln!("{what} hangs");
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        thread.join().expect("no panic")
    })
}

fn device_error(error: &ConnError) -> String {
    assert!(matches!(error, ConnError::Device { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_way_that_is_forbidden_ends_all_that_waits_and_names_peer_and_reason() {
    let job = Failing::new(3);
    job.put(1, 1, 8).expect("a sound way");
    job.refuse(1, Rule::always(libc::EPERM));
    // Who wants to connect to this one waits.
    job.job.pes[2].endpoint.abort();
    let (put, connect) = bounded("a put that is refused", || {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| job.put(2, 1, 8));
            (job.put(1, 2, 8), other.join().expect("no panic"))
        })
    });
    for error in [put, connect] {
        let text = device_error(&error.expect_err("nothing gets through"));
        for part in [
            "the software HCA at",
            "PE 1 (node 0)",
            "not permitted",
            "firewall",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    job.wait_until("somebody is told", |job| !job.told().is_empty());
    assert_eq!(job.told().len(), 1, "{:?}", job.told());
    let later = device_error(&job.put(2, 1, 8).expect_err("it is over"));
    assert_eq!(vec![later], job.told());
    // Whoever opens another endpoint on it is told, too.
    let again = Endpoint::new(job.hca(0), EndpointConfig::default());
    device_error(&again.expect_err("the HCA has failed"));
}

#[test]
fn a_program_that_computes_is_told_that_nothing_gets_through() {
    let job = Failing::new(2);
    job.put(1, 1, 8).expect("a sound way");
    job.refuse(1, Rule::always(libc::ENETUNREACH));
    // SAFETY: inline data is copied.
    unsafe {
        job.end()
            .put(1, 0, [2_u8; 8].as_ptr(), 8, Source::UntilReturn)
    }
    .expect("it is only posted");
    // In no call: the progress thread alone meets the refusals.
    job.wait_until("the program is told", |job| !job.told().is_empty());
    let text = &job.told()[0];
    assert!(
        text.contains("PE 1") && text.contains("ip route get"),
        "{text}"
    );
}

#[test]
fn packets_too_long_for_the_way_are_a_failure_at_once() {
    let job = Failing::new(2);
    job.put(1, 1, 8).expect("short ones fit");
    let rule = Rule {
        bytes: 1500,
        ..Rule::always(libc::EMSGSIZE)
    };
    job.refuse(1, rule);
    let error = bounded("a long put", || job.put(1, 2, 1 << 16)).expect_err("they do not fit");
    let text = device_error(&error);
    assert!(
        text.contains("PE 1") && text.contains("SHMEM_SOFT_MTU"),
        "{text}"
    );
}

#[test]
fn a_way_without_segmentation_costs_other_peers_nothing() {
    let job = Failing::new(3);
    let rule = Rule {
        packets: 1,
        ..Rule::always(libc::EINVAL)
    };
    job.refuse(1, rule);
    for pe in [1, 2] {
        job.put(pe, 7, WORDS * 8).expect("it arrives");
        assert_eq!(job.word(pe as usize, WORDS - 1), 0x0707_0707_0707_0707);
    }
    assert_eq!(job.refused(), 1, "once is enough to know");
    let longest = |pe: usize| {
        let port = job.hca(pe).port().av.udp_port;
        let hca = job.hca(0);
        let unwilling = hca.unwilling();
        unwilling.longest_train(port);
        job.put(pe as u32, 8, WORDS * 8).expect("it arrives");
        unwilling.longest_train(port)
    };
    assert_eq!(longest(1), 1);
    assert!(longest(2) > 4);
    assert!(job.hca(0).failure().is_none());
}

#[test]
fn a_full_kernel_is_waited_for_and_nothing_is_lost() {
    for mtu in [Mtu::M4096, Mtu::M61440] {
        full_kernel(mtu);
    }
}

fn full_kernel(mtu: Mtu) {
    let job = Failing::of(2, mtu);
    job.put(1, 1, 8).expect("a sound way");
    let before = job.hca(0).counters();
    let rule = Rule {
        times: 400,
        ..Rule::always(libc::EAGAIN)
    };
    job.refuse(1, rule);
    bounded("a put that waits for room", || job.put(1, 9, WORDS * 8)).expect("it arrives");
    job.wait_until("all refusals have come", |job| {
        let _ = job.put(1, 9, WORDS * 8);
        job.refused() == 400
    });
    let wrong = (0..WORDS).filter(|at| job.word(1, *at) != 0x0909_0909_0909_0909);
    assert_eq!(wrong.count(), 0, "{mtu:?}");
    let after = job.hca(0).counters();
    // Each of them would have been the loss of a datagram.
    let again = after.retransmitted - before.retransmitted;
    assert!(again < 100, "{again} packets were sent again");
    assert_eq!(after.send_refusals, before.send_refusals);
}

#[test]
fn lost_completions_end_the_endpoint() {
    let job = Failing::new(2);
    job.put(1, 1, 8).expect("a sound way");
    {
        let hca = job.hca(0);
        let cq = hca.lock().engine.cqs.any().expect("the endpoint's");
        // Somebody posts what the endpoint has not reckoned with.
        let qp = hca.create_qp(&QpInit::new(QpType::Ud, cq)).expect("a QP");
        for attr in QpAttr::of_ud(Qkey(1), Psn::new(0)) {
            hca.modify_qp(qp, &attr).expect("ready to send");
        }
        let to = job.job.pes[1].endpoint.ud_address();
        let op = SendOp::UdSend {
            av: to.av(),
            qpn: to.qpn,
            qkey: Qkey(2),
            imm: None,
        };
        let end = Instant::now() + HANG;
        while hca.failure().is_none() {
            assert!(Instant::now() < end, "the completion queue is never full");
            // SAFETY: no buffers.
            let _ = unsafe { hca.post_send(qp, &SendWr::new(0, op, &[])) };
        }
    }
    let error = bounded("a put", || job.put(1, 2, 8)).expect_err("completions are missing");
    let text = device_error(&error);
    assert!(text.contains("completion queue"), "{text}");
    job.wait_until("somebody is told", |job| !job.told().is_empty());
}
