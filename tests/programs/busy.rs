//! A job that never ends by itself: PEs put, add and meet for ever. For tests that kill it.

use shmem::{alloc, atomic_inc, barrier_all, my_pe, n_pes, put};

fn main() -> Result<(), shmem::Error> {
    // Tells PEs from their template, which has the program's name but never comes here, and whose
    // death after its last fork is none of the job's business.
    std::fs::write("/proc/self/comm", "busy-pe").expect("a process may name itself");
    let _world = shmem::init()?;
    let (me, n) = (my_pe(), n_pes());
    let area = alloc::<u64>(512)?;
    let mut round = 0u64;
    loop {
        put(area, &[round; 511], (me + 1) % n);
        atomic_inc(area.elem(511), (me + n / 2) % n);
        barrier_all();
        round += 1;
        if me == 0 && round.is_power_of_two() {
            println!("round {round}");
        }
    }
}
