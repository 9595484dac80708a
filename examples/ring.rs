//! A token goes round the ring of PEs: each waits for it, adds its own number, and puts it into
//! its right neighbour's memory.

use shmem::{Cmp, barrier_all, my_pe, n_pes, p, wait_until};

const ROUNDS: u64 = 3;

fn main() -> Result<(), shmem::Error> {
    let _world = shmem::init()?;
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    // What the token carries, and the number of the lap in which it arrived.
    let token = shmem::alloc::<u64>(1)?;
    let arrived = shmem::alloc::<u64>(1)?;

    let pass = |sum: u64, lap: u64| {
        p(token, sum, right);
        shmem::fence(); // the flag must not overtake the token
        p(arrived, lap, right);
    };

    for lap in 1..=ROUNDS {
        if me == 0 {
            pass(0, lap);
        }
        wait_until(arrived, Cmp::Ge, lap);
        let sum = token.read(0) + me as u64;
        if me == 0 {
            assert_eq!(sum, (n * (n - 1) / 2) as u64, "lap {lap}");
        } else {
            pass(sum, lap);
        }
    }
    barrier_all();
    if me == 0 {
        println!("the token went {ROUNDS} times round {n} PEs and came back right");
    }
    Ok(())
}
