//! Ordering and completion of one-sided operations.

use std::sync::atomic::{Ordering, fence as cpu_fence};

use shmem_node::recording::Routine;

use crate::context::{Ctx, routines};
use crate::heap::access;
use crate::network::Stream;
use crate::recording::RecordedCall;
use crate::runtime::{Runtime, rt, try_rt};

/// Makes all stores before visible before all loads after.
#[inline]
fn full_fence() {
    // ORDERING(quiet): stores to PEs of this node come before whatever tells them so; the
    // partner is the acquiring load of a wait or of a barrier. And they come before this PE's
    // next loads: complete means that no PE reads the old value any more, so of two PEs that
    // each put, quiet, and get the other's word at least one gets the new value.
    access::full_fence();
}

/// The quiet of every context, if this process is a PE of a job on one node, where all operations are
/// complete but for their order, and nobody records calls. Returns whether it is.
#[inline(always)]
#[track_caller]
pub fn quiet_alone() -> bool {
    let alone = try_rt().is_some_and(|rt| rt.nodes.all_is_plain);
    if alone {
        if cfg!(debug_assertions) {
            // Finds threads that may not call the library.
            rt();
        }
        full_fence();
    }
    alone
}

impl Runtime {
    /// Completes the default context's operations.
    pub(crate) fn quiet(&self) {
        Ctx::default_ctx().quiet_in(self);
    }

    /// Completes the operations of all contexts: for finalize, which ends them.
    pub(crate) fn quiet_all(&self) {
        if let Some(network) = &self.network {
            self.far(Stream::RUNTIME, |_| network.endpoint.quiet_all());
        }
        full_fence();
    }
}

impl Ctx {
    /// Waits until the operations of this context are complete.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_quiet`.
    #[inline]
    #[track_caller]
    pub fn quiet(&self) {
        self.quiet_in(self.rt());
    }

    #[inline]
    pub(crate) fn quiet_in(&self, rt: &Runtime) {
        match rt.nodes.all_is_plain {
            true => full_fence(),
            false => self.quiet_watched(rt),
        }
    }

    #[cold]
    fn quiet_watched(&self, rt: &Runtime) {
        let begun = rt.call_begins();
        if rt.network.is_some() {
            rt.far(self.stream(), |net| net.quiet());
        }
        full_fence();
        rt.call_ends(begun, || RecordedCall::of(Routine::Quiet));
    }

    /// Waits until the operations of this context towards some PEs are complete.
    ///
    /// # Panics
    /// If there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_pe_quiet`.
    #[inline]
    #[track_caller]
    pub fn pe_quiet(&self, pes: impl IntoIterator<Item = usize>) {
        let rt = self.rt();
        let begun = rt.call_begins();
        for pe in pes {
            let pe = self.in_job(pe);
            if !rt.is_near(pe) {
                rt.far(self.stream(), |net| net.quiet_towards(pe as u32));
            }
        }
        full_fence();
        rt.call_ends(begun, || RecordedCall::of(Routine::PeQuiet));
    }

    /// Waits until the sources of puts that were started with
    /// [`Completion::AtRelease`](crate::raw::Completion::AtRelease) may be used again. Says nothing of their
    /// delivery.
    #[inline]
    #[track_caller]
    pub fn release_sources(&self) {
        self.release_sources_in(self.rt());
    }

    #[inline]
    pub(crate) fn release_sources_in(&self, rt: &Runtime) {
        // Inside a node a put is a copy.
        if rt.network.is_some() {
            rt.far(self.stream(), |net| net.release_sources());
        }
    }

    /// The same of those towards a PE of another node.
    #[cold]
    pub(crate) fn release_sources_towards(&self, rt: &Runtime, pe: usize) {
        rt.far(self.stream(), |net| net.release_sources_towards(pe as u32));
    }

    #[cold]
    fn fence_watched(&self, rt: &Runtime) {
        let begun = rt.call_begins();
        if let Some(network) = &rt.network {
            self.stream().on(&network.endpoint).fence();
        }
        rt.call_ends(begun, || RecordedCall::of(Routine::Fence));
    }

    /// Orders delivery of what this context has started before it and starts after it.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ctx_fence`.
    #[inline]
    #[track_caller]
    pub fn fence(&self) {
        let rt = self.rt();
        if !rt.nodes.all_is_plain {
            self.fence_watched(rt);
        }
        // ORDERING(quiet): as in `quiet`, for PEs of this node.
        cpu_fence(Ordering::AcqRel);
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        if let Some(rt) = self.living() {
            self.quiet_in(rt);
            self.give_back(rt);
        }
    }
}

routines! {
    /// Waits until all operations that this PE has started on the context (as a free function: on the
    /// default context) are complete: puts and atomics are delivered and visible to every PE,
    /// non-blocking gets have their data. What other threads of this PE have started before is
    /// included.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_quiet`, `shmem_ctx_quiet`.
    pub fn quiet(&ctx) {
        ctx.quiet();
    }

    /// As [`quiet`], for the operations towards these PEs only.
    ///
    /// # Panics
    /// If there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_pe_quiet`, `shmem_ctx_pe_quiet`.
    pub fn pe_quiet(&ctx, pes: &[usize]) {
        ctx.pe_quiet(pes.iter().copied());
    }

    /// Orders delivery: puts and atomics to a PE before the fence are delivered to it before those
    /// after, if all are of the context (as a free function: of the default context). Says nothing
    /// about other PEs, nor about gets.
    ///
    /// A reliable connection delivers in order, and so does shared memory with a release fence, so
    /// nothing has to be waited for but atomics that the network cannot execute in one step.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_fence`, `shmem_ctx_fence`.
    pub fn fence(&ctx) {
        ctx.fence();
    }
}
