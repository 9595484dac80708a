//! A context that is one thread's.

#[shmem::main]
fn main() -> Result<(), shmem::Error> {
    let context = shmem::context().private().create()?;
    std::thread::spawn(move || context.quiet());
    Ok(())
}
