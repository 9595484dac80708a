//! A token goes round the ring of PEs: each waits for it, adds its own number, and puts it into
//! its right neighbour's memory.

use shmem::Cmp;

const ROUNDS: u64 = 3;

fn main() {
    shmem::run(|world| {
        let (me, n) = (world.my_pe(), world.n_pes());
        let right = (me + 1) % n;
        // What the token carries, and the number of the lap in which it arrived.
        let token = shmem::alloc_value(0u64)?;
        let arrived = shmem::alloc_value(0u64)?;

        let pass = |sum: u64, lap: u64| {
            token.put(sum, right);
            shmem::fence(); // the flag must not overtake the token
            arrived.put(lap, right);
        };

        for lap in 1..=ROUNDS {
            if me == 0 {
                pass(0, lap);
            }
            arrived.wait_until(Cmp::Ge, lap);
            let sum = token.read() + me as u64;
            if me == 0 {
                assert_eq!(sum, (n * (n - 1) / 2) as u64, "lap {lap}");
            } else {
                pass(sum, lap);
            }
        }
        world.barrier();
        if me == 0 {
            println!("the token went {ROUNDS} times round {n} PEs and came back right");
        }
        Ok(())
    });
}
