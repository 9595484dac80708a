//! An operation of a reduction that would differ from PE to PE.

#[shmem::main]
fn main(world: &shmem::World) {
    let factor = world.my_pe() as u64;
    world.reduce_value(1u64, |a, b| a + b * factor);
}
