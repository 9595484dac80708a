//! The protocols between threads, under loom: every interleaving up to a number of preemptions,
//! with the memory model of C11.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p shmem-ib --test loom --release
//! ```
//! Without `--cfg loom` this file is empty. The protocols are the files of `src` themselves,
//! compiled here against loom's atomics; `host` models descriptors and time. Time stands still
//! while a thread runs, and when all sleep it jumps to the first end of a sleep: whatever would
//! be rescued only by that is late, and found.
#![cfg(loom)]

/// What `crate::sync` is for the files of `src`.
mod sync {
    use std::cell::Cell;

    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    std::thread_local! {
        /// What fences of this ordering are weakened to, to see that a model notices. Loom runs all threads of a model on
        /// the one that calls it.
        pub(crate) static WEAK: Cell<Option<(Ordering, Ordering)>> = const { Cell::new(None) };
    }

    pub(crate) fn fence(order: Ordering) {
        match WEAK.get() {
            // No fence at all.
            Some((weakened, Ordering::Relaxed)) if weakened == order => {}
            Some((weakened, weaker)) if weakened == order => loom::sync::atomic::fence(weaker),
            _ => loom::sync::atomic::fence(order),
        }
    }
}
use std::panic::{self, AssertUnwindSafe};

use shmem_ib::verbs::Wake;

#[path = "../../connect/src/endpoint/asleep.rs"]
mod asleep;
#[allow(dead_code, unreachable_pub)] // what is public there is private here
#[path = "../../verbs/src/provider/sleep.rs"]
mod sleep;

mod endpoint;
mod hca;
mod host;
mod xrc;

/// Runs `f` in every interleaving with at most `preemptions` preemptions.
fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 10_000;
    builder.check(f);
}

/// The same with fences of one ordering weakened to another, or to none, which the model has to notice.
fn noticed(
    preemptions: usize,
    weakened: sync::Ordering,
    weaker: sync::Ordering,
    f: impl Fn() + Send + Sync + 'static,
) {
    sync::WEAK.set(Some((weakened, weaker)));
    let found = panic::catch_unwind(AssertUnwindSafe(|| model(preemptions, f)));
    sync::WEAK.set(None);
    assert!(
        found.is_err(),
        "fences that are {weaker:?} do as well as {weakened:?}"
    );
}
