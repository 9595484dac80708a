//! PMI alone, without OpenSHMEM: how processes find each other under any process manager.
//!
//! Runs as `shmrun -n 4 pmi_ring`, `mpiexec.hydra -n 4 pmi_ring`, `srun --mpi=pmi2 -n 4 pmi_ring`, or
//! just `pmi_ring`. Shown three ways: keys with a fence, an allgather that overlaps with work, and a
//! ring.

use shmem_pmi::process::{Process, ProcessError};

fn address(rank: u32) -> String {
    format!("tcp://10.0.0.{}:4711", rank % 256)
}

/// Work that needs no other process.
fn compute(rank: u32) -> u64 {
    (0..100_000).fold(u64::from(rank), |sum, i| {
        sum.wrapping_mul(31).wrapping_add(i)
    })
}

fn main() -> Result<(), ProcessError> {
    let pmi = Process::init()?;
    let (me, n) = (pmi.rank(), pmi.size());
    let right = (me + 1) % n;

    // Keys: put, fence, get of one neighbour.
    pmi.put(&format!("address-{me}"), address(me).as_bytes())?;
    pmi.fence()?;
    let neighbour = pmi.get_of(right, &format!("address-{right}"))?;
    assert_eq!(neighbour, Some(address(right).into_bytes()));

    // Allgathers that are under way while this process works.
    let binary: [u8; 6] = [10, 0, 0, me as u8, 0, 255];
    let mut addresses = pmi.iallgather(&binary)?;
    let sums = pmi.iallgather(&compute(me).to_le_bytes())?;
    while !addresses.test()? {
        std::hint::black_box(compute(me));
    }
    let addresses = addresses.wait()?;
    let sums = sums.wait()?;
    for rank in 0..n {
        let address = [10, 0, 0, rank as u8, 0, 255];
        assert_eq!(addresses.value(rank).as_deref(), Some(&address[..]));
        let sum = compute(rank).to_le_bytes();
        assert_eq!(sums.value(rank).as_deref(), Some(&sum[..]));
    }

    // A ring: two neighbours are all that many programs need.
    let ring = pmi.ring(address(me).as_bytes())?;
    assert_eq!(ring.size, n);
    let known = |value: &[u8]| (0..n).any(|rank| address(rank).as_bytes() == value);
    assert!(known(&ring.left) && known(&ring.right));

    pmi.fence()?;
    if me == 0 {
        println!("{n} processes found each other ({})", pmi.server());
    }
    pmi.finalize()
}
