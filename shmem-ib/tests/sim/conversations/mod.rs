//! Long conversations of two or three HCAs on a network that loses up to half of all packets,
//! doubles and reorders them and delays them at random; in most of them long requests go by streams, which are refused and break.
//!
//! A conversation is a few connections with thousands of READs, WRITEs and atomics in both
//! directions, checked against `sim::Reference`: the values that were read and fetched, memory at
//! the end, completions in order and once, atomics executed once. Time is virtual.
//!
//! `SHMEM_SIM_CONVERSATIONS=1000000` runs more, on all processors; `SHMEM_SIM_SEED=n` replays one.
//! With many, run the release build: `cargo test --release -p shmem-ib --test sim conversations::`.

mod conversation;

use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conversation::{Conversation, Tally};
use shmem_testkit::seeds;

fn report(tally: &Tally, elapsed: Duration) {
    let rate = tally.ops as f64 / elapsed.as_secs_f64();
    println!(
        "{} conversations in {:.1} s: {} operations ({rate:.0} a second), {} packets, {} lost, \
         {} doubled, {} sent again, {} streams, {} broken, {} bytes by streams, {:.0} s of virtual time",
        tally.conversations,
        elapsed.as_secs_f64(),
        tally.ops,
        tally.packets,
        tally.lost,
        tally.doubled,
        tally.again,
        tally.streams,
        tally.broken,
        tally.by_stream,
        tally.virtual_ns as f64 / 1e9,
    );
}

#[test]
fn conversations_match_the_reference() {
    let (from, to) = match seeds::single() {
        Some(seed) => (seed, seed + 1),
        None => {
            let wanted = seeds::number("SHMEM_SIM_CONVERSATIONS");
            (0, wanted.unwrap_or_else(|| seeds::count(24, 100)))
        }
    };
    let next = AtomicU64::new(from);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Tally::default());
    let failure = Mutex::new(None);
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to {
                        break;
                    }
                    let outcome = catch_unwind(|| Conversation::new(seed).run());
                    match outcome.unwrap_or_else(|_| Err("a panic, see above".into())) {
                        Ok(tally) => {
                            let mut total = total.lock().unwrap();
                            *total += tally;
                            if total.conversations.is_multiple_of(10_000) {
                                report(&total, began.elapsed());
                            }
                        }
                        Err(what) => {
                            stop.store(true, Ordering::Relaxed);
                            *failure.lock().unwrap() = Some((seed, what));
                        }
                    }
                }
            });
        }
    });
    let total = total.into_inner().unwrap();
    report(&total, began.elapsed());
    if let Some((seed, what)) = failure.into_inner().unwrap() {
        panic!("{what}\n{}", seeds::how_to_repeat(seed));
    }
    assert_eq!(total.conversations, to - from);
    assert!(total.ops >= 1000 * total.conversations);
}
