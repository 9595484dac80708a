//! Buffers of non-blocking operations that are changed, read or freed too early.

#[shmem::main]
fn main() -> Result<(), shmem::Error> {
    let array = shmem::alloc::<u64>(4)?;
    let mut source = vec![1u64; 4];
    shmem::nbi(|nbi| {
        nbi.put(array, &source, 0);
        source[0] = 2;
    });
    let mut target = [0u64; 4];
    shmem::nbi(|nbi| {
        nbi.get(&mut target, array, 0);
        println!("{target:?}");
    });
    shmem::nbi(|nbi| {
        let short = [1u64; 4];
        nbi.put(array, &short, 0);
    });
    Ok(())
}
