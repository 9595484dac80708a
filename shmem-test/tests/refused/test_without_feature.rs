//! A test of a package that does not ask for the feature `test`.

#[shmem::for_macros::test_without_feature(pes = 4)]
fn adds_up(world: &shmem::World) {
    assert_eq!(world.sum(1), 4);
}

fn main() {}
