//! Programs that sleep in `poll(2)` on a descriptor of the HCA and do nothing else to move the wire,
//! with packets lost on purpose, so that timers have to wake them, too.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use shmem_ib::soft::{Faults, SoftConfig, SoftHca};
use shmem_ib::verbs::{
    Access, AsyncEvent, CompChannel, Completion, Cq, Hca, Mtu, Psn, QpAttr, QpInit, QpType, Qpn,
    RcDest, RecvWr, SendOp, SendWr, WcOpcode, WcStatus,
};
use shmem_ib_kit::conformance::Region;

const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: u64 = 300;

/// Sleeps until the descriptor is readable; `false` if it is not within `max`.
fn readable(fd: BorrowedFd<'_>, max: Duration) -> bool {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, alive during the call.
    unsafe { libc::poll(&raw mut entry, 1, max.as_millis() as i32) == 1 }
}

/// A side of a connection which looks at its HCA only when a descriptor says so.
struct Sleeper {
    hca: SoftHca,
    channel: CompChannel,
    cq: Cq,
    qp: Qpn,
    mem: Region,
    wakes: u64,
}

// SAFETY: its region is leaked memory, which it reaches through raw pointers only.
unsafe impl Send for Sleeper {}

impl Sleeper {
    fn new(seed: u64, drop: u32) -> Self {
        let faults = Faults {
            drop,
            seed,
            ..Faults::default()
        };
        let config = SoftConfig {
            faults,
            ..SoftConfig::loopback(seed)
        };
        let hca = SoftHca::open(&config).unwrap();
        let channel = hca.create_comp_channel().unwrap();
        let cq = hca.create_cq(64, Some(channel)).unwrap();
        hca.req_notify_cq(cq, false).unwrap();
        let init = QpInit {
            max_recv_wr: 4,
            ..QpInit::new(QpType::Rc, cq)
        };
        let qp = hca.create_qp(&init).unwrap();
        let mem = Region::new(&hca, 4096, Access::ALL);
        Self {
            hca,
            channel,
            cq,
            qp,
            mem,
            wakes: 0,
        }
    }

    fn connect(&self, peer: &Self) {
        let dest = RcDest {
            av: peer.hca.port().av,
            qpn: peer.qp,
            rq_psn: Psn(9),
            mtu: Mtu::M1024,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
        };
        let attrs = [
            QpAttr::Init {
                access: Access::ALL,
                qkey: None,
            },
            QpAttr::Rtr { dest: Some(dest) },
            QpAttr::Rts {
                sq_psn: Psn(9),
                timeout: 20,
                retry_cnt: 7,
                rnr_retry: 7,
                max_rd_atomic: 1,
            },
        ];
        for attr in &attrs {
            self.hca.modify_qp(self.qp, attr).unwrap();
        }
    }

    fn receive(&self) {
        let sges = [self.mem.sge(0, 64)];
        let wr = RecvWr {
            wr_id: 0,
            sges: &sges,
        };
        // SAFETY: regions are never freed.
        unsafe { self.hca.post_recv(self.qp, &wr) }.unwrap();
    }

    fn post(&self, op: SendOp) {
        let sges = [self.mem.sge(64, 64)];
        // SAFETY: regions are never freed.
        unsafe { self.hca.post_send(self.qp, &SendWr::new(1, op, &sges)) }.unwrap();
    }

    /// The usual loop: sleep, take the event, ask for the next, take all completions.
    fn sleep(&mut self) -> Vec<Completion> {
        let start = Instant::now();
        loop {
            let fd = self.hca.comp_channel_fd(self.channel).unwrap();
            assert!(readable(fd, PATIENCE), "nobody woke us");
            assert!(
                start.elapsed() < PATIENCE,
                "woken for nothing again and again"
            );
            self.wakes += 1;
            let Some(cq) = self.hca.get_cq_event(self.channel) else {
                continue;
            };
            assert_eq!(cq, self.cq);
            self.hca.req_notify_cq(cq, false).unwrap();
            let mut out = [Completion::EMPTY; 16];
            let n = self.hca.poll_cq(cq, &mut out);
            if n > 0 {
                return out[..n].to_vec();
            }
        }
    }

    /// Exchanges messages with the other side, and answers its repetitions until `over` says that
    /// both have all.
    fn play(&mut self, begins: bool, over: &AtomicU32) {
        if begins {
            self.post(SendOp::Send { imm: None });
        }
        let (mut received, mut sent) = (0, 0);
        while received < ROUNDS || sent < ROUNDS {
            for c in self.sleep() {
                assert_eq!(c.status, WcStatus::Success, "{c:?}");
                if c.opcode == WcOpcode::Send {
                    sent += 1;
                    continue;
                }
                received += 1;
                self.receive();
                if !begins || received < ROUNDS {
                    self.post(SendOp::Send { imm: None });
                }
            }
        }
        over.fetch_add(1, Ordering::Relaxed);
        while over.load(Ordering::Relaxed) < 2 {
            let fd = self.hca.comp_channel_fd(self.channel).unwrap();
            readable(fd, Duration::from_millis(20));
            self.hca.get_cq_event(self.channel);
        }
    }
}

fn ping_pong(drop: u32) -> [Sleeper; 2] {
    let (mut a, b) = (Sleeper::new(1, drop), Sleeper::new(2, drop));
    a.connect(&b);
    b.connect(&a);
    for side in [&a, &b] {
        side.receive();
        side.receive();
    }
    let over = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let thread = scope.spawn({
            let over = &over;
            move || {
                let mut b = b;
                b.play(false, over);
                b
            }
        });
        a.play(true, &over);
        [a, thread.join().expect("no panic")]
    })
}

#[test]
fn a_program_that_only_sleeps_on_the_descriptor_makes_progress() {
    for side in ping_pong(0) {
        // Three events a round or so, and not a spin on a descriptor that stays readable.
        assert!(side.wakes < 20 * ROUNDS, "{} wakes", side.wakes);
    }
}

#[test]
fn lost_packets_wake_it_when_they_are_due() {
    let sides = ping_pong(50_000);
    let timeouts: u64 = sides.iter().map(|s| s.hca.counters().timeouts).sum();
    assert!(timeouts > 0, "nothing was lost");
    for side in sides {
        assert!(side.wakes < 40 * ROUNDS, "{} wakes", side.wakes);
    }
}

/// The descriptor is not readable when there is nothing, and readable when another thread has found
/// something.
#[test]
fn the_descriptor_tells_what_other_threads_find() {
    let (a, b) = (Sleeper::new(1, 0), Sleeper::new(2, 0));
    a.connect(&b);
    b.connect(&a);
    b.receive();
    let fd = b.hca.comp_channel_fd(b.channel).unwrap();
    assert!(!readable(fd, Duration::ZERO));
    a.post(SendOp::Send { imm: None });
    // Somebody else moves the wire of `b`: the completion comes without the descriptor's owner.
    let start = Instant::now();
    while !readable(fd, Duration::ZERO) || b.hca.counters().packets_received == 0 {
        assert!(start.elapsed() < PATIENCE);
        b.hca.wait(Duration::from_millis(1));
        a.hca.wait(Duration::from_millis(1));
    }
    assert_eq!(b.hca.get_cq_event(b.channel), Some(b.cq));
    assert_eq!(b.hca.get_cq_event(b.channel), None);
    assert!(!readable(fd, Duration::ZERO), "the event was taken");
    assert_eq!(b.hca.poll_cq(b.cq, &mut [Completion::EMPTY; 4]), 1);
}

#[test]
fn asynchronous_events_wake_a_sleeper() {
    let (a, b) = (Sleeper::new(1, 0), Sleeper::new(2, 0));
    a.connect(&b);
    b.connect(&a);
    let fd = b.hca.async_fd().unwrap();
    while b.hca.poll_async().is_some() {}
    assert!(!readable(fd, Duration::ZERO));
    a.post(SendOp::Write {
        raddr: b.mem.at(0),
        rkey: shmem_ib::verbs::Rkey(b.mem.mr.rkey.0 ^ 1),
        imm: None,
    });
    let event = loop {
        assert!(readable(fd, PATIENCE), "nobody woke us");
        match b.hca.poll_async() {
            None | Some(AsyncEvent::CommEst(_)) => {}
            Some(event) => break event,
        }
    };
    assert_eq!(event, AsyncEvent::QpAccessErr(b.qp));
    assert_eq!(b.hca.poll_async(), None);
    assert!(!readable(fd, Duration::ZERO), "the event was taken");
}

/// A destroyed channel leaves its descriptor to the next one, without what it had to tell.
#[test]
fn descriptors_are_used_again() {
    let hca = SoftHca::open(&SoftConfig::loopback(1)).unwrap();
    let make = || {
        let channel = hca.create_comp_channel().unwrap();
        let cq = hca.create_cq(4, Some(channel)).unwrap();
        let qp = hca.create_qp(&QpInit::new(QpType::Rc, cq)).unwrap();
        (channel, cq, qp)
    };
    let (channel, cq, qp) = make();
    let fd = hca.comp_channel_fd(channel).unwrap().as_raw_fd();
    hca.req_notify_cq(cq, false).unwrap();
    let attrs = [QpAttr::Init {
        access: Access::ALL,
        qkey: None,
    }];
    hca.modify_qp(qp, &attrs[0]).unwrap();
    hca.modify_qp(qp, &QpAttr::Err).unwrap();
    let wr = SendWr::new(1, SendOp::Send { imm: None }, &[]);
    // SAFETY: no buffers.
    unsafe { hca.post_send(qp, &wr) }.unwrap();
    assert!(readable(hca.comp_channel_fd(channel).unwrap(), PATIENCE));
    hca.destroy_qp(qp).unwrap();
    hca.destroy_cq(cq).unwrap();
    hca.destroy_comp_channel(channel).unwrap();
    let (channel, ..) = make();
    let again = hca.comp_channel_fd(channel).unwrap();
    assert_eq!(again.as_raw_fd(), fd);
    assert!(!readable(again, Duration::ZERO));
}
