//! PEs that initialise, meet, and leave: with `shmrun --report -` the cost of being there.
//!
//! The report shows private and proportional memory, taken at the last barrier.

fn main() -> Result<(), shmem::Error> {
    let world = shmem::init()?;
    shmem::barrier_all();
    world.finalize();
    Ok(())
}
