//! What connections of its own are worth to a context.
//!
//! `shmrun -n 2 --nodes 2 contexts`: PE 0 measures, PE 1 sleeps in a wait. Each row alternates between contexts
//! that share connections and contexts that have their own. µs, medians and best of rounds, of PE 0:
//! * `alone`: an edge of 256 bytes put with a signal, and quiet, on a context.
//! * `behind`: the same while the default context has a bulk put under way, posted just before.
//! * `bulk`: that put with its quiet, begun before the edge and ended after it.
//! * `get`: a blocking get of 8 bytes in the place of the edge.
//! * `threads`: two threads, each with a private context, put 8 bytes and quiet; the time of one such step.
//!
//! What was put is read back after each round.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use shmem::{Cmp, Context, Private, SignalOp, SymSlice, alloc, barrier_all, context, my_pe};
use shmem_benches::stats::{median, min};

const EDGE: usize = 256 / 8;
const BULKS: [usize; 3] = [64 << 10, 1 << 20, 8 << 20];
const ROUNDS: usize = 200;
const STEPS: usize = 2000;

struct Field {
    edge: SymSlice<u64>,
    come: SymSlice<u64>,
    /// There and here: sent from symmetric memory, as it is registered.
    bulk: SymSlice<u64>,
    /// Edges so far, from 1 on.
    sent: AtomicU64,
}

fn own(yes: bool) -> Context<Private> {
    let new = context().private();
    let new = match yes {
        true => new.own_connections(),
        false => new.shared_connections(),
    };
    let ctx = new.create().expect("there are few");
    assert_eq!(ctx.owns_connections(), yes);
    ctx
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

impl Field {
    fn edge(&self, ctx: &Context<Private>) -> f64 {
        let value = self.sent.fetch_add(1, Ordering::Relaxed);
        let begin = Instant::now();
        ctx.put_signal(self.edge, &[value; EDGE], self.come, 1, SignalOp::Add, 1);
        ctx.quiet();
        micros(begin)
    }

    /// What was put is there.
    fn check(&self) {
        let sent = self.sent.load(Ordering::Relaxed);
        let last = shmem::g(self.edge.elem(EDGE - 1), 1);
        assert_eq!((shmem::g(self.come, 1) + 1, last + 1), (sent, sent));
    }

    fn get(&self, ctx: &Context<Private>) -> f64 {
        let begin = Instant::now();
        let _ = ctx.g(self.edge, 1);
        micros(begin)
    }

    /// What `small` takes behind a bulk put of so many bytes, and what that takes with it.
    fn behind(&self, bytes: usize, small: impl Fn() -> f64) -> (f64, f64) {
        let bulk = self.bulk.at(..bytes / 8);
        let (last, value) = (bulk.elem(bytes / 8 - 1), self.sent.load(Ordering::Relaxed));
        last.write(0, value);
        let begin = Instant::now();
        shmem::put_sym_nbi(bulk, bulk, 1);
        let took = small();
        shmem::quiet();
        let all = micros(begin);
        assert_eq!(shmem::g(last, 1), value);
        (took, all)
    }
}

fn row(what: &str, bytes: usize, samples: [Vec<f64>; 2]) {
    let [shared, own] = samples;
    println!(
        "{what:10} {bytes:>8} {:10.1} {:10.1} {:10.1} {:10.1}",
        median(&shared),
        min(&shared),
        median(&own),
        min(&own)
    );
}

/// One step of two threads that put and quiet, each on its context.
fn threads(field: &Field, yes: bool) -> f64 {
    let barrier = Barrier::new(2);
    let took = std::thread::scope(|scope| {
        let spawn = |i: usize| {
            let (barrier, word) = (&barrier, field.edge.elem(i));
            scope.spawn(move || {
                let ctx = own(yes);
                ctx.p(word, 0, 1);
                ctx.quiet();
                barrier.wait();
                let begin = Instant::now();
                for step in 0..STEPS {
                    ctx.p(word, step as u64, 1);
                    ctx.quiet();
                }
                micros(begin) / STEPS as f64
            })
        };
        let both = [spawn(0), spawn(1)];
        both.map(|thread| thread.join().expect("no panics"))
    });
    took[0].max(took[1])
}

fn main() -> Result<(), shmem::Error> {
    let _world = shmem::init()?;
    let field = Field {
        edge: alloc(EDGE)?,
        come: alloc(1)?,
        bulk: alloc(BULKS[BULKS.len() - 1] / 8)?,
        sent: AtomicU64::new(1),
    };
    let over = alloc::<u64>(1)?;
    if my_pe() != 0 {
        shmem::wait_until(over, Cmp::Eq, 1);
        barrier_all();
        return Ok(());
    }
    println!(
        "{:10} {:>8} {:>10} {:>10} {:>10} {:>10}",
        "", "bytes", "shared, µs", "best", "own, µs", "best"
    );
    let pair = [own(false), own(true)];
    let each = |small: &dyn Fn(&Context<Private>) -> f64| {
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS + 10 {
            for (ctx, samples) in pair.iter().zip(&mut samples) {
                let took = small(ctx);
                field.check();
                if round >= 10 {
                    samples.push(took);
                }
            }
        }
        samples
    };
    field.edge(&pair[0]);
    row("alone", 0, each(&|ctx| field.edge(ctx)));
    for bytes in BULKS {
        row(
            "behind",
            bytes,
            each(&|ctx| field.behind(bytes, || field.edge(ctx)).0),
        );
        row(
            "bulk",
            bytes,
            each(&|ctx| field.behind(bytes, || field.edge(ctx)).1),
        );
        row(
            "get",
            bytes,
            each(&|ctx| field.behind(bytes, || field.get(ctx)).0),
        );
    }
    drop(pair);
    let mut samples = [Vec::new(), Vec::new()];
    for _ in 0..15 {
        for (yes, samples) in [false, true].into_iter().zip(&mut samples) {
            samples.push(threads(&field, yes));
        }
    }
    row("threads", 8, samples);
    shmem::p(over, 1, 1);
    barrier_all();
    Ok(())
}
