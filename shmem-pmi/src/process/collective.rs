//! What all processes of a job call in the same order: fences, allgathers and rings, made of what the
//! server has.

use std::sync::PoisonError;

use super::direct::Direct;
use super::error::{Cause, ProcessError};
use super::request::{Outcome, Request};
use super::work::{Gathered, Work};
use super::{Backend, Inner, Process, keys};
use crate::client::{Client, ClientError, calls};
use crate::io::{Connection, ConnectionError};

/// What every PE learns about its place in the ring of [`Process::ring`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// Rank in the ring, from 0. It need not be the rank in the job.
    pub rank: u32,
    /// Number of PEs in it.
    pub size: u32,
    /// The value of the PE before, cyclically.
    pub left: Vec<u8>,
    /// The value of the PE behind, cyclically.
    pub right: Vec<u8>,
}

impl Inner {
    /// Makes calls of which one is collective; they are told the number of the operation.
    pub(super) fn collective<T>(
        &self,
        connection: &Connection,
        calls: impl FnOnce(&mut Client, u64) -> Result<T, ClientError>,
    ) -> Result<T, ConnectionError> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = |client: &mut Client| calls(client, *next);
        let made = match &self.backend {
            Backend::Shmrun { slots, .. } => slots.begin(connection, calls),
            Backend::Plain(_) | Backend::Direct(_) => connection.submit(calls),
        }?;
        *next += 1;
        Ok(made)
    }

    /// Starts a collective operation where there is no connection.
    fn collective_direct<T>(
        &self,
        direct: &dyn Direct,
        call: &'static str,
        start: impl FnOnce(&dyn Direct, u64) -> Result<T, Cause>,
    ) -> Result<T, Cause> {
        direct.check_open(call)?;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let started = start(direct, *next)?;
        *next += 1;
        Ok(started)
    }
}

impl Process {
    /// Makes all pairs that any PE has put visible to all PEs. Collective.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`].
    pub fn fence(&self) -> Result<(), ProcessError> {
        self.start_fence("fence")?.wait()
    }

    /// Starts a fence. Collective.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`].
    pub fn ifence(&self) -> Result<Request<()>, ProcessError> {
        self.start_fence("ifence")
    }

    fn start_fence(&self, call: &'static str) -> Result<Request<()>, ProcessError> {
        let start = || -> Result<Work, Cause> {
            match &self.inner.backend {
                Backend::Shmrun { connection, .. } | Backend::Plain(connection) => {
                    self.inner.check_shared(call)?;
                    let fence = |client: &mut Client, _| keys::start_fence(client);
                    Ok(Work::Fence(self.inner.collective(connection, fence)?))
                }
                Backend::Direct(direct) => {
                    let fence = |direct: &dyn Direct, _| direct.start_fence();
                    self.inner.collective_direct(&**direct, call, fence)
                }
            }
        };
        let work = start().map_err(|cause| self.inner.error(call, cause))?;
        Ok(Request::new(&self.inner, work))
    }

    /// Gives each PE the values of all, in the order of ranks. Collective. Values have 1 to
    /// [`crate::wire::MAX_ALLGATHER_VALUE`] bytes of any kind, and the same length on all PEs.
    ///
    /// # Errors
    ///
    /// As [`Process::job_id`]; the lengths differ.
    pub fn allgather(&self, value: &[u8]) -> Result<Gathered, ProcessError> {
        self.start_gather("allgather", value)?.wait()
    }

    /// Starts an allgather. Collective. Any number may be under way; but where results lie in
    /// shared memory, starting one when 8 others have been started and not waited for waits for
    /// the first of them.
    ///
    /// # Errors
    ///
    /// As [`Process::allgather`].
    pub fn iallgather(&self, value: &[u8]) -> Result<Request<Gathered>, ProcessError> {
        self.start_gather("iallgather", value)
    }

    fn start_gather(
        &self,
        call: &'static str,
        value: &[u8],
    ) -> Result<Request<Gathered>, ProcessError> {
        let start = || -> Result<Work, Cause> {
            keys::check(value)?;
            Ok(match &self.inner.backend {
                Backend::Shmrun {
                    connection, slots, ..
                } => Work::Slot {
                    result: slots.iallgather(connection, value)?,
                    looks: 0,
                    asked: None,
                },
                Backend::Plain(connection) => {
                    self.inner.check_shared(call)?;
                    let rank = self.rank();
                    let start = |client: &mut Client, number| {
                        keys::Started::start(client, number, rank, value)
                    };
                    let (started, fence) = self.inner.collective(connection, start)?;
                    Work::Keys(started, fence)
                }
                Backend::Direct(direct) => {
                    let gather = |direct: &dyn Direct, number| direct.start_gather(number, value);
                    self.inner.collective_direct(&**direct, call, gather)?
                }
            })
        };
        let work = start().map_err(|cause| self.inner.error(call, cause))?;
        Ok(Request::new(&self.inner, work))
    }

    /// Waits for an operation: [`Request::wait`].
    ///
    /// # Errors
    ///
    /// As [`Request::wait`].
    pub fn wait<T: Outcome>(&self, request: Request<T>) -> Result<T, ProcessError> {
        request.wait()
    }

    /// Whether an operation is complete: [`Request::test`].
    ///
    /// # Errors
    ///
    /// As [`Request::test`].
    pub fn test<T: Outcome>(&self, request: &mut Request<T>) -> Result<bool, ProcessError> {
        request.test()
    }

    /// Puts the PEs in a ring and tells each the values of its two neighbours (`PMIX_Ring`): all
    /// that many programs need to find the others, at a cost that does not grow with the job.
    /// Collective. Values are as for [`Process::put`].
    ///
    /// # Errors
    ///
    /// As [`Process::put`].
    pub fn ring(&self, value: &[u8]) -> Result<Ring, ProcessError> {
        let (rank, size) = (self.rank(), self.size());
        let outcome = match &self.inner.backend {
            Backend::Shmrun { connection, .. } => self.ring_of_server(connection, value),
            // Slurm has a ring, too, but one that may hang with several nodes.
            Backend::Plain(connection) => {
                let open = self.inner.check_shared("ring");
                open.and_then(|()| self.ring_of_keys(connection, value))
            }
            Backend::Direct(direct) => {
                let ring = |direct: &dyn Direct, number| direct.ring(number, value);
                let ring = self.inner.collective_direct(&**direct, "ring", ring);
                ring.map(|[left, right]| Ring {
                    rank,
                    size,
                    left,
                    right,
                })
            }
        };
        outcome.map_err(|cause| self.inner.error("ring", cause))
    }

    fn ring_of_server(&self, connection: &Connection, value: &[u8]) -> Result<Ring, Cause> {
        let ring = |client: &mut Client, _| client.call(&calls::Ring(value));
        let neighbours = connection.wait(&self.inner.collective(connection, ring)?)?;
        Ok(Ring {
            rank: neighbours.rank,
            size: neighbours.size.unwrap_or(self.size()),
            left: neighbours.left,
            right: neighbours.right,
        })
    }

    fn ring_of_keys(&self, connection: &Connection, value: &[u8]) -> Result<Ring, Cause> {
        let (rank, size) = (self.rank(), self.size());
        let (number, put, fence) = self.inner.collective(connection, |client, number| {
            let put = client.call(&calls::Put(&keys::key('r', number, rank, 0), value))?;
            Ok((number, put, keys::start_fence(client)?))
        })?;
        connection.wait(&put)?;
        connection.wait(&fence)?;
        let of = |rank| {
            let key = keys::key('r', number, rank, 0);
            let value = connection.call(&calls::Get(&key))?;
            value.ok_or(Cause::Contribution {
                rank,
                key,
                fault: "is not there after the fence",
            })
        };
        Ok(Ring {
            rank,
            size,
            left: of((rank + size - 1) % size)?,
            right: of((rank + 1) % size)?,
        })
    }
}
