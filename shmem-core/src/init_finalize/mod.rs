//! Init, finalize, and the end of the process.
//!
//! * This file: which init and which finalize are the outermost ones, and what the exit has to do.
//! * [`life`]: what the outermost ones do, step by step; [`again`]: and where it is not the first time.
//! * [`exit`]: the end of the whole job from one PE.
//! * [`report`], [`messages`]: what is measured and said of it.
//!
//! Init and finalize come in pairs, of which the outermost one makes the process a PE; the inner
//! ones only count (and their finalize is a barrier). After the outermost finalize the process may
//! become the same PE of the same job again.
//!
//! Finalize waits for the other PEs, and a program that returns from `main` need not call it. Whether it
//! returns in order shows in the status that it exits with, and not before: a `World` is dropped in
//! the same way when `main` gives an error. So finalizes that are left over are done by the exit handler,
//! if the status is 0; with any other the launcher ends the job.

mod again;
mod exit;
mod life;
mod messages;
mod report;

use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, Once};

use shmem_node::sys;
use shmem_node::waiting::Collective;

pub use self::exit::global_exit;
use crate::attach::{self, Attached, Start, attached, exit_ends_job, process_exits};
use crate::collectives::{collective, named};
use crate::error::Error;
use crate::fault;
use crate::runtime::{ThreadLevel, try_rt};
use crate::team::Team;
use crate::unique_id::UniqueId;

/// Status of a process that panics in its exit handler: that of a panic in `main`.
const FAILED: i32 = 101;

/// Inits that have no finalize yet, by what is to end them.
#[derive(Debug)]
struct Inits {
    /// Addresses and byte counts, as C has them: a call, or else the exit.
    raw: usize,
    /// A [`World`](crate::World) that lives.
    worlds: usize,
    /// One that was dropped: the exit.
    dropped: usize,
}

/// Held through the outermost init and finalize, so that a thread that initialises meanwhile waits for
/// their end.
static INITS: Mutex<Inits> = Mutex::new(Inits {
    raw: 0,
    worlds: 0,
    dropped: 0,
});

fn inits() -> MutexGuard<'static, Inits> {
    INITS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Selects a kind of inits.
type Kind = fn(&mut Inits) -> &mut usize;

impl Inits {
    fn all(&self) -> usize {
        self.raw + self.worlds + self.dropped
    }

    /// Whether nobody but the exit is going to finalize.
    fn are_over(&self) -> bool {
        self.raw + self.worlds == 0
    }
}

/// Finalizes one of a kind, of which there is one at least. The lock is free while an inner one waits: other
/// threads may initialise.
#[track_caller]
fn finalize_of(mut inits: MutexGuard<'static, Inits>, kind: Kind) -> MutexGuard<'static, Inits> {
    if fault::exits() {
        named("finalize at the end of main");
    }
    if inits.all() > 1 {
        *kind(&mut inits) -= 1;
        drop(inits);
        Team::world().barrier();
        return self::inits();
    }
    if let Some(rt) = try_rt() {
        life::leaves(rt);
    }
    life::end(collective(Collective::Finalize, |said| said));
    *kind(&mut inits) = 0;
    inits
}

/// Finalizes all of a kind.
#[track_caller]
fn finalize_all(mut inits: MutexGuard<'static, Inits>, kind: Kind) -> MutexGuard<'static, Inits> {
    while *kind(&mut inits) > 0 {
        inits = finalize_of(inits, kind);
    }
    inits
}

/// Makes this process a PE of its job, or counts if it is one. Gives the level of thread support,
/// which is that of the outermost init.
///
/// **Collective**. Waits for the PEs of the same node only. It may follow the last [`finalize`].
///
/// The outermost init makes the static data of the main program symmetric, if the launcher has left
/// room for it (`SHMEM_STATICS_SIZE`): no other thread may write static data meanwhile.
///
/// # Errors
/// As for [`crate::init`].
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_init`, `shmem_init_thread`.
#[track_caller]
pub fn init(requested: ThreadLevel) -> Result<ThreadLevel, Error> {
    enter(requested, true, None, |inits| &mut inits.raw)
}

/// As [`init`], as PE `rank` of the `n_pes` of an id's job, without a launcher.
///
/// # Errors
/// As for [`crate::init_from`].
#[track_caller]
pub fn init_from(
    id: &UniqueId,
    rank: usize,
    n_pes: usize,
    requested: ThreadLevel,
) -> Result<ThreadLevel, Error> {
    let start = Start::new(&id.0, rank, n_pes)?;
    enter(requested, true, Some(&start), |inits| &mut inits.raw)
}

/// The init of a [`World`](crate::World), which leaves static data alone.
#[track_caller]
pub(crate) fn init_world(
    requested: ThreadLevel,
    start: Option<&Start>,
) -> Result<ThreadLevel, Error> {
    enter(requested, false, start, |inits| &mut inits.worlds)
}

#[track_caller]
fn enter(
    requested: ThreadLevel,
    statics: bool,
    start: Option<&Start>,
    kind: Kind,
) -> Result<ThreadLevel, Error> {
    let mut inits = inits();
    attach::check_same_job(start)?;
    if inits.are_over() {
        inits = finalize_all(inits, |inits| &mut inits.dropped);
    }
    if inits.all() == 0 {
        stay_loaded();
        life::begin(requested, statics, start)?;
        register_at_exit();
    }
    *kind(&mut inits) += 1;
    Ok(thread_level().unwrap_or(requested))
}

/// Undoes one [`init`]. The last one completes all operations, waits for all PEs, frees the heap
/// and leaves the job; the others are barriers. Without an init nothing happens.
///
/// **Collective**. Called by the thread that called init. A process that exits with status 0, as by
/// returning from `main`, does what is left of it then.
///
/// No other thread may be in a call of the library meanwhile: one that waits for operations, as at the end of
/// [`nbi`](crate::nbi), may find the network closed, and that ends the job with an error.
///
/// # Panics
/// If another thread is in a collective.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_finalize`.
#[track_caller]
pub fn finalize() {
    finalize_one(|inits| &mut inits.raw);
}

/// Undoes one [`init_world`], whose [`World`](crate::World) is no more.
#[track_caller]
pub(crate) fn finalize_world() {
    finalize_one(|inits| &mut inits.worlds);
}

#[track_caller]
fn finalize_one(kind: Kind) {
    let mut inits = inits();
    if *kind(&mut inits) == 0 {
        return;
    }
    let inits = finalize_of(inits, kind);
    if inits.are_over() {
        drop(finalize_all(inits, |inits| &mut inits.dropped));
    }
}

/// Leaves the finalize of a [`World`](crate::World) that is no more to the exit. Waits for nobody.
pub(crate) fn drop_world() {
    let mut inits = inits();
    inits.worlds -= 1;
    inits.dropped += 1;
}

/// Whether this process is a PE: between init and the matching finalize. Any thread may ask at any
/// time.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_query_initialized`.
#[must_use]
pub fn initialized() -> bool {
    try_rt().is_some()
}

/// The level of thread support, if this process is a PE. Any thread may ask at any time.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_query_thread`.
#[must_use]
pub fn thread_level() -> Option<ThreadLevel> {
    try_rt().map(|rt| rt.threads.level())
}

/// Initialises, unless this process is a PE.
///
/// **Collective**, and so is the exit that finalizes.
///
/// # Errors
/// As for [`init`].
///
/// # Spec
/// OpenSHMEM 1.6, `start_pes` (deprecated).
#[track_caller]
pub fn start_pes() -> Result<(), Error> {
    match initialized() {
        true => Ok(()),
        false => init(ThreadLevel::Single).map(drop),
    }
}

/// Keeps the shared object that has this library in the process: its threads and the handlers that the C library calls at
/// exit and fork are in there. Without this a program that closes a plugin in Rust would unmap them. libshmem.so is linked
/// to stay.
fn stay_loaded() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (mut own, mut program) = (
            MaybeUninit::<libc::Dl_info>::zeroed(),
            MaybeUninit::zeroed(),
        );
        let here = stay_loaded as *const () as *const libc::c_void;
        // SAFETY: an address of this object, and one of the program's, of which the C library says where they
        // belong; the name that it gives is text and stays as long as the object does.
        unsafe {
            let start = libc::getauxval(libc::AT_PHDR) as *const libc::c_void;
            if libc::dladdr(here, own.as_mut_ptr()) == 0 {
                return;
            }
            let own = own.assume_init();
            let is_program = libc::dladdr(start, program.as_mut_ptr()) != 0
                && program.assume_init().dli_fbase == own.dli_fbase;
            if !is_program && !own.dli_fname.is_null() {
                libc::dlopen(
                    own.dli_fname,
                    libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
                );
            }
        }
    });
}

/// Has the C library call [`at_exit`]. Done by the first init, so that what the program registers
/// later runs before it.
fn register_at_exit() {
    unsafe extern "C" {
        fn on_exit(
            run: extern "C" fn(libc::c_int, *mut libc::c_void),
            with: *mut libc::c_void,
        ) -> libc::c_int;
    }
    static ONCE: Once = Once::new();
    // SAFETY: the function is the C library's; the handler uses no argument and does not unwind.
    ONCE.call_once(|| unsafe {
        on_exit(at_exit, std::ptr::null_mut());
    });
}

/// What the library does when the process exits in order.
extern "C" fn at_exit(status: libc::c_int, _: *mut libc::c_void) {
    fault::exit_has_begun();
    if exit::ends_job() {
        fault::flush_all();
        exit::tell_launcher(status);
        return;
    }
    // A child that the PE has forked inherits this handler.
    let own = attached().is_some_and(Attached::is_own_process);
    if status != 0 && own {
        keep_status();
    }
    if status == 0 && own {
        let finalized = std::panic::catch_unwind(finalize_at_exit);
        if finalized.is_err() {
            // The panic has said why. No handler of the C library may unwind.
            sys::end_at_once(FAILED);
        }
    }
    if exit_ends_job() {
        // The launcher may end this process before the C library comes to that. A stream may be in
        // use for ever, by a thread that waits for input.
        fault::at_timeout(move || process_exits(status));
        fault::flush_all();
    }
    process_exits(status);
}

/// Peers see connections close while this process has yet to exit, and may end the job by failing. Its status, which is why
/// they do, must not become that of SIGTERM; what then takes longer than the grace period meets SIGKILL.
fn keep_status() {
    // SAFETY: no handler function of this library is involved; the program's own is put back.
    unsafe {
        let was = libc::signal(libc::SIGTERM, libc::SIG_IGN);
        if was != libc::SIG_DFL {
            libc::signal(libc::SIGTERM, was);
        }
    }
}

/// Does what is left to finalize, when the process exits in order. Where a [`World`](crate::World) is not
/// dropped yet the program did not come to its end, and the launcher ends the job.
fn finalize_at_exit() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    let inits = inits();
    if inits.worlds > 0 || inits.all() == 0 {
        return;
    }
    // If one of the others fails, this process is ended while it waits, and what it has said would be
    // lost. Other streams may be in use for ever.
    // SAFETY: the C library's own stream.
    unsafe { libc::fflush(stdout) };
    if let Some(rt) = try_rt() {
        rt.threads.become_main();
    }
    let inits = finalize_all(inits, |inits| &mut inits.raw);
    drop(finalize_all(inits, |inits| &mut inits.dropped));
}
