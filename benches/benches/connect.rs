//! Connections: the handshake as the pure machine it is, and endpoints on two software HCAs of this process.
//!
//! Processor time. But for first contact, both endpoints take turns in one thread, so nobody waits.

mod cpu_time;
mod setting;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cpu_time::CpuTime;
use criterion::{BatchSize, Criterion};
use shmem_ib::connect::UdAddress;
use shmem_ib::connect::endpoint::{Endpoint, EndpointConfig, Lookup, Source};
use shmem_ib::connect::interface::{Action, Local};
use shmem_ib::connect::manager::{Identity, Manager};
use shmem_ib::connect::message::{MAX_LEN, Memory, Segment};
use shmem_ib::connect::retry::RetryPolicy;
use shmem_ib::soft::{SoftConfig, SoftHca};
use shmem_ib::verbs::{Mtu, Qpn};
use shmem_ib_kit::job::{AddressTable, Plain};

/// Puts of a stream.
const STREAM: u64 = 64;

fn main() {
    let mut criterion = setting::criterion(CpuTime);
    handshake(&mut criterion);
    lives(&mut criterion);
    operations(&mut criterion);
    criterion.final_summary();
}

fn address(pe: u32) -> UdAddress {
    UdAddress {
        qpn: Qpn(1 + pe),
        ..UdAddress::default()
    }
}

/// The connections of a PE that has none yet.
fn manager(pe: u32) -> Manager {
    let identity = Identity {
        job_id: [1; 16],
        job_key: &[2; 32],
        n_pes: 1024,
    };
    let memory = Memory {
        segments: [Segment::default()].into_iter().collect(),
        ..Memory::default()
    };
    let local = Local {
        pe,
        ud: address(pe),
        mtu: Mtu::M4096,
        max_rd_atomic: 16,
        memory: Some(memory),
        max_qps: 0,
        leaving: false,
        retry: RetryPolicy::default(),
    };
    Manager::new(&identity, local, pe.into())
}

/// Does what a manager asks for, and has the other one take its datagrams.
fn act(from: &mut Manager, to: &mut Manager) {
    while let Some((pe, action)) = from.poll_action() {
        match action {
            Action::Send { message, .. } => {
                let mut bytes = [0; MAX_LEN];
                let len = from.encode(&message, &mut bytes);
                let taken = to.handle_datagram(0, &bytes[..len]);
                taken.expect("a message of this job");
            }
            Action::CreateQp => from.qp_created(0, pe, Qpn(1000 + pe)),
            _ => {}
        }
    }
}

/// A connection, from the wish for it until both PEs have it: messages are signed and checked, too.
fn handshake(criterion: &mut Criterion<CpuTime>) {
    let both = [manager(0), manager(1)];
    let mut group = criterion.benchmark_group("handshake");
    group.bench_function("open", |b| {
        let open = |[mut a, mut b]: [Manager; 2]| {
            a.connect(0, 1, 1, address(1));
            act(&mut a, &mut b);
            act(&mut b, &mut a);
            act(&mut a, &mut b);
            assert!(a.route(1).is_some(), "the connection is open");
            [a, b]
        };
        b.iter_batched(|| both.clone(), open, BatchSize::SmallInput);
    });
    group.finish();
}

/// An endpoint of a job of two PEs, with its memory.
fn endpoint(pe: u32, memory: &mut [u64]) -> Arc<Endpoint<SoftHca>> {
    let hca = SoftHca::open(&SoftConfig::loopback(pe.into())).expect("a port of the loopback");
    let config = EndpointConfig {
        pe,
        n_pes: 2,
        spin_rounds: 0,
        // As on the software HCA, which has no bell.
        hold: 1,
        ..EndpointConfig::default()
    };
    let endpoint = Endpoint::new(Arc::new(hca), config).expect("the settings are good");
    let len = size_of_val(memory);
    // SAFETY: callers keep the memory until the endpoint is gone, and do not touch it meanwhile.
    unsafe { endpoint.register(memory.as_mut_ptr().cast(), len) }.expect("it is the first");
    endpoint
}

/// Two of them that know each other's address.
fn pair(memory: &mut [Vec<u64>; 2]) -> [Arc<Endpoint<SoftHca>>; 2] {
    let [first, second] = memory;
    let pair = [endpoint(0, first), endpoint(1, second)];
    let table = Arc::new(AddressTable::default());
    let addresses = pair.each_ref().map(|e| Some(Lookup::Ready(e.ud_address())));
    *table.0.lock().expect("no panic") = addresses.to_vec();
    for endpoint in &pair {
        endpoint.set_directory(Arc::clone(&table) as _);
    }
    pair
}

/// Runs `program` while the other endpoint answers.
fn answered(by: &Endpoint<SoftHca>, program: impl FnOnce() + Send) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            program();
            ended.store(true, Ordering::Release);
        });
        while !ended.load(Ordering::Acquire) {
            by.progress_wait(Duration::from_millis(1));
        }
    });
}

/// Closes both, each of which waits for the other.
fn close([a, b]: [Arc<Endpoint<SoftHca>>; 2]) {
    std::thread::scope(|scope| {
        scope.spawn(|| a.close());
        b.close();
    });
}

/// What an endpoint costs each PE of a job that opens, registers and closes it.
fn lives(criterion: &mut Criterion<CpuTime>) {
    let mut memory = [vec![0; 512], vec![0; 512]];
    // As in a job, these are not the only sockets of their kind: what the first and the last cost the kernel is
    // paid once.
    let _other = SoftHca::open(&SoftConfig::loopback(9)).expect("a port of the loopback");
    let mut group = criterion.benchmark_group("endpoint");
    group.bench_function("open, close", |b| {
        b.iter(|| endpoint(0, &mut memory[0]).close());
    });
    // Which thread answers, and when, differs from run to run.
    group.noise_threshold(0.3);
    group.bench_function("open, connect, close: two", |b| {
        b.iter(|| {
            let pair = pair(&mut memory);
            answered(&pair[1], || {
                pair[0].connect_all([1].into_iter()).expect("an answer")
            });
            close(pair);
        });
    });
    group.finish();
}

/// Operations of a connected endpoint, with what the target does for them.
fn operations(criterion: &mut Criterion<CpuTime>) {
    let mut memory = [vec![0; 1 << 13], vec![0; 1 << 13]];
    let mut buffer = vec![0_u8; 64 << 10];
    let pair = pair(&mut memory);
    let [a, b] = &pair;
    answered(b, || a.connect_all([1].into_iter()).expect("an answer"));
    let complete = || {
        while a.stats().in_flight > 0 {
            b.progress();
            a.progress();
        }
        a.quiet().expect("b answers");
    };
    let mut group = criterion.benchmark_group("operation");
    for bytes in [8, 64 << 10] {
        group.bench_function(format!("put/{bytes}"), |bench| {
            bench.iter(|| {
                // SAFETY: the buffer stays as it is until `complete` has returned.
                unsafe { a.put(1, 0, buffer.as_ptr(), bytes, Source::UntilQuiet) }
                    .expect("b answers");
                complete();
            });
        });
        group.bench_function(format!("get/{bytes}"), |bench| {
            bench.iter(|| {
                // SAFETY: nobody uses the buffer until `complete` has returned.
                unsafe { a.get(1, 0, buffer.as_mut_ptr(), bytes, false) }.expect("b answers");
                complete();
            });
        });
    }
    group.bench_function("add", |bench| {
        bench.iter(|| {
            a.add_nbi(1, 0, black_box(1)).expect("b answers");
            complete();
        });
    });
    group.bench_function(format!("{STREAM} puts/8"), |bench| {
        bench.iter(|| {
            for n in 0..STREAM {
                // SAFETY: the buffer stays as it is until `complete` has returned.
                unsafe { a.put(1, 8 * n, buffer.as_ptr(), 8, Source::UntilQuiet) }
                    .expect("b answers");
            }
            complete();
        });
    });
    group.bench_function("poll", |bench| bench.iter(|| a.progress()));
    group.finish();
    close(pair);
}
