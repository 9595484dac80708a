//! Communicators: messages and collective operations over slices.

use crate::ReduceOp;
use crate::abi::Handle;
use crate::calls::{Code, In, Out, Parts, TooMany};
use crate::element::Element;
use crate::entered::Entered;
use crate::error::Error;
use crate::mpi::Mpi;
use crate::request::Request;

/// A group of processes that send each other messages.
///
/// One that [`Comm::duplicate`] or [`Comm::split_shared`] has made takes a little memory until [`Comm::free`] or the end of
/// MPI: freeing is collective, so that dropping does not do it.
#[derive(Debug)]
pub struct Comm {
    mpi: &'static Mpi,
    handle: Handle,
    rank: u32,
    size: u32,
}

/// What has been received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Rank of the sender.
    pub source: u32,
    /// The message's tag.
    pub tag: i32,
    /// How many numbers there were.
    pub count: usize,
}

impl Mpi {
    /// The communicator of all processes.
    ///
    /// # Errors
    ///
    /// As all calls: MPI is not initialised, was finalized, or may not be called by this thread.
    pub fn world(&'static self) -> Result<Comm, Error> {
        Comm::of(self, self.world_handle())
    }
}

impl Comm {
    fn of(mpi: &'static Mpi, handle: Handle) -> Result<Self, Error> {
        let entered = mpi.enter("MPI_Comm_rank")?;
        Self::entered(mpi, &entered, handle)
    }

    fn entered(mpi: &'static Mpi, entered: &Entered<'_>, handle: Handle) -> Result<Self, Error> {
        let rank = mpi.calls().rank(entered, handle);
        let rank = rank.map_err(|code| mpi.error("MPI_Comm_rank", entered, code))?;
        let size = mpi.calls().size(entered, handle);
        let size = size.map_err(|code| mpi.error("MPI_Comm_size", entered, code))?;
        Ok(Self {
            mpi,
            handle,
            rank: rank.max(0) as u32,
            size: size.max(0) as u32,
        })
    }

    /// The library.
    pub fn mpi(&self) -> &'static Mpi {
        self.mpi
    }

    /// Number of this process, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Another communicator of the same processes, whose messages are not mixed with those of this one, and whose
    /// errors are values (`MPI_Comm_dup`). Collective.
    ///
    /// # Errors
    ///
    /// This and all methods below: MPI is not initialised, was finalized, may not be called by this thread, or
    /// says that something is wrong.
    pub fn duplicate(&self) -> Result<Self, Error> {
        const CALL: &str = "MPI_Comm_dup";
        let entered = self.mpi.enter(CALL)?;
        let new = self.mpi.calls().dup(&entered, self.handle);
        self.made(CALL, &entered, new)
    }

    /// A communicator of those processes that can share memory with this one, in the same order
    /// (`MPI_Comm_split_type`). Collective.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`].
    pub fn split_shared(&self) -> Result<Self, Error> {
        const CALL: &str = "MPI_Comm_split_type";
        let entered = self.mpi.enter(CALL)?;
        let new = self.mpi.calls();
        let new = new.split_shared(&entered, self.handle, self.rank as i32);
        self.made(CALL, &entered, new)
    }

    fn made(
        &self,
        call: &'static str,
        entered: &Entered<'_>,
        new: Result<Handle, Code>,
    ) -> Result<Self, Error> {
        let new = new.map_err(|code| self.mpi.error(call, entered, code))?;
        let code = self.mpi.calls().return_errors(entered, new);
        self.mpi.check("MPI_Comm_set_errhandler", entered, code)?;
        Self::entered(self.mpi, entered, new)
    }

    /// Gives back a communicator that [`Comm::duplicate`] or [`Comm::split_shared`] has made (`MPI_Comm_free`); the world
    /// cannot be. Collective. What was started on it goes on.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`].
    pub fn free(self) -> Result<(), Error> {
        self.call("MPI_Comm_free", |entered| {
            Ok(self.mpi.calls().free(entered, self.handle))
        })
    }

    /// Returns when all have called it. Collective.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`].
    pub fn barrier(&self) -> Result<(), Error> {
        self.call("MPI_Barrier", |entered| {
            Ok(self.mpi.calls().barrier(entered, self.handle))
        })
    }

    /// Returns at once; the request is complete when all have called it. Collective.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`].
    pub fn ibarrier(&self) -> Result<Request<()>, Error> {
        const CALL: &str = "MPI_Ibarrier";
        let entered = self.mpi.enter(CALL)?;
        let started = self.mpi.calls().ibarrier(&entered, self.handle);
        let handle = started.map_err(|code| self.mpi.error(CALL, &entered, code))?;
        Ok(Request::barrier(self.mpi, handle))
    }

    /// Gives all the numbers of `root`. Collective.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`]; there is no such rank.
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<(), Error> {
        const CALL: &str = "MPI_Bcast";
        let root = self.peer(CALL, root)?;
        self.call(CALL, |entered| {
            let buffer = Out::of(buffer)?;
            Ok(self.mpi.calls().bcast(entered, self.handle, buffer, root))
        })
    }

    /// Combines the numbers of all, element by element, and gives all the result. Collective.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`]; the slices have different lengths.
    pub fn allreduce<T: Element>(
        &self,
        from: &[T],
        to: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        const CALL: &str = "MPI_Allreduce";
        same_length(CALL, from.len(), to.len())?;
        self.call(CALL, |entered| {
            let (from, to) = (Some(In::of(from)?), Out::of(to)?);
            let calls = self.mpi.calls();
            Ok(calls.allreduce(entered, self.handle, from, to, op as usize))
        })
    }

    /// The same, with the numbers of each replaced by the result.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`].
    pub fn allreduce_in_place<T: Element>(
        &self,
        numbers: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        self.call("MPI_Allreduce", |entered| {
            let to = Out::of(numbers)?;
            let calls = self.mpi.calls();
            Ok(calls.allreduce(entered, self.handle, None, to, op as usize))
        })
    }

    /// Starts an [`Comm::allreduce`] of numbers that the request owns; its wait gives the result. Collective.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`].
    pub fn iallreduce<T: Element>(
        &self,
        numbers: Vec<T>,
        op: ReduceOp,
    ) -> Result<Request<Vec<T>>, Error> {
        Request::reduction(self.mpi, self.handle, numbers, op)
    }

    /// Gives all the numbers of all, in the order of ranks: `to` is as many times longer than `from` as there are
    /// processes. Collective.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`]; the lengths do not fit.
    pub fn allgather<T: Element>(&self, from: &[T], to: &mut [T]) -> Result<(), Error> {
        const CALL: &str = "MPI_Allgather";
        let n = self.size as usize;
        if from.len().checked_mul(n) != Some(to.len()) {
            let fault = format!(
                "{} numbers of {n} processes do not fit into {}",
                from.len(),
                to.len()
            );
            return Err(Error::Argument { call: CALL, fault });
        }
        self.call(CALL, |entered| {
            let (from, to) = (In::of(from)?, Out::of(to)?);
            let calls = self.mpi.calls();
            Ok(calls.allgather(entered, self.handle, from, to, self.size as i32))
        })
    }

    /// Gives each process its part of `from`, and takes the parts of all for this one, in the order of ranks. All parts
    /// have the same length. Collective.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`]; the lengths differ, or are no multiple of the number of processes.
    pub fn alltoall<T: Element>(&self, from: &[T], to: &mut [T]) -> Result<(), Error> {
        const CALL: &str = "MPI_Alltoall";
        same_length(CALL, from.len(), to.len())?;
        let n = self.size as usize;
        if !from.len().is_multiple_of(n) {
            let fault = format!(
                "{} numbers are not equally many for each of {n} processes",
                from.len()
            );
            return Err(Error::Argument { call: CALL, fault });
        }
        self.call(CALL, |entered| {
            let (from, to) = (In::of(from)?, Out::of(to)?);
            let calls = self.mpi.calls();
            Ok(calls.alltoall(entered, self.handle, from, to, self.size as i32))
        })
    }

    /// The same with parts of any length, which follow each other in both slices: `sent` says how many numbers are for
    /// each process, `received` how many come from each. Collective.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`]; there are not as many counts as processes, or a slice has not as many numbers as its
    /// counts together.
    pub fn alltoallv<T: Element>(
        &self,
        (from, sent): (&[T], &[usize]),
        (to, received): (&mut [T], &[usize]),
    ) -> Result<(), Error> {
        const CALL: &str = "MPI_Alltoallv";
        let (sent, sent_starts) = self.parts(CALL, sent, from.len())?;
        let (received, received_starts) = self.parts(CALL, received, to.len())?;
        self.call(CALL, |entered| {
            let sent = Parts {
                counts: &sent,
                starts: &sent_starts,
            };
            let received = Parts {
                counts: &received,
                starts: &received_starts,
            };
            let (from, to) = ((In::of(from)?, sent), (Out::of(to)?, received));
            let calls = self.mpi.calls();
            Ok(calls.alltoallv(entered, self.handle, from, to, self.size as i32))
        })
    }

    /// Sends numbers to a process; returns when `from` may be changed, which may be before they are received.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`]; there is no such rank.
    pub fn send<T: Element>(&self, from: &[T], to: u32, tag: i32) -> Result<(), Error> {
        const CALL: &str = "MPI_Send";
        let to = self.peer(CALL, to)?;
        self.call(CALL, |entered| {
            let from = In::of(from)?;
            Ok(self.mpi.calls().send(entered, self.handle, from, to, tag))
        })
    }

    /// Waits for numbers of a process, or of any, with a tag, or with any. A message may be shorter than `to`, not
    /// longer.
    ///
    /// # Errors
    ///
    /// As [`Comm::duplicate`]; there is no such rank.
    pub fn receive<T: Element>(
        &self,
        to: &mut [T],
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Received, Error> {
        const CALL: &str = "MPI_Recv";
        let source = source.map(|rank| self.peer(CALL, rank)).transpose()?;
        let entered = self.mpi.enter(CALL)?;
        let to = Out::of(to).map_err(|many| many.error(CALL))?;
        let received = self
            .mpi
            .calls()
            .recv(&entered, self.handle, to, source, tag);
        let envelope = received.map_err(|code| self.mpi.error(CALL, &entered, code))?;
        Ok(Received {
            source: envelope.source.max(0) as u32,
            tag: envelope.tag,
            count: envelope.count.max(0) as usize,
        })
    }

    fn call(
        &self,
        call: &'static str,
        make: impl FnOnce(&Entered<'_>) -> Result<Code, TooMany>,
    ) -> Result<(), Error> {
        let entered = self.mpi.enter(call)?;
        let code = make(&entered).map_err(|many| many.error(call))?;
        self.mpi.check(call, &entered, code)
    }

    fn peer(&self, call: &'static str, rank: u32) -> Result<i32, Error> {
        match rank < self.size {
            true => Ok(rank as i32),
            false => Err(Error::Argument {
                call,
                fault: format!("there is no rank {rank} among {} processes", self.size),
            }),
        }
    }

    /// Counts as MPI wants them, and where each part begins.
    fn parts(
        &self,
        call: &'static str,
        counts: &[usize],
        len: usize,
    ) -> Result<(Vec<i32>, Vec<i32>), Error> {
        let wrong = |fault| Err(Error::Argument { call, fault });
        if counts.len() != self.size as usize {
            return wrong(format!(
                "{} counts for {} processes",
                counts.len(),
                self.size
            ));
        }
        let total = counts.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        if total != Some(len) {
            return wrong(format!(
                "the counts together are not {len}, the length of the slice"
            ));
        }
        if i32::try_from(len).is_err() {
            return Err(TooMany(len).error(call));
        }
        let starts = counts.iter().scan(0, |next, &count| {
            let start = *next;
            *next += count as i32;
            Some(start)
        });
        Ok((counts.iter().map(|&n| n as i32).collect(), starts.collect()))
    }
}

fn same_length(call: &'static str, from: usize, to: usize) -> Result<(), Error> {
    match from == to {
        true => Ok(()),
        false => Err(Error::Argument {
            call,
            fault: format!("the slices have {from} and {to} numbers"),
        }),
    }
}
