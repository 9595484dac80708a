//! What the software HCA does on the loopback of this machine: latency, message rate, bandwidth.
//!
//! `cargo run --release -p shmem-ib --example soft_loopback`
//!
//! Two ports in one process, each with its own socket. The target side is served by a thread
//! that spins ("spinning") or sleeps until packets come ("sleeping"), the two ways in which the
//! runtime uses an HCA.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shmem_ib::soft::{SoftConfig, SoftHca};
use shmem_ib::verbs::{
    Access, Completion, Cq, Hca, Mtu, Psn, QpInit, QpType, Qpn, RcDest, RcStart, SendOp, SendWr,
    VerbsError, WcStatus,
};
use shmem_ib_kit::conformance::Region;

const LEN: usize = 4 << 20;

struct Port {
    hca: Arc<SoftHca>,
    cq: Cq,
    qp: Qpn,
    mem: Region,
}

impl Port {
    fn open(seed: u64) -> Self {
        let start = Instant::now();
        let hca = Arc::new(SoftHca::open(&SoftConfig::loopback(seed)).expect("a port"));
        println!(
            "opened a port in {:.1} us",
            start.elapsed().as_secs_f64() * 1e6
        );
        let cq = hca.create_cq(4096).expect("a CQ");
        let init = QpInit {
            max_send_wr: 256,
            max_inline: 64,
            ..QpInit::new(QpType::Rc, cq)
        };
        let qp = hca.create_qp(&init).expect("a QP");
        let mem = Region::new(&*hca, LEN, Access::ALL);
        Self { hca, cq, qp, mem }
    }

    fn connect(&self, peer: &Self) {
        let dest = RcDest::new(peer.hca.port().av, peer.qp, Psn(1), Mtu::M4096);
        for attr in RcStart::new(dest, Psn(1)).attrs() {
            self.hca
                .modify_qp(self.qp, &attr)
                .expect("a legal transition");
        }
    }

    fn post(&self, op: SendOp, len: usize) -> Result<(), VerbsError> {
        let sges = [self.mem.sge(0, len)];
        let wr = SendWr::new(0, op, &sges);
        // SAFETY: regions are never freed.
        unsafe { self.hca.post_send(self.qp, &wr) }
    }

    fn reap(&self) -> usize {
        let mut out = [Completion::EMPTY; 64];
        let n = self.hca.poll_cq(self.cq, &mut out);
        assert!(
            out[..n].iter().all(|c| c.status == WcStatus::Success),
            "{:?}",
            &out[..n]
        );
        n
    }
}

/// Nanoseconds per operation with one outstanding: minimum, median, 99th percentile.
fn latency(a: &Port, op: SendOp, len: usize, n: usize) -> (u64, u64, u64) {
    let mut samples: Vec<u64> = (0..n)
        .map(|_| {
            let start = Instant::now();
            a.post(op, len).expect("post");
            while a.reap() == 0 {}
            start.elapsed().as_nanos() as u64
        })
        .collect();
    samples.sort_unstable();
    (samples[0], samples[n / 2], samples[n * 99 / 100])
}

/// Operations per second with a full queue.
fn rate(a: &Port, op: SendOp, len: usize, n: usize) -> f64 {
    let start = Instant::now();
    let (mut posted, mut done) = (0, 0);
    while done < n {
        while posted < n {
            match a.post(op, len) {
                Ok(()) => posted += 1,
                Err(VerbsError::QueueFull { .. }) => break,
                Err(e) => panic!("{e}"),
            }
        }
        done += a.reap();
    }
    n as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    for (name, spin) in [("spinning", true), ("sleeping", false)] {
        let (a, b) = (Port::open(1), Port::open(2));
        a.connect(&b);
        b.connect(&a);
        let stop = Arc::new(AtomicBool::new(false));
        let server = {
            let (hca, cq, stop) = (Arc::clone(&b.hca), b.cq, Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if spin {
                        hca.poll_cq(cq, &mut [Completion::EMPTY; 1]);
                    } else {
                        hca.wait(Duration::from_millis(100));
                    }
                }
            })
        };
        let (raddr, rkey) = (b.mem.at(0), b.mem.mr.rkey);
        let write = SendOp::Write {
            raddr,
            rkey,
            imm: None,
        };
        let read = SendOp::Read { raddr, rkey };
        let add = SendOp::FetchAdd {
            raddr,
            rkey,
            add: 1,
        };
        println!("target {name}:");
        for (what, op, len) in [
            ("write 8 B", write, 8),
            ("read 8 B", read, 8),
            ("add", add, 8),
        ] {
            latency(&a, op, len, 2_000);
            let (min, median, p99) = latency(&a, op, len, 20_000);
            println!("  {what:12} latency min {min} median {median} p99 {p99} ns");
        }
        let before = a.hca.counters();
        let per_second = rate(&a, write, 8, 1_000_000);
        let after = a.hca.counters();
        let calls = after.send_calls - before.send_calls;
        println!(
            "  write 8 B    {:.2} M/s, {calls} send calls",
            per_second / 1e6
        );
        for (what, op) in [("write", write), ("read", read)] {
            for len in [4096, 65_536, 1 << 20] {
                let n = (1 << 30) / len.max(16_384);
                let mbs = rate(&a, op, len, n) * len as f64 / 1e6;
                println!("  {what:5} {:7} B {mbs:8.0} MB/s", len);
            }
        }
        stop.store(true, Ordering::Relaxed);
        b.hca.wake();
        server.join().expect("the server thread");
        println!("  a: {:?}", a.hca.counters());
        println!("  b: {:?}", b.hca.counters());
    }
}
