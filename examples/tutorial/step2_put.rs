//! Step 2: symmetric memory, which others write without this PE's help.

fn main() {
    shmem::run(|world| {
        let (me, n) = (world.my_pe(), world.n_pes());
        // The same array on every PE, all zero. Collective: all PEs call it.
        let inbox = shmem::alloc::<usize>(2)?;
        // Into the first element of the PE after me, and the second one of the PE before me.
        shmem::p(inbox.elem(0), me, (me + 1) % n);
        shmem::p(inbox.elem(1), me, (me + n - 1) % n);
        // Puts may still be under way. After a barrier those of all PEs have come.
        world.barrier();
        println!(
            "PE {me} lies between {} and {}",
            inbox.read(0),
            inbox.read(1)
        );
        Ok(())
    });
}
