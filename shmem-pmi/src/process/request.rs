//! Handles of operations that have been started.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Inner;
use super::error::ProcessError;
use super::work::{ANOTHER_KIND, Gathered, Work};

/// A collective operation that has been started: of [`super::Process::ifence`] or
/// [`super::Process::iallgather`].
///
/// It goes on whether anybody waits or not, with shmrun; other servers move it forward only during
/// calls. Dropping the request abandons the result, not the operation.
#[must_use = "an operation is over when it has been waited for"]
pub struct Request<T> {
    inner: Arc<Inner>,
    work: Work,
    outcome: PhantomData<fn() -> T>,
}

/// What an operation gives: nothing for a fence, [`Gathered`] for an allgather.
pub trait Outcome: sealed::Sealed + Sized {
    #[doc(hidden)]
    fn of(gathered: Option<Gathered>) -> Option<Self>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for super::Gathered {}
}

impl Outcome for () {
    fn of(_: Option<Gathered>) -> Option<()> {
        Some(())
    }
}

impl Outcome for Gathered {
    fn of(gathered: Option<Gathered>) -> Option<Gathered> {
        gathered
    }
}

impl<T> fmt::Debug for Request<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("rank", &self.inner.rank)
            .finish_non_exhaustive()
    }
}

impl<T: Outcome> Request<T> {
    pub(super) fn new(inner: &Arc<Inner>, work: Work) -> Self {
        Self {
            inner: Arc::clone(inner),
            work,
            outcome: PhantomData,
        }
    }

    /// Waits until the operation is complete, and gives its result: that of an allgather can be read,
    /// and what was put before a fence is visible to all.
    ///
    /// # Errors
    ///
    /// The operation failed, at all PEs alike; or the connection did.
    pub fn wait(mut self) -> Result<T, ProcessError> {
        let Self { inner, work, .. } = &mut self;
        let gathered = work.wait(inner.connection(), inner.size);
        let outcome = gathered.map(T::of);
        let outcome = outcome.and_then(|outcome| outcome.ok_or(ANOTHER_KIND));
        outcome.map_err(|cause| inner.error("wait", cause))
    }

    /// Whether the operation is complete; never waits. If so, [`Request::wait`] does not wait for
    /// other PEs either.
    ///
    /// # Errors
    ///
    /// The connection failed. That the operation failed is told by [`Request::wait`].
    pub fn test(&mut self) -> Result<bool, ProcessError> {
        let Self { inner, work, .. } = self;
        let tested = work.test(inner.connection());
        tested.map_err(|error| inner.error("test", error.into()))
    }
}
