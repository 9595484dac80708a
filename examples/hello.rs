//! The smallest program: every PE says who it is.

fn main() {
    shmem::run(|world| {
        assert!(world.my_pe() < world.n_pes());
        println!("Hello from PE {} of {}", world.my_pe(), world.n_pes());
        Ok(())
    });
}
