//! Programs that hang: `hangs HOW` with one PE, `hangs HOW PE`, that does not do what the others wait for. For
//! tests of what `shmrun` tells of it. A job of these never ends by itself.

use std::time::Duration;

use shmem::{Cmp, Lock, Team, alloc, barrier_all, g, my_pe, put, wait_until};

/// Does something else for ever, without a core.
fn elsewhere() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

fn main() -> Result<(), shmem::Error> {
    let mut args = std::env::args().skip(1);
    let how = args.next().unwrap_or_default();
    let culprit: usize = args.next().and_then(|pe| pe.parse().ok()).unwrap_or(13);
    match how.as_str() {
        // As "spins", in a thread for which `main` waits, as in a test program.
        "thread" => {
            let thread = std::thread::spawn(move || hang("spins", culprit));
            thread.join().expect("it does not panic")
        }
        how => hang(how, culprit),
    }
}

fn hang(how: &str, culprit: usize) -> Result<(), shmem::Error> {
    if how == "init" && std::env::var("PMI_RANK").is_ok_and(|rank| rank == culprit.to_string()) {
        elsewhere();
    }
    let _world = shmem::init()?;
    let me = my_pe();
    let flags = alloc::<u64>(8)?;
    let lock = Lock::new()?;
    barrier_all();
    match how {
        // It skips a barrier.
        "barrier" if me == culprit => elsewhere(),
        "barrier" => barrier_all(),
        // It computes for ever.
        "spins" if me == culprit => loop {
            std::hint::spin_loop();
        },
        "spins" => barrier_all(),
        // It leaves, while others meet: its finalize is a barrier, too, and so lets them out of the first.
        "leaves" if me == culprit => return Ok(()),
        "leaves" => {
            barrier_all();
            barrier_all();
        }
        // It leaves, while others add up.
        "adds" if me == culprit => return Ok(()),
        "adds" => {
            shmem::reduce(flags, flags, shmem::Sum);
        }
        // It leaves, while another one waits for what nobody will do.
        "forgets" if me == culprit => {
            wait_until(flags.elem(3), Cmp::Ge, 7);
        }
        "forgets" => return Ok(()),
        // It waits for a flag that nobody sets.
        "flag" if me == culprit => {
            wait_until(flags.elem(3), Cmp::Ge, 7);
        }
        "flag" => barrier_all(),
        // It keeps a lock, and waits for the others.
        "lock" if me == culprit => {
            let _held = lock.lock();
            put(flags.elem(1), &[1], 0);
            barrier_all();
        }
        "lock" => {
            // After it.
            if me == 0 {
                wait_until(flags.elem(1), Cmp::Eq, 1);
                for pe in 1..shmem::n_pes() {
                    put(flags.elem(1), &[1], pe);
                }
            } else {
                wait_until(flags.elem(1), Cmp::Eq, 1);
            }
            let _held = lock.lock();
            barrier_all();
        }
        // It waits for a lock that it holds.
        "lock-twice" if me == culprit => drop([lock.lock(), lock.lock()]),
        "lock-twice" => barrier_all(),
        // It is stopped before anybody has been in contact with it.
        "stopped" if me == culprit => {
            // SAFETY: a signal for this process, which stops it.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
        "stopped" => {
            // It has stopped by then, or answers and stops later.
            std::thread::sleep(Duration::from_millis(500));
            let _ = g(flags.elem(0), culprit);
        }
        // It is not where the others of its team are.
        "team" => {
            let world = Team::world();
            let n = shmem::n_pes() as isize;
            let odd = world.split_strided(1, 2, n / 2)?;
            match odd {
                Some(_) if me == culprit => elsewhere(),
                Some(odd) => odd.sync(),
                None => barrier_all(),
            }
        }
        // It never calls init, as the others do.
        "init" => {}
        _ => panic!(
            "hangs barrier | spins | thread | flag | lock | lock-twice | stopped | team | init"
        ),
    }
    elsewhere()
}
