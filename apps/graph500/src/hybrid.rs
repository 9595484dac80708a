//! The hybrid variant: data go one-sided by OpenSHMEM, and MPI has the collectives (Jose and others, "Designing scalable
//! Graph500 benchmark with hybrid MPI+OpenSHMEM programming models", 2013).
//!
//! A level ends with `MPI_Ibarrier`, tested while the mailbox is emptied, and `MPI_Iallreduce`; edges are distributed by
//! `MPI_Alltoall` of their numbers and `MPI_Alltoallv`. MPI is found when the program runs, and a program that does
//! not ask for it needs none.

use crate::coordination::{Coordination, HalfEdges, counts, ends, half};
use crate::error::Error;
use crate::generator::Edge;
use crate::mailbox::Mailbox;
use crate::partition::Partition;
use shmem_mpi::{Comm, Mpi, ReduceOp, Request, ThreadLevel};
use std::sync::atomic::{Ordering::SeqCst, fence};

/// MPI, initialised by this program.
#[derive(Debug)]
pub struct Library(&'static Mpi);

impl Library {
    /// Finds it and initialises it. All processes call this, before they join the job of PEs.
    ///
    /// # Errors
    /// If there is none, or it does not start.
    pub fn start() -> Result<Self, Error> {
        let mpi = Mpi::load(None)?;
        mpi.init(ThreadLevel::Funneled)?;
        Ok(Self(mpi))
    }

    /// That MPI numbers this process as the job does, which has been joined.
    ///
    /// # Errors
    /// If it does not.
    pub fn numbered_alike(self) -> Result<Self, Error> {
        let world = self.0.world()?;
        let (ranks, rank) = (world.size() as usize, world.rank() as usize);
        let (n_pes, pe) = (shmem::n_pes(), shmem::my_pe());
        if (ranks, rank) == (n_pes, pe) {
            return Ok(self);
        }
        Err(Error::Ranks {
            ranks,
            rank,
            n_pes,
            pe,
        })
    }

    /// For the kernels of this job. Collective.
    ///
    /// # Errors
    /// If MPI says so.
    pub fn coordination(&self) -> Result<Hybrid, Error> {
        Ok(Hybrid {
            comm: self.0.world()?.duplicate()?,
            barrier: None,
        })
    }

    /// Ends it. All processes call this.
    ///
    /// # Errors
    /// If MPI says so.
    pub fn finish(self) -> Result<(), Error> {
        Ok(self.0.finalize()?)
    }
}

/// Agreement by MPI.
#[derive(Debug)]
pub struct Hybrid {
    comm: Comm,
    /// The barrier under way.
    barrier: Option<Request<()>>,
}

impl Coordination for Hybrid {
    fn distribute(&mut self, edges: &[Edge], partition: &Partition) -> Result<HalfEdges, Error> {
        let me = shmem::my_pe();
        let sent = counts(edges, partition, me);
        let numbers: Vec<u64> = sent.iter().map(|&count| count as u64).collect();
        let mut received = vec![0u64; numbers.len()];
        self.comm.alltoall(&numbers, &mut received)?;
        let received: Vec<usize> = received.iter().map(|&count| count as usize).collect();
        let mut places: Vec<usize> = sent
            .iter()
            .scan(0, |next, &count| {
                Some(std::mem::replace(next, *next + count))
            })
            .collect();
        let mut outgoing = vec![0u64; sent.iter().sum()];
        ends(edges, partition, |owner, local, other| {
            if owner != me {
                outgoing[places[owner]] = half(local, other);
                places[owner] += 1;
            }
        });
        let mut incoming = vec![0u64; received.iter().sum()];
        self.comm
            .alltoallv((&outgoing, &sent), (&mut incoming, &received))?;
        Ok(HalfEdges::Private(incoming))
    }

    /// `MPI_Iallreduce`, since many an MPI keeps the core while it waits in `MPI_Allreduce`, though peers may need it.
    fn sums(&mut self, values: [u64; 2]) -> Result<[u64; 2], Error> {
        // MPI orders its messages, and knows nothing of what was stored in memory of neighbours.
        fence(SeqCst);
        let mut sums = self.comm.iallreduce(values.to_vec(), ReduceOp::Sum)?;
        while !sums.test()? {
            std::thread::yield_now();
        }
        let sums = sums.wait()?;
        fence(SeqCst);
        Ok([sums[0], sums[1]])
    }

    fn enter(&mut self) -> Result<(), Error> {
        self.barrier = Some(self.comm.ibarrier()?);
        Ok(())
    }

    fn test(&mut self) -> Result<bool, Error> {
        match &mut self.barrier {
            None => Ok(true),
            Some(barrier) => {
                let over = barrier.test()?;
                if over {
                    self.barrier = None;
                }
                Ok(over)
            }
        }
    }

    /// Nothing can be slept on that both MPI and OpenSHMEM would wake.
    fn wait(&mut self, _: &mut Mailbox) {
        std::thread::yield_now();
    }
}
