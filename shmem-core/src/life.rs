//! From the first init to the last finalize, and again: counting, thread levels, the end of the job.
//!
//! Init and finalize come in pairs, of which the outermost one makes the process a PE; the inner
//! ones only count (and their finalize is a barrier). After the outermost finalize the process may
//! become the same PE of the same job again.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once};
use std::time::Duration;

use shmem_node::pe_block::PeState;

use crate::bootstrap;
use crate::error::Error;
use crate::runtime::{collective, rt, try_rt};
use crate::tell;

/// Which threads of a PE call the library. The numbers are C's.
///
/// # Spec
/// OpenSHMEM 1.6, `SHMEM_THREAD_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ThreadLevel {
    /// The process has one thread.
    Single = 0,
    /// Only the thread that called init.
    Funneled = 1,
    /// Any, one at a time.
    Serialized = 2,
    /// Any, all at once.
    Multiple = 3,
}

impl ThreadLevel {
    /// The level with C's number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Single),
            1 => Some(Self::Funneled),
            2 => Some(Self::Serialized),
            3 => Some(Self::Multiple),
            _ => None,
        }
    }
}

/// What has no level yet.
const NO_LEVEL: u8 = u8::MAX;

/// The level in force. Read by any thread at any time.
static LEVEL: AtomicU8 = AtomicU8::new(NO_LEVEL);

/// Whether the end of the process is to be that of the job: set by [`global_exit`].
static ENDS_JOB: AtomicBool = AtomicBool::new(false);

/// The process whose end finalizes, if there is one: set by [`start_pes`]. A child that it forks inherits
/// the exit handler, but is no PE.
static FINALIZES: AtomicU32 = AtomicU32::new(0);

/// How long the exit handlers of a program may keep the others from their end.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);

/// Inits that have no finalize yet. Held through the outermost init and finalize, so that a thread
/// that initialises meanwhile waits for their end.
static COUNT: Mutex<usize> = Mutex::new(0);

fn count() -> MutexGuard<'static, usize> {
    COUNT.lock().unwrap_or_else(|e| e.into_inner())
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
pub fn init(requested: ThreadLevel) -> Result<ThreadLevel, Error> {
    enter(requested, true)
}

/// [`init`], which makes static data symmetric as C programs expect, or one that leaves it alone.
pub(crate) fn enter(requested: ThreadLevel, statics: bool) -> Result<ThreadLevel, Error> {
    let mut count = count();
    if *count == 0 {
        bootstrap::init(requested, statics)?;
        register_at_exit();
        LEVEL.store(requested as u8, Ordering::Release);
    }
    *count += 1;
    Ok(thread_level().unwrap_or(requested))
}

/// Undoes one [`init`]. The last one completes all operations, waits for all PEs, frees the heap
/// and leaves the job; the others are barriers. Without an init nothing happens.
///
/// **Collective**. Called by the thread that called init.
///
/// # Panics
/// If another thread is in a collective.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_finalize`.
#[track_caller]
pub fn finalize() {
    let mut count = count();
    match *count {
        0 => {}
        1 => {
            let me = rt().me;
            bootstrap::finalize(collective());
            tell::finalized(me);
            LEVEL.store(NO_LEVEL, Ordering::Release);
            *count = 0;
        }
        _ => {
            *count -= 1;
            drop(count);
            collective().barrier_all();
        }
    }
}

/// Whether this process is a PE: between init and the matching finalize. Any thread may ask at any
/// time.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_query_initialized`.
pub fn initialized() -> bool {
    try_rt().is_some()
}

/// The level of thread support, if this process is a PE. Any thread may ask at any time.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_query_thread`.
pub fn thread_level() -> Option<ThreadLevel> {
    ThreadLevel::from_number(LEVEL.load(Ordering::Acquire))
}

/// Initialises, unless this process is a PE, and finalizes when the process exits in order
/// (`exit` with status 0, or the end of `main`).
///
/// **Collective**, and so is that end.
///
/// # Errors
/// As for [`init`].
///
/// # Spec
/// OpenSHMEM 1.6, `start_pes` (deprecated).
pub fn start_pes() -> Result<(), Error> {
    if initialized() {
        return Ok(());
    }
    init(ThreadLevel::Single)?;
    FINALIZES.store(std::process::id(), Ordering::Relaxed);
    Ok(())
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
    // SAFETY: the function is the C library's; the handler uses no argument and does not unwind
    // but by a panic, which ends the process.
    ONCE.call_once(|| unsafe {
        on_exit(at_exit, std::ptr::null_mut());
    });
}

/// What the library does when the process exits in order.
extern "C" fn at_exit(status: libc::c_int, _: *mut libc::c_void) {
    if ENDS_JOB.load(Ordering::Relaxed) {
        // SAFETY: null stands for all streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        tell_launcher(status);
        return;
    }
    if status == 0 && FINALIZES.load(Ordering::Relaxed) == std::process::id() && initialized() {
        // A PE that failed does not wait for the others: the launcher ends the job.
        while *count() > 0 {
            finalize();
        }
    }
    if bootstrap::exit_ends_job() {
        // The launcher may end this process before the C library comes to that. A stream may be in
        // use for ever, by a thread that waits for input.
        let _ = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(EXIT_PATIENCE);
            bootstrap::process_exits(status);
        });
        // SAFETY: null stands for all streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }
    bootstrap::process_exits(status);
}

/// Has the launcher end the job.
fn tell_launcher(status: i32) {
    if let Some(rt) = try_rt() {
        let why = format!("PE {} called global_exit({status})", rt.me);
        rt.pmi.abort(status, &why);
        // The launcher may see this process end before it reads that, and must not take it for one
        // that has forgotten to finalize.
        rt.block.set_state(PeState::Finalized);
    }
}

/// Ends the whole job at once with `status`, from one PE. Nothing is completed, and no other PE has
/// to call it. This process first runs its exit handlers and flushes its standard streams, for which it
/// has a second. Without [`init`] it only ends this process.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_global_exit`.
pub fn global_exit(status: i32) -> ! {
    if initialized() {
        // The launcher ends this process like all others, so it is told last.
        ENDS_JOB.store(true, Ordering::Relaxed);
        let late = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(EXIT_PATIENCE);
            tell_launcher(status);
        });
        if late.is_err() {
            tell_launcher(status);
        }
    }
    std::process::exit(status)
}
