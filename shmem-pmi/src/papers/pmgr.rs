//! PMGR, the start-up protocol of MVICH and MVAPICH, over the primitives of the agents (ScELA thesis, 2009,
//! section 2.3.2): collectives in the style of MPI, with buffers of equal lengths on all PEs, for
//! what processes exchange before they have a network.
//!
//! ```no_run
//! use shmem_pmi::papers::pmgr::Pmgr;
//! # fn connection() -> shmem_pmi::io::Connection { unimplemented!() }
//! let connection = connection(); // to the node agent
//! let pmgr = Pmgr::open(&connection)?;
//! let lid = [pmgr.rank() as u8; 2];
//! let mut lids = vec![0; 2 * pmgr.size() as usize];
//! pmgr.allgather(&lid, &mut lids)?;
//! pmgr.close()?;
//! # Ok::<(), shmem_pmi::papers::pmgr::PmgrError>(())
//! ```

use super::primitives::{PrimitiveError, Primitives};
use crate::client::calls::{Finalize, Initialise};
use crate::io::{Connection, ConnectionError};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmgrError {
    /// The primitive below it.
    #[error(transparent)]
    Primitive(#[from] PrimitiveError),
    /// A buffer has not the length that the call needs.
    #[error("PMGR {call}: the {buffer} buffer has {len} bytes; {expected}")]
    Buffer {
        /// Name of the call.
        call: &'static str,
        /// Which buffer.
        buffer: &'static str,
        /// Length of the buffer in bytes.
        len: usize,
        /// What the length has to be.
        expected: String,
    },
    /// Another PE gave another number of bytes than this one expects.
    #[error("PMGR {call}: PE {rank} gave {len} bytes; this PE expects {expected}")]
    Length {
        /// Name of the call.
        call: &'static str,
        /// The other PE.
        rank: u32,
        /// Bytes from it.
        len: usize,
        /// Bytes for which there is room.
        expected: usize,
    },
}

impl From<ConnectionError> for PmgrError {
    fn from(error: ConnectionError) -> Self {
        Self::Primitive(error.into())
    }
}

/// The PMGR interface of one PE, from open to close. All calls but [`Pmgr::abort`] are collective
/// and block; all PEs call them in the same order with the same root and lengths.
#[derive(Debug)]
pub struct Pmgr<'c> {
    primitives: Primitives<'c>,
}

impl<'c> Pmgr<'c> {
    /// `pmgr_init` and `pmgr_open`: introduces this PE over a fresh connection to a node agent that
    /// offers extensions.
    ///
    /// # Errors
    ///
    /// The error of [`Connection::call`].
    pub fn open(connection: &'c Connection) -> Result<Self, PmgrError> {
        let facts = connection.call(&Initialise)?;
        Ok(Self::over(Primitives::new(
            connection, facts.rank, facts.size,
        )))
    }

    /// As [`Pmgr::open`], for a PE that has been introduced; for example with
    /// [`Process::primitives`](crate::process::Process::primitives). [`Pmgr::close`] still takes leave of the agent.
    pub fn over(primitives: Primitives<'c>) -> Self {
        Self { primitives }
    }

    /// Rank of this PE (`MPI_RANK` of `pmgr_init`).
    pub fn rank(&self) -> u32 {
        self.primitives.rank()
    }

    /// Number of PEs (`MPI_SIZE`).
    pub fn size(&self) -> u32 {
        self.primitives.size()
    }

    /// `PMGR_Barrier`: returns when all PEs have called it.
    ///
    /// # Errors
    ///
    /// This and all calls below: the connection, or PEs that called something else.
    pub fn barrier(&self) -> Result<(), PmgrError> {
        Ok(self.primitives.barrier()?)
    }

    /// `PMGR_Broadcast`: the root's `buffer` to that of all.
    ///
    /// # Errors
    ///
    /// Also: the root's buffer has another length.
    pub fn bcast(&self, buffer: &mut [u8], root: u32) -> Result<(), PmgrError> {
        let bytes = self.primitives.broadcast(root, buffer)?;
        place("bcast", root, &bytes, buffer)
    }

    /// `PMGR_Gather`: `send` of all PEs to the root's `receive`, in the order of ranks. Elsewhere
    /// `receive` is ignored.
    ///
    /// # Errors
    ///
    /// Also, at the root: `receive` is not `size` times as long as `send`, or another PE's `send`
    /// is not as long as the root's.
    pub fn gather(&self, send: &[u8], receive: &mut [u8], root: u32) -> Result<(), PmgrError> {
        let values = self.primitives.gather(root, send)?;
        match values {
            Some(values) => self.place_all("gather", &values, send.len(), receive),
            None => Ok(()),
        }
    }

    /// `PMGR_Scatter`: the i-th part of the root's `send` to `receive` of PE i; the parts are as
    /// long as the root's `receive`. Elsewhere `send` is ignored.
    ///
    /// # Errors
    ///
    /// Also: the root's `send` is not `size` times as long as its `receive`, which fails on all PEs;
    /// or `receive` is not as long as the root's.
    pub fn scatter(&self, send: &[u8], receive: &mut [u8], root: u32) -> Result<(), PmgrError> {
        // Parts that do not come out even are too few or too many: then the operation fails for all.
        let parts = match self.rank() == root {
            true => self.parts(send, receive.len()),
            false => Vec::new(),
        };
        let bytes = self.primitives.scatter(root, &parts)?;
        place("scatter", root, &bytes, receive)
    }

    /// `PMGR_AllGather`: `send` of all PEs to `receive` of all, in the order of ranks.
    ///
    /// # Errors
    ///
    /// Also: `receive` is not `size` times as long as `send`, or another PE's `send` is not as long
    /// as this one's.
    pub fn allgather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), PmgrError> {
        let values = self.primitives.allgather(send)?;
        self.place_all("allgather", &values, send.len(), receive)
    }

    /// `PMGR_AlltoAll`: the i-th part of `send` to PE i, where it becomes the part of `receive` that
    /// belongs to this PE. The parts are the `size`-th part of `receive`.
    ///
    /// # Errors
    ///
    /// Also: `send` is not as long as `receive`, or they cannot be divided, which fails on all PEs;
    /// or another PE's parts have another length.
    pub fn alltoall(&self, send: &[u8], receive: &mut [u8]) -> Result<(), PmgrError> {
        let len = receive.len() / self.size() as usize;
        let values = self.primitives.alltoall(&self.parts(send, len))?;
        self.place_all("alltoall", &values, len, receive)
    }

    /// `pmgr_abort`: ends the job with an exit status and a message. Not collective; does not wait.
    ///
    /// # Errors
    ///
    /// The connection has ended already.
    pub fn abort(&self, exit_code: i32, message: &str) -> Result<(), PmgrError> {
        Ok(self.primitives.connection().abort(exit_code, message)?)
    }

    /// `pmgr_close` and `pmgr_finalize`: takes leave of the node agent.
    ///
    /// # Errors
    ///
    /// The connection.
    pub fn close(self) -> Result<(), PmgrError> {
        Ok(self.primitives.connection().call(&Finalize)?)
    }

    /// The parts of a buffer, as many as there are PEs if it has the right length and else not.
    fn parts<'b>(&self, buffer: &'b [u8], len: usize) -> Vec<&'b [u8]> {
        match len {
            0 if buffer.is_empty() => vec![&[]; self.size() as usize],
            0 => Vec::new(),
            _ if buffer.len() == len * self.size() as usize => buffer.chunks(len).collect(),
            _ => Vec::new(),
        }
    }

    fn place_all(
        &self,
        call: &'static str,
        values: &[Vec<u8>],
        len: usize,
        receive: &mut [u8],
    ) -> Result<(), PmgrError> {
        if receive.len() != len * values.len() {
            return Err(PmgrError::Buffer {
                call,
                buffer: "receive",
                len: receive.len(),
                expected: format!("{} PEs give {len} bytes each", values.len()),
            });
        }
        let mut rest = receive;
        for (rank, value) in (0..).zip(values) {
            let (part, after) = rest.split_at_mut(len);
            place(call, rank, value, part)?;
            rest = after;
        }
        Ok(())
    }
}

fn place(call: &'static str, rank: u32, bytes: &[u8], to: &mut [u8]) -> Result<(), PmgrError> {
    if bytes.len() != to.len() {
        return Err(PmgrError::Length {
            call,
            rank,
            len: bytes.len(),
            expected: to.len(),
        });
    }
    to.copy_from_slice(bytes);
    Ok(())
}
