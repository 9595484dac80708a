//! Ordering and completion of one-sided operations.

use std::sync::atomic::{Ordering, fence as cpu_fence};

use crate::runtime::{Runtime, rt, try_rt};

impl Runtime {
    pub(crate) fn quiet(&self) {
        if self.remote.is_some() {
            self.far(|net| net.quiet());
        }
        // ORDERING(quiet): stores to PEs of this node come before whatever tells them so; the
        // partner is the acquiring load of a wait or of a barrier. And they come before this PE's
        // next loads: complete means that no PE reads the old value any more, so of two PEs that
        // each put, quiet, and get the other's word at least one gets the new value.
        cpu_fence(Ordering::SeqCst);
    }
}

/// Waits until all operations that this PE has started are complete: puts and atomics are
/// delivered and visible to every PE, non-blocking gets have their data. What other threads of this
/// PE have started before is included.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_quiet`.
#[inline]
#[track_caller]
pub fn quiet() {
    rt().quiet();
}

/// Orders delivery: puts and atomics to a PE before the fence are delivered to it before those
/// after. Says nothing about other PEs, nor about gets.
///
/// A reliable connection delivers in order, and so does shared memory with a release fence, so
/// nothing has to be waited for but atomics that their owners are still to execute
/// (`SHMEM_ATOMICS`).
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_fence`.
#[inline]
pub fn fence() {
    if let Some(remote) = try_rt().and_then(|rt| rt.remote.as_ref()) {
        remote.endpoint.fence();
    }
    // ORDERING(quiet): as in `quiet`, for PEs of this node.
    cpu_fence(Ordering::AcqRel);
}
