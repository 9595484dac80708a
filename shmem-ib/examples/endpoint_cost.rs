//! What an endpoint costs that is opened, registered and closed, as each PE of a job does: CPU
//! time in microseconds, alone and with one peer that it has written to.
//!
//! `cargo run --release --example endpoint_cost [rounds]`

use std::sync::Arc;
use std::time::Duration;

use shmem_ib::connect::UdAddress;
use shmem_ib::connect::endpoint::{Directory, Endpoint, EndpointConfig, Lookup, Source};
use shmem_ib::soft::{SoftConfig, SoftHca};
use shmem_ib_kit::job::Plain;

/// Two PEs that know each other's address.
struct Pair([UdAddress; 2]);

impl Directory for Pair {
    fn lookup(&self, pe: u32) -> Lookup {
        self.0
            .get(pe as usize)
            .map_or(Lookup::Pending, |a| Lookup::Ready(*a))
    }

    fn wait(&self, _: u32, _: Duration) {}
}

/// CPU time of this process, in microseconds.
fn cpu() -> f64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is alive.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut t) };
    t.tv_sec as f64 * 1e6 + t.tv_nsec as f64 / 1e3
}

fn open(pe: u32, memory: &mut [u64]) -> Arc<Endpoint<SoftHca>> {
    let hca = SoftHca::open(&SoftConfig::loopback(pe.into())).expect("the loopback is there");
    let config = EndpointConfig {
        pe,
        n_pes: 2,
        spin_rounds: 0,
        ..EndpointConfig::default()
    };
    let endpoint = Endpoint::new(Arc::new(hca), config).expect("the settings are good");
    let len = size_of_val(memory);
    // SAFETY: the memory outlives the endpoints of `main`, and nobody borrows it meanwhile.
    unsafe { endpoint.register(memory.as_mut_ptr().cast(), len) }.expect("it is the first");
    endpoint
}

fn main() {
    let rounds: u32 = std::env::args()
        .nth(1)
        .map_or(1000, |n| n.parse().expect("a number of rounds"));
    let mut memory = [vec![0; 512], vec![0; 512]];

    // As in a job, this is not the only one of its kind: what the first and the last socket with
    // receive offload cost the kernel is paid once.
    let _other = SoftHca::open(&SoftConfig::loopback(9)).expect("the loopback is there");

    let began = cpu();
    let mut in_close = 0.0;
    for _ in 0..rounds {
        let endpoint = open(0, &mut memory[0]);
        let closing = cpu();
        endpoint.close();
        drop(endpoint);
        in_close += cpu() - closing;
    }
    let each = |total: f64| total / f64::from(rounds);
    let total = cpu() - began;
    println!(
        "alone: {:.1} us, of that close and drop {:.1} us",
        each(total),
        each(in_close)
    );

    let rounds = rounds / 4;
    let began = cpu();
    for _ in 0..rounds {
        let [a, b] = [open(0, &mut memory[0]), open(1, &mut memory[1])];
        let pair = Arc::new(Pair([a.ud_address(), b.ud_address()]));
        a.set_directory(Arc::clone(&pair) as Arc<dyn Directory>);
        b.set_directory(pair);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let value = 7_u64;
                // SAFETY: the source may go as soon as this returns.
                unsafe { a.put(1, 0, (&raw const value).cast(), 8, Source::UntilReturn) }
                    .expect("b answers");
                a.quiet().expect("b answers");
                a.close();
            });
            while b.stats().hca.rdma_inbound == 0 {
                b.progress_wait(Duration::from_millis(100));
            }
            b.close();
        });
    }
    let total = cpu() - began;
    println!(
        "with a peer that is written to: {:.1} us per PE",
        total / f64::from(rounds) / 2.0
    );
}
