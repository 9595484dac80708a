//! Functions that cannot be the test of a job, or its program.

#[shmem::test]
async fn asynchronous() {}

#[shmem::test]
fn two_worlds(_: &shmem::World, _: &shmem::World) {}

#[shmem::test]
fn of_any_type<T>() {}

#[shmem::test]
unsafe fn with_promises() {}

#[shmem::test]
#[test]
fn twice_a_test() {}

#[shmem::test]
#[should_panic]
fn panics_or_fails() -> Result<(), shmem::Error> {
    Ok(())
}

#[shmem::test]
struct NoFunction;

#[shmem::main]
fn elsewhere() {}

#[shmem::main(4)]
fn main() {}
