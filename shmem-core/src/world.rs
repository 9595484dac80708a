//! Init, finalize, and who am I.

use std::marker::PhantomData;

use crate::error::Error;
use crate::life::{self, ThreadLevel, initialized};
use crate::runtime::rt;

/// The job, from [`init`] to [`World::finalize`] or drop.
///
/// Dropping it finalizes, which is collective. A PE that ends without that (it forgot its `World`,
/// or called `std::process::exit`) would leave the others waiting; the launcher ends the job with a
/// message instead. While the thread panics nothing is finalized, so that a failed PE ends the job
/// too.
///
/// A PE that leaves `main` early with an error does finalize, and waits for the others in it. If
/// they do not come, call [`global_exit`](crate::global_exit) where the error is found.
#[derive(Debug)]
#[must_use = "dropping the World finalizes at once"]
pub struct World {
    /// Finalize belongs to the thread that called init.
    not_send: PhantomData<*const ()>,
}

/// Makes this process a PE of the job. Call it first of all.
///
/// Inits are counted: every one gives a [`World`], and the job is left when the last of them is
/// dropped. After that the process may join its job again, with an empty heap.
///
/// **Collective**, but it waits only for the PEs of the same node, and talks to no other node:
/// addresses are exchanged in the background and connections made when PEs first talk (unless
/// `SHMEM_CONNECT=static`).
///
/// A program that was started without a launcher becomes a job of one PE.
///
/// # Errors
/// When a setting in the environment is wrong; when the process was not started
/// by the `shmrun` that was built with the library, or by another launcher; or when the operating
/// system refuses memory, a socket or a thread.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_init`.
pub fn init() -> Result<World, Error> {
    init_thread(ThreadLevel::Multiple)
}

/// As [`init`], for a program that promises which of its threads call the library. The level in
/// force is [`thread_level`](crate::thread_level): that of the outermost init.
///
/// # Errors
/// As for [`init`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_init_thread`.
pub fn init_thread(requested: ThreadLevel) -> Result<World, Error> {
    life::enter(requested, false)?;
    Ok(World {
        not_send: PhantomData,
    })
}

impl World {
    /// Number of this PE, from 0.
    pub fn my_pe(&self) -> usize {
        my_pe()
    }

    /// Number of PEs in the job.
    pub fn n_pes(&self) -> usize {
        n_pes()
    }

    /// Completes all operations, waits for all PEs, and leaves the job. The same as dropping. Other
    /// functions of the library panic from then on.
    ///
    /// # Panics
    /// If another thread is in a collective.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_finalize`.
    pub fn finalize(self) {}
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() && initialized() {
            life::finalize();
        }
    }
}

/// Number of this PE, from 0 to [`n_pes`] - 1.
///
/// # Panics
/// Before [`init`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_my_pe`.
#[inline]
#[track_caller]
pub fn my_pe() -> usize {
    rt().me
}

/// Number of PEs in the job.
///
/// # Panics
/// Before [`init`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_n_pes`.
#[inline]
#[track_caller]
pub fn n_pes() -> usize {
    rt().n_pes
}

/// Node of `pe`, from 0: PEs with equal numbers share memory.
///
/// # Panics
/// Before [`init`], or if there is no such PE.
#[track_caller]
pub fn node_of(pe: usize) -> usize {
    let rt = rt();
    assert!(
        pe < rt.n_pes,
        "PE {pe} does not exist: this job has PEs 0 to {}",
        rt.n_pes - 1
    );
    rt.node_of[pe] as usize
}
