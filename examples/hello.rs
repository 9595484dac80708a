//! The smallest program: every PE says who it is.

fn main() -> Result<(), shmem::Error> {
    let world = shmem::init()?;
    assert!(world.my_pe() < world.n_pes());
    println!("Hello from PE {} of {}", world.my_pe(), world.n_pes());
    Ok(())
}
