//! Counts what one operation takes besides time: both sides in one thread, so that nothing spins.
//!
//! `cargo run --release -p shmem-ib --example op_cost [put|get|add|stream|poll] [bytes] [count] [every]`
//!
//! Prints requests, system calls and packets per operation. One operation of `stream` is 64 puts from one place and a
//! quiet, of which one in `every` reports its completion. `valgrind --tool=callgrind
//! --toggle-collect='*measured*'` counts instructions. `cargo bench -p shmem-benches --bench connect` measures times.

use std::sync::Arc;
use std::time::Duration;

use shmem_ib::connect::endpoint::{Endpoint, EndpointConfig, Lookup, Source};
use shmem_ib::soft::{SoftConfig, SoftHca};
use shmem_ib_kit::job::{AddressTable, Plain};

fn open(pe: u32, memory: &mut [u64], signal_every: u32) -> Arc<Endpoint<SoftHca>> {
    let hca = SoftHca::open(&SoftConfig::loopback(pe.into())).expect("the loopback is there");
    let config = EndpointConfig {
        pe,
        n_pes: 2,
        signal_every,
        // As on the software HCA, which has no bell.
        hold: 1,
        ..EndpointConfig::default()
    };
    let endpoint = Endpoint::new(Arc::new(hca), config).expect("the settings are good");
    let len = size_of_val(memory);
    // SAFETY: the memory outlives the endpoints of `main`, and nobody borrows it meanwhile.
    unsafe { endpoint.register(memory.as_mut_ptr().cast(), len) }.expect("it is the first");
    endpoint
}

/// Puts of a stream.
const STREAM: u32 = 64;

/// What is done `n` times.
#[derive(Clone, Copy)]
struct Work {
    idle: bool,
    add: bool,
    get: bool,
    stream: bool,
    bytes: usize,
    n: u32,
}

#[inline(never)]
fn measured(a: &Endpoint<SoftHca>, b: &Endpoint<SoftHca>, buffer: &mut [u8], work: Work) {
    for _ in 0..work.n {
        let len = work.bytes;
        if work.idle {
            a.progress();
            continue;
        }
        if work.stream {
            for _ in 0..STREAM {
                // SAFETY: the buffer stays until `quiet`.
                unsafe { a.put(1, 0, buffer.as_ptr(), len, Source::UntilQuiet) }
                    .expect("b answers");
            }
        } else if work.add {
            a.add_nbi(1, 0, 1).expect("b answers");
        } else if work.get {
            // SAFETY: the buffer stays until `quiet`.
            unsafe { a.get(1, 0, buffer.as_mut_ptr(), len, false) }.expect("b answers");
        } else {
            // SAFETY: the buffer stays until `quiet`.
            unsafe { a.put(1, 0, buffer.as_ptr(), len, Source::UntilQuiet) }.expect("b answers");
        }
        loop {
            b.progress();
            a.progress();
            if a.stats().in_flight == 0 {
                break;
            }
        }
        a.quiet().expect("b answers");
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_else(|| "put".into());
    let mut number = |default| {
        args.next()
            .map_or(default, |n| n.parse().expect("a number"))
    };
    let work = Work {
        idle: kind == "poll",
        add: kind == "add",
        get: kind == "get",
        stream: kind == "stream",
        bytes: number(8) as usize,
        n: number(100_000),
    };
    let every = number(EndpointConfig::default().signal_every);
    let mut memory = [vec![0; 1 << 18], vec![0; 1 << 18]];
    let mut buffer = vec![0; 1 << 21];
    let [a, b] = [
        open(0, &mut memory[0], every),
        open(1, &mut memory[1], every),
    ];
    let table = Arc::new(AddressTable::default());
    let addresses = [&a, &b].map(|e| Some(Lookup::Ready(e.ud_address())));
    *table.0.lock().expect("no panic") = addresses.to_vec();
    for endpoint in [&a, &b] {
        endpoint.set_directory(Arc::clone(&table) as _);
    }
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| a.connect_all([1].into_iter()));
        while !connecting.is_finished() {
            b.progress_wait(Duration::from_millis(1));
        }
        connecting.join().expect("no panic").expect("b answers");
    });
    measured(&a, &b, &mut buffer, Work { n: 100, ..work });
    let requests = a.stats();
    let before = [a.stats().hca, b.stats().hca];
    measured(&a, &b, &mut buffer, work);
    let after = [a.stats().hca, b.stats().hca];
    let n = f64::from(work.n);
    println!("{kind} of {} bytes, each:", work.bytes);
    let stats = a.stats();
    println!(
        "  requests: {:.2}, of which tell: {:.2}",
        (stats.requests - requests.requests) as f64 / n,
        (stats.requests - requests.requests - (stats.silent - requests.silent)) as f64 / n
    );
    for (name, (x, y)) in ["origin", "target"]
        .into_iter()
        .zip(before.iter().zip(&after))
    {
        println!(
            "  {name}: {:.2} send calls, {:.2} receive calls, {:.2} packets sent, {} repeated",
            (y.send_calls - x.send_calls) as f64 / n,
            (y.recv_calls - x.recv_calls) as f64 / n,
            (y.packets_sent - x.packets_sent) as f64 / n,
            y.retransmitted - x.retransmitted
        );
    }
}
