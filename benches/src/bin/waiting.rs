//! What it costs that many PEs wait for one: the first PE sleeps, the others wait for it, and then all
//! tell the processor time that they took for that.
//!
//! `waiting word|barrier|silent SECONDS`: the others wait for a word that the first PE puts, in a
//! barrier, or for a word that it stores through a pointer where it can, so that nobody rings. With
//! `shmrun --report -`: how often they looked.

use std::time::{Duration, Instant};

use shmem::{Cmp, Sum, alloc, barrier_all, my_pe, n_pes, p, reduce, wait_until};
use shmem_node::sys::process_cpu_ns;

fn main() -> Result<(), shmem::Error> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, how, seconds] = &arguments[..] else {
        panic!("usage: waiting word|barrier|silent SECONDS");
    };
    let time = Duration::from_secs_f64(seconds.parse().expect("a number of seconds"));
    let _world = shmem::init()?;
    let (word, used) = (alloc::<u64>(1)?, alloc::<u64>(1)?);
    barrier_all();

    let (start, before) = (Instant::now(), process_cpu_ns());
    if my_pe() == 0 {
        std::thread::sleep(time);
        match how.as_str() {
            "word" => (1..n_pes()).for_each(|pe| p(word, 1, pe)),
            "silent" => (1..n_pes()).for_each(|pe| store(word, pe)),
            "barrier" => {}
            other => panic!("there is no way to wait called {other}"),
        }
    } else if how != "barrier" {
        wait_until(word, Cmp::Eq, 1);
    }
    barrier_all();
    used.write(0, process_cpu_ns() - before);
    let passed = start.elapsed();
    reduce(used, used, Sum);
    if my_pe() == 0 {
        let used = Duration::from_nanos(used.read(0));
        let share = 100.0 * used.as_secs_f64() / passed.as_secs_f64();
        println!(
            "{} PEs waited {} ms ({how}), and used {} ms of processor time: {share:.2} % of a core",
            n_pes(),
            passed.as_millis(),
            used.as_millis(),
        );
    }
    Ok(())
}

/// A store that rings no bell, where that is possible.
fn store(word: shmem::SymSlice<u64>, pe: usize) {
    match word.ptr(pe) {
        // SAFETY: a word of another PE, which only loads it by atomics.
        Some(at) => unsafe { std::sync::atomic::AtomicU64::from_ptr(at) }
            .store(1, std::sync::atomic::Ordering::Release),
        None => p(word, 1, pe),
    }
}
