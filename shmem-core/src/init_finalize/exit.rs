//! The end of the whole job from one PE, and what every exit of a PE needs.

use std::sync::atomic::{AtomicBool, Ordering};

use shmem_node::pe_block::PeState;

use crate::attach::attached;
use crate::fault;
use crate::runtime::try_rt;

/// Whether the end of the process is to be that of the job: set by [`global_exit`].
static ENDS_JOB: AtomicBool = AtomicBool::new(false);

/// Whether the exit that has begun is that of [`global_exit`].
pub(super) fn ends_job() -> bool {
    ENDS_JOB.load(Ordering::Relaxed)
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
        if !fault::at_timeout(move || tell_launcher(status)) {
            tell_launcher(status);
        }
    }
    std::process::exit(status)
}
