//! What a PE does that waits for something of which nobody can tell it: it naps between looks, and has MPI go on.

use std::time::Duration;

use shmem_mpi::Mpi;

/// First and longest nap of such a PE, where no more PEs wait than there are cores. The first is about what a round trip
/// through a kernel takes; the last bounds how late a change is seen, and costs a thousandth of a core
/// or two.
pub(crate) const FIRST_NAP: Duration = Duration::from_micros(50);
pub(crate) const LAST_NAP: Duration = Duration::from_millis(1);

/// MPI, where this thread is the one that has it go on while it waits.
pub(crate) fn driven_mpi() -> Option<&'static Mpi> {
    Mpi::known().filter(|mpi| mpi.is_driven_here())
}

/// Cores that this process may use.
pub(crate) fn cores() -> u32 {
    let cores = std::thread::available_parallelism();
    cores.map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}
