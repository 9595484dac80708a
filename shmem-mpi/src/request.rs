//! Operations that were started. A request owns what MPI reads and writes meanwhile, so that neither dropping nor
//! leaking it can hand that memory to somebody else.

use std::fmt;
use std::mem::ManuallyDrop;

use crate::ReduceOp;
use crate::abi::Handle;
use crate::calls::{In, Out, TooMany};
use crate::element::Element;
use crate::error::Error;
use crate::mpi::Mpi;

/// An operation that was started: of [`crate::Comm::ibarrier`] or [`crate::Comm::iallreduce`].
///
/// MPI makes progress with it during calls, so test it now and then. Dropping a request that is not complete abandons
/// the result, not the operation; its memory is then never given back.
#[must_use = "an operation is over when it has been waited for"]
pub struct Request<T: Outcome> {
    mpi: &'static Mpi,
    handle: Handle,
    /// What MPI uses until the operation is over.
    held: ManuallyDrop<T::Held>,
}

/// What an operation gives: nothing, or numbers.
pub trait Outcome: sealed::Held {}

mod sealed {
    pub trait Held: Sized {
        /// What MPI uses meanwhile.
        type Held;
        /// What of that is the result.
        fn of(held: Self::Held) -> Self;
    }

    impl Held for () {
        type Held = ();
        fn of((): ()) -> Self {}
    }

    impl<T: crate::Element> Held for Vec<T> {
        /// No boxes: those say that nobody else knows where their contents are.
        type Held = (Vec<T>, Vec<T>);
        fn of((_, result): Self::Held) -> Self {
            result
        }
    }
}

impl Outcome for () {}
impl<T: Element> Outcome for Vec<T> {}

impl<T: Outcome> fmt::Debug for Request<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("mpi", self.mpi)
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

impl Request<()> {
    pub(crate) fn barrier(mpi: &'static Mpi, handle: Handle) -> Self {
        Self {
            mpi,
            handle,
            held: ManuallyDrop::new(()),
        }
    }
}

impl<T: Element> Request<Vec<T>> {
    pub(crate) fn reduction(
        mpi: &'static Mpi,
        comm: Handle,
        numbers: Vec<T>,
        op: ReduceOp,
    ) -> Result<Self, Error> {
        const CALL: &str = "MPI_Iallreduce";
        let mut to = vec![T::ZERO; numbers.len()];
        let entered = mpi.enter(CALL)?;
        let started = {
            let many = |many: TooMany| many.error(CALL);
            let (from, to) = (
                In::of(&numbers).map_err(many)?,
                Out::of(&mut to).map_err(many)?,
            );
            // SAFETY: the request that is made of the two gives them up only when the operation is complete.
            unsafe {
                mpi.calls()
                    .iallreduce(&entered, comm, from, to, op as usize)
            }
        };
        let handle = started.map_err(|code| mpi.error(CALL, &entered, code))?;
        Ok(Self {
            mpi,
            handle,
            held: ManuallyDrop::new((numbers, to)),
        })
    }
}

impl<T: Outcome> Request<T> {
    /// Whether the operation is complete; never waits (`MPI_Test`).
    ///
    /// # Errors
    ///
    /// As [`crate::Comm::duplicate`].
    pub fn test(&mut self) -> Result<bool, Error> {
        const CALL: &str = "MPI_Test";
        if self.is_over() {
            return Ok(true);
        }
        let entered = self.mpi.enter(CALL)?;
        let over = self.mpi.calls().test(&entered, &mut self.handle);
        over.map_err(|code| self.mpi.error(CALL, &entered, code))
    }

    /// Waits until the operation is complete, and gives its result (`MPI_Wait`).
    ///
    /// # Errors
    ///
    /// As [`crate::Comm::duplicate`].
    pub fn wait(mut self) -> Result<T, Error> {
        const CALL: &str = "MPI_Wait";
        if !self.is_over() {
            let entered = self.mpi.enter(CALL)?;
            let code = self.mpi.calls().wait(&entered, &mut self.handle);
            self.mpi.check(CALL, &entered, code)?;
        }
        // SAFETY: it is taken once, since `self` ends here without its drop.
        let held = unsafe { ManuallyDrop::take(&mut self.held) };
        std::mem::forget(self);
        Ok(T::of(held))
    }

    fn is_over(&self) -> bool {
        self.handle == self.mpi.no_request()
    }
}

impl<T: Outcome> Drop for Request<T> {
    fn drop(&mut self) {
        if self.is_over() {
            // SAFETY: whoever takes it before forgets this request.
            unsafe { ManuallyDrop::drop(&mut self.held) };
        }
    }
}
