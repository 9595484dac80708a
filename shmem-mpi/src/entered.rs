//! The right to call MPI, which [`crate::Mpi`] gives.

use std::sync::{RwLockReadGuard, RwLockWriteGuard};

/// Says that MPI is initialised, and stays so while this lives, and that this thread may call it.
pub(crate) struct Entered<'a> {
    _gate: Gate<'a>,
}

#[expect(dead_code, reason = "held, not looked at")]
enum Gate<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
    /// The process ends with the call, or nobody else may finalize.
    None,
}

impl<'a> Entered<'a> {
    pub(crate) fn shared(gate: RwLockReadGuard<'a, ()>) -> Self {
        let _gate = Gate::Shared(gate);
        Self { _gate }
    }

    pub(crate) fn alone(gate: RwLockWriteGuard<'a, ()>) -> Self {
        let _gate = Gate::Alone(gate);
        Self { _gate }
    }

    /// Where the process ends with the call, or no other thread may finalize MPI.
    pub(crate) fn without_gate() -> Self {
        Self { _gate: Gate::None }
    }
}
