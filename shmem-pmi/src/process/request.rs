//! Operations that have been started, and what they give.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Inner;
use super::error::{Cause, ProcessError};
use super::shelf::OnShelf;
use super::{keys, pmix};
use crate::client::Ticket;
use crate::io::{Connection, ConnectionError};

const ANOTHER_KIND: Cause = Cause::NotOffered {
    instead: "the request is of another kind",
};

/// How often [`Request::test`] looks into shared memory before it asks the agent, which would know
/// if the operation had failed.
const LOOKS: u32 = 64;

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

pub(super) enum Work {
    /// Over at once: in a job of one process, and over MPI. What was gathered.
    Alone(Vec<u8>),
    Fence(Ticket<()>),
    Shelf {
        result: Arc<OnShelf>,
        looks: u32,
        asked: Option<Ticket<()>>,
    },
    Keys(keys::Started, Ticket<()>),
    Pmix(pmix::Started),
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

impl Work {
    fn wait(
        &mut self,
        connection: Option<&Connection>,
        size: u32,
    ) -> Result<Option<Gathered>, Cause> {
        let owned = |values| Gathered::owned(values, size as usize);
        match (self, connection) {
            (Self::Alone(value), _) => {
                let values = std::mem::take(value);
                Ok((!values.is_empty()).then(|| owned(values)))
            }
            (Self::Pmix(started), _) => Ok(started.wait()?.map(owned)),
            (Self::Fence(fence), Some(connection)) => {
                connection.wait(fence)?;
                Ok(None)
            }
            (Self::Shelf { result, asked, .. }, Some(connection)) => {
                match asked {
                    Some(asked) if !result.is_there() => connection.wait(asked)?,
                    _ => result.wait(connection)?,
                }
                let value_len = result.value_len();
                if value_len == 0 {
                    return Err(Cause::NotOffered {
                        instead: "the allgather failed before: see the errors of other PEs",
                    });
                }
                Ok(Some(Gathered {
                    value_len,
                    size: size as usize,
                    values: Values::Shelf(Arc::clone(result)),
                }))
            }
            (Self::Keys(started, fence), Some(connection)) => {
                for put in started.take_puts() {
                    connection.wait(&put)?;
                }
                connection.wait(fence)?;
                Ok(Some(owned(started.collect(connection, size)?)))
            }
            (_, None) => Err(ANOTHER_KIND),
        }
    }

    fn test(&mut self, connection: Option<&Connection>) -> Result<bool, ConnectionError> {
        match (self, connection) {
            (Self::Alone(_), _) => Ok(true),
            (Self::Pmix(started), _) => Ok(started.is_over()),
            (Self::Fence(fence) | Self::Keys(_, fence), Some(connection)) => {
                connection.has_come(fence)
            }
            (
                Self::Shelf {
                    result,
                    looks,
                    asked,
                },
                Some(connection),
            ) => {
                if result.is_there() {
                    return Ok(true);
                }
                *looks += 1;
                if *looks < LOOKS {
                    return Ok(false);
                }
                let asked = match asked {
                    Some(asked) => asked,
                    None => asked.insert(result.ask(connection)?),
                };
                connection.has_come(asked)
            }
            (_, None) => Ok(true),
        }
    }
}

/// The result of an allgather: one value of each PE, all of the same length, in the order of ranks.
///
/// Under shmrun it stays in the memory that the node's processes share, as long as fewer than
/// [`shmem_node::layout::GATHER_SLOTS`] later collective operations have been started, and only values that
/// are read are copied. The next operation to be started copies all of it, if it is still held.
#[derive(Debug, Clone)]
pub struct Gathered {
    value_len: usize,
    size: usize,
    values: Values,
}

#[derive(Debug, Clone)]
enum Values {
    Owned(Arc<[u8]>),
    Shelf(Arc<OnShelf>),
}

impl Gathered {
    fn owned(values: Vec<u8>, size: usize) -> Self {
        Self {
            value_len: values.len() / size.max(1),
            size,
            values: Values::Owned(values.into()),
        }
    }

    /// Number of values: the size of the job.
    #[allow(clippy::len_without_is_empty, reason = "a job has at least one PE")]
    pub fn len(&self) -> usize {
        self.size
    }

    /// Bytes of each value.
    pub fn value_len(&self) -> usize {
        self.value_len
    }

    /// The value of a PE; `None` if there is no such rank.
    pub fn value(&self, rank: u32) -> Option<Cow<'_, [u8]>> {
        let rank = rank as usize;
        match &self.values {
            Values::Owned(values) => {
                let value = values.chunks_exact(self.value_len.max(1)).nth(rank);
                value.map(Cow::Borrowed)
            }
            Values::Shelf(result) => result.value(rank),
        }
    }

    /// All values, one behind the other.
    pub fn to_vec(&self) -> Vec<u8> {
        match &self.values {
            Values::Owned(values) => values.to_vec(),
            Values::Shelf(_) => (0..self.size as u32)
                .filter_map(|rank| self.value(rank))
                .fold(Vec::new(), |mut all, value| {
                    all.extend_from_slice(&value);
                    all
                }),
        }
    }
}
