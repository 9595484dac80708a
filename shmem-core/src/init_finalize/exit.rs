//! The end of the whole job from one PE, and what every exit of a PE needs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shmem_node::pe_block::PeState;
use shmem_node::sys;

use crate::attach::attached;
use crate::runtime::try_rt;

/// Whether the end of the process is to be that of the job: set by [`global_exit`].
static ENDS_JOB: AtomicBool = AtomicBool::new(false);

/// How long the exit handlers of a program may keep the others from their end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the exit that has begun is that of [`global_exit`].
pub(super) fn ends_job() -> bool {
    ENDS_JOB.load(Ordering::Relaxed)
}

/// Writes what the C library's streams hold.
pub(super) fn flush_all() {
    // SAFETY: null stands for all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Has `tell` run if the process still exits when that has taken too long. Returns whether it will.
pub(super) fn at_timeout(tell: impl FnOnce() + Send + 'static) -> bool {
    // Libraries of MPI and PMIx run on it. Pages that nobody touches cost nothing.
    const STACK: usize = 2 << 20;
    let late = move || {
        std::thread::sleep(EXIT_TIMEOUT);
        tell();
    };
    sys::spawn_thread(STACK, late).is_ok()
}

/// Has the launcher end the job.
pub(super) fn tell_launcher(status: i32) {
    if let (Some(rt), Some(attached)) = (try_rt(), attached()) {
        let why = format!("PE {} called global_exit({status})", rt.me);
        attached.pmi.abort(status, &why);
        // The launcher may see this process end before it reads that, and must not take it for one
        // that has forgotten to finalize.
        rt.block.set_state(PeState::Finalized);
    }
}

/// Ends the whole job at once with `status`, from one PE. Nothing is completed, and no other PE has
/// to call it. This process first runs its exit handlers and flushes its standard streams, for which it
/// has a second. Without [`init`](crate::init) it only ends this process.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_global_exit`.
pub fn global_exit(status: i32) -> ! {
    if try_rt().is_some() {
        // The launcher ends this process like all others, so it is told last.
        ENDS_JOB.store(true, Ordering::Relaxed);
        if !at_timeout(move || tell_launcher(status)) {
            tell_launcher(status);
        }
    }
    std::process::exit(status)
}
