//! Step 1: every PE runs the same program, and knows who it is.

fn main() {
    shmem::run(|world| {
        println!("I am PE {} of {}", world.my_pe(), world.n_pes());
        Ok(())
    });
}
