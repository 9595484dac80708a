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
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shmem_testkit::models::fence;
}

/// How long threads poll before they sleep: not at all, because polling only adds interleavings.
mod spin {
    pub(crate) const YIELD_ROUNDS: u32 = 0;

    pub(crate) fn offer_core() {
        loom::thread::yield_now();
    }

    pub(crate) struct SpinLimit;
    pub(crate) struct Spin;

    impl SpinLimit {
        pub(crate) fn spin(&self) -> Spin {
            Spin
        }
        pub(crate) fn again(&self, _: &mut Spin) -> bool {
            false
        }
    }
    impl Spin {
        pub(crate) fn renew(&mut self) {}
        pub(crate) fn succeeded(&self) {}
    }
}

use shmem_ib::verbs::Wake;

#[allow(dead_code, unreachable_pub)] // what is public there is private here
#[path = "../../verbs/src/provider/sleep.rs"]
mod sleep;

mod endpoint;
mod hca;
mod host;
mod xrc;
