//! The user's handle to the job, [`World`]; a whole program as one function, [`run`]; and who and where
//! PEs are.

use std::error::Error as StdError;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::attach::Start;
use crate::error::Error;
use crate::fault;
use crate::init_finalize;
use crate::runtime::{ThreadLevel, rt};
use crate::team::Team;
use crate::unique_id::UniqueId;

/// The job, from [`init`] to its end.
///
/// Finalize is collective: it waits for all PEs. [`World::finalize`] does it at once. Dropping a `World`
/// waits for nobody: it says that this part of the program is done with the library. What it leaves is
/// finalized when the process exits in order, which is with status 0, as by returning from `main`
/// without an error; or when it initialises again. Until then the process remains a PE.
///
/// So an error that `main` returns is printed, and ends the job as every failure of a PE does:
///
/// ```no_run
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let _world = shmem::init()?;
///     let input = std::fs::read("input")?; // does not wait for PEs that have found theirs
///     println!("{} bytes", input.len());
///     Ok(())
/// }
/// ```
///
/// A PE that ends with a `World` that was not dropped (it forgot it, or called `std::process::exit`, or the
/// drop was part of a panic) would leave the others waiting; the launcher ends the job with a message
/// instead.
#[derive(Debug)]
#[must_use = "without its World a program is done with the library"]
pub struct World {
    /// Finalize belongs to the thread that called init.
    not_send: PhantomData<FinalizesOnItsOwnThread>,
}

/// Why a [`World`] is not shared among threads: the compiler names this type. Threads take [`Team::world`] instead, or the
/// functions of the crate.
#[derive(Debug)]
struct FinalizesOnItsOwnThread(#[allow(dead_code)] *const ());

/// Makes this process a PE of the job. Call it first of all.
///
/// Inits are counted: every one gives a [`World`], and the job is left when the last of them is
/// finalized. After that the process may join its job again, with an empty heap; where all have been
/// dropped, init finalizes first, and begins anew.
///
/// **Collective**, but it waits only for the PEs of the same node, and talks to no other node:
/// addresses are exchanged in the background and connections made when PEs first talk (unless
/// `SHMEM_CONNECT=static`).
///
/// A program that was started without a launcher becomes a job of one PE, unless it has the id of a job ([`init_from`]).
///
/// # Errors
/// When a setting in the environment is wrong; when the process was not started
/// by the `shmrun` that was built with the library, or by another launcher; or when the operating
/// system refuses memory, a socket or a thread.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_init`.
#[doc(alias = "MPI_Init")]
#[track_caller]
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
#[track_caller]
pub fn init_thread(requested: ThreadLevel) -> Result<World, Error> {
    init_finalize::init_world(requested, None)?;
    Ok(World {
        not_send: PhantomData,
    })
}

/// Makes this process PE `rank` of a job of `n_pes` processes that share nothing but an id: **without a
/// launcher**. Which of them share memory is found out; several machines will do.
///
/// A job of one PE:
///
/// ```
/// let id = shmem::UniqueId::new()?;
/// let world = shmem::init_from(&id, 0, 1)?;
/// assert_eq!((world.my_pe(), world.n_pes()), (0, 1));
/// world.finalize();
/// # Ok::<(), shmem::Error>(())
/// ```
///
/// And one of four, whose processes are started by whatever means, each with its rank and what PE 0 has told:
///
/// ```no_run
/// # fn broadcast(_: Option<[u8; 128]>) -> [u8; 128] { [0; 128] }
/// # let rank = 0;
/// let made = (rank == 0).then(shmem::UniqueId::new).transpose()?;
/// let bytes = broadcast(made.map(|id| id.to_bytes())); // a file, MPI_Bcast, a key-value store
/// let id = shmem::UniqueId::from_bytes(&bytes)?;
/// let world = shmem::init_from(&id, rank, 4)?;
/// # Ok::<(), shmem::Error>(())
/// ```
///
/// All else is as after [`init`]. A program that only calls `init` becomes a PE of such a job, too, if
/// the variables `SHMEM_UNIQUE_ID`, `RANK` and `WORLD_SIZE` are set.
///
/// **Collective**: waits until all `n_pes` processes have come, at most as long as `SHMEM_INIT_TIMEOUT` says. When a
/// process ends without finalize, or the one that listens does, all others are told and end.
///
/// # Errors
/// As for [`init`]; PE 0 cannot be reached, or has another key; `rank` is not below `n_pes`, or taken; processes
/// differ in `n_pes`, or do not come in time, or end: all of them are told which. This process has been a PE of another
/// job.
#[track_caller]
pub fn init_from(id: &UniqueId, rank: usize, n_pes: usize) -> Result<World, Error> {
    init_thread_from(id, rank, n_pes, ThreadLevel::Multiple)
}

/// As [`init_from`], for a program that promises which of its threads call the library, as
/// [`init_thread`] takes it.
///
/// # Errors
/// As for [`init_from`].
#[track_caller]
pub fn init_thread_from(
    id: &UniqueId,
    rank: usize,
    n_pes: usize,
    requested: ThreadLevel,
) -> Result<World, Error> {
    let start = Start::new(&id.0, rank, n_pes)?;
    init_finalize::init_world(requested, Some(&start))?;
    Ok(World {
        not_send: PhantomData,
    })
}

/// Runs a program as a PE of the job, from [`init`] to finalize, and gives what it gives.
///
/// ```no_run
/// shmem::run(|world| {
///     let input = std::fs::read(format!("input.{}", world.my_pe()))?;
///     let total = shmem::alloc::<u64>(1)?;
///     shmem::atomic_add(total, input.len() as u64, 0);
///     world.barrier();
///     Ok(())
/// });
/// ```
///
/// An error waits for nobody: it is told with what caused it and with the PE, once if many PEs have the
/// same, and ends the whole job with status 1. So does one of [`init`] itself. Every error converts into a
/// `Box<dyn Error>` by `?`, those of `anyhow` too, and strings do.
///
/// A panic is printed with the PE. If the program does not catch it, it ends the job. The panic of another thread ends that
/// thread only: the job ends if the program joins it and panics in turn (`join().unwrap()`, `std::thread::scope`).
/// PEs that wait for what a thread would have done wait for ever.
///
/// **Collective**: when the program has come to its end, all PEs are waited for, as by [`World::finalize`].
///
/// # Panics
/// If `program` panics; if it ends while another thread is in a collective.
#[track_caller]
pub fn run<T>(program: impl FnOnce(&World) -> Result<T, Box<dyn StdError>>) -> T {
    let world = init().unwrap_or_else(|e| failed(&e));
    let made = program(&world).unwrap_or_else(|e| failed(&*e));
    world.finalize();
    made
}

/// Tells the error, and what caused it unless it has said so itself, and ends the job.
fn failed(error: &dyn StdError) -> ! {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(why) = cause {
        let why_text = why.to_string();
        if !text.contains(&why_text) {
            text += ": ";
            text += &why_text;
        }
        cause = why.source();
    }
    fault::fail(&text)
}

/// The team of all PEs: `world.my_pe()`, `world.barrier()`, `world.broadcast(…)`.
impl Deref for World {
    type Target = Team;

    #[track_caller]
    fn deref(&self) -> &Team {
        Team::world()
    }
}

impl World {
    /// Completes all operations, waits for all PEs, and leaves the job. Other functions of the library
    /// panic from then on. Where other `World`s live it is a barrier.
    ///
    /// **Collective**.
    ///
    /// # Panics
    /// If another thread is in a collective.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_finalize`.
    #[track_caller]
    pub fn finalize(self) {
        std::mem::forget(self);
        init_finalize::finalize_world();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            init_finalize::drop_world();
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
#[doc(alias = "MPI_Comm_rank")]
#[inline]
#[track_caller]
#[must_use]
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
#[doc(alias = "MPI_Comm_size")]
#[inline]
#[track_caller]
#[must_use]
pub fn n_pes() -> usize {
    rt().n_pes
}

/// Node of `pe`, from 0: PEs with equal numbers share memory.
///
/// # Panics
/// Before [`init`], or if there is no such PE.
#[track_caller]
#[must_use]
pub fn node_of(pe: usize) -> usize {
    let rt = rt();
    assert!(
        pe < rt.n_pes,
        "PE {pe} does not exist: this job has PEs 0 to {}",
        rt.n_pes - 1
    );
    rt.nodes.node_of[pe] as usize
}
