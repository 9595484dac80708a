//! A reduction of values takes what has a length that the compiler knows.

#[shmem::main]
fn main(world: &shmem::World) {
    let _all = world.sum(vec![1.0; 3]);
}
