//! A job whose calls are known exactly, for tests that look at what was recorded of it.
//!
//! `seen [slow|killed|set|any]`: each PE sends 64 bytes and a signal to the next one and waits for those from the one before,
//! reads 16 bytes of the next, adds to a word of PE 0, and meets the others ten times. With `slow` the
//! last PE comes late to each of these meetings; with `killed` it is killed in front of them. With `set` all but PE 0 have five broadcasts of their own as an active set, to which the last one
//! comes late, too. With `composed` all call routines that are made of others. With `any` PE 1 waits for one of eight words, of which PE 0 writes the sixth after a while. A put to a PE that does
//! not exist fails, and between two calls of `pcontrol` there are calls that nobody is to see.

use std::time::Duration;

use shmem::{Cmp, SignalOp, raw};

const MEETINGS: usize = 10;
/// Longer than a PE of a loaded machine waits for a processor.
const LATE: Duration = Duration::from_millis(40);

fn main() -> Result<(), shmem::Error> {
    let how = std::env::args().nth(1).unwrap_or_default();
    let world = shmem::init()?;
    let (me, n) = (world.my_pe(), world.n_pes());
    let next = (me + 1) % n;
    let (data, sum) = (shmem::alloc::<u64>(8)?, shmem::alloc::<u64>(1)?);
    let signal = shmem::alloc::<u64>(1)?;

    // So that there is something to wait for.
    if me == 0 {
        std::thread::sleep(LATE);
    }
    shmem::put_signal(data, &[me as u64; 8], signal, 1, SignalOp::Set, next);
    shmem::wait_until(signal, Cmp::Ge, 1);
    let mut two = [0u64; 2];
    shmem::get(&mut two, data.at(2..4), next);
    shmem::atomic_add(sum, 1, 0);
    shmem::quiet();
    // What ends by a panic is not recorded, and all that follows is.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let none = std::panic::catch_unwind(|| shmem::put(data, &[1], n));
    assert!(none.is_err(), "there is no PE {n}");
    std::panic::set_hook(hook);

    shmem::pcontrol(0);
    for _ in 0..100 {
        shmem::put(data.at(7..), &[1], me);
    }
    // Nobody has anything left to do when the last one is killed.
    shmem::sync_all();
    shmem::pcontrol(1);

    if how == "killed" && me + 1 == n {
        // SAFETY: the process's own id; SIGKILL cannot be caught.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    if how == "set" {
        let psync = shmem::alloc::<i64>(raw::SYNC_SIZE)?;
        let sym = |at: *const u64| raw::symmetric(at.cast(), 8).expect("symmetric");
        let psync = raw::symmetric(psync.as_ptr().cast(), 8 * raw::SYNC_SIZE).expect("symmetric");
        let group = raw::Group::ActiveSet {
            start: 1,
            log_stride: 0,
            size: n - 1,
            psync,
        };
        for _ in 0..MEETINGS / 2 {
            if me + 1 == n {
                std::thread::sleep(LATE);
            }
            if me > 0 {
                let (dest, source) = (sym(data.as_ptr()), sym(sum.as_ptr()));
                // SAFETY: a word of each, and an array of the set's own that is zero; a barrier lies between two uses.
                unsafe {
                    raw::broadcast(group, dest, source, 8, n - 2, false);
                    raw::barrier(group);
                }
            }
        }
    }
    if how == "composed" {
        let _ = world.all_gather(me);
        let _ = world.all_gather_parts(&vec![me; me]);
        shmem::alltoallv(&vec![vec![me; 100]; n])?;
        // One at a time.
        let lock = shmem::Lock::new()?;
        drop(lock.lock());
        shmem::barrier_all();
        if me == 0 {
            drop(lock.try_lock().expect("nobody has it"));
        }
    }
    if how == "any" {
        let flags = shmem::alloc::<u64>(8)?;
        match me {
            0 => {
                std::thread::sleep(LATE);
                shmem::p(flags.elem(5), 1, 1);
                shmem::quiet();
            }
            1 => drop(shmem::wait_until_any(flags, None, Cmp::Eq, 1)),
            _ => {}
        }
    }
    for _ in 0..MEETINGS {
        if how == "slow" && me + 1 == n {
            std::thread::sleep(LATE);
        }
        shmem::barrier_all();
    }
    world.finalize();
    Ok(())
}
