//! Operations that go on, and the values that they give.

use std::borrow::Cow;
use std::sync::Arc;

use super::error::Cause;
use super::slots::SlotResult;
use super::{keys, pmix};
use crate::client::Ticket;
use crate::io::{Connection, ConnectionError};

pub(super) const ANOTHER_KIND: Cause = Cause::NotOffered {
    instead: "the request is of another kind",
};

/// How often [`Work::test`] looks into shared memory before it asks the agent, which would know
/// if the operation had failed.
const LOOKS: u32 = 64;

/// A collective operation that goes on, by what it is made of.
pub(super) enum Work {
    /// Over at once: in a job of one process, and over MPI. What was gathered.
    Alone(Vec<u8>),
    Fence(Ticket<()>),
    Slot {
        result: Arc<SlotResult>,
        looks: u32,
        asked: Option<Ticket<()>>,
    },
    Keys(keys::Started, Ticket<()>),
    Pmix(pmix::Started),
}

impl Work {
    pub(super) fn wait(
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
            (Self::Slot { result, asked, .. }, Some(connection)) => {
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
                    values: Values::Slot(Arc::clone(result)),
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

    pub(super) fn test(
        &mut self,
        connection: Option<&Connection>,
    ) -> Result<bool, ConnectionError> {
        match (self, connection) {
            (Self::Alone(_), _) => Ok(true),
            (Self::Pmix(started), _) => Ok(started.is_over()),
            (Self::Fence(fence) | Self::Keys(_, fence), Some(connection)) => {
                connection.has_come(fence)
            }
            (
                Self::Slot {
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
    Slot(Arc<SlotResult>),
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
            Values::Slot(result) => result.value(rank),
        }
    }

    /// All values, one behind the other.
    pub fn to_vec(&self) -> Vec<u8> {
        match &self.values {
            Values::Owned(values) => values.to_vec(),
            Values::Slot(_) => (0..self.size as u32)
                .filter_map(|rank| self.value(rank))
                .fold(Vec::new(), |mut all, value| {
                    all.extend_from_slice(&value);
                    all
                }),
        }
    }
}
