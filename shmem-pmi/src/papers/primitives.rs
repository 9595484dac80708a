//! The communication primitives of ScELA: what the processes of a job can do over the tree of node
//! launch agents (NLAs) while they have no network of their own; as a PE calls them, blocking, over
//! its connection to the node agent.
//!
//! ScELA (thesis, 2009, section 2.2.3) names them `NLA_Send` and `NLA_Recv`, `NLA_Gather`,
//! `NLA_Broadcast`, `NLA_AllGather`, `NLA_Scatter`, `NLA_AllToAll`, `NLA_Put` and `NLA_Get`, and
//! `NLA_Barrier`. Start-up protocols such as [`super::pmgr`] are small on top of them. The agents' part
//! is [`crate::wire::data`].

use std::fmt;

use crate::client::{Call, Client, ClientError, calls};
use crate::io::{Connection, ConnectionError};
use crate::wire::data::{Operation, pack, unpack};

/// Starts collective operations. Where a PE's others are counted, these have to be, too.
pub(crate) trait Starter: fmt::Debug {
    /// Makes `calls`, of which one is collective.
    fn start(
        &self,
        connection: &Connection,
        calls: &mut dyn FnMut(&mut Client) -> Result<(), ClientError>,
    ) -> Result<(), ConnectionError>;
}

impl Starter for Connection {
    fn start(
        &self,
        _: &Connection,
        calls: &mut dyn FnMut(&mut Client) -> Result<(), ClientError>,
    ) -> Result<(), ConnectionError> {
        self.submit(calls)
    }
}

/// The primitives of one PE. The connection must have been initialised, at a server with
/// extensions.
///
/// Collective primitives must be called by all PEs in the same order, with the same root; they may
/// be mixed with fences and allgathers of PMI. If PEs call different ones, the operation fails on
/// all of them, and the reason names one that differs. Lengths may differ between PEs.
#[derive(Debug, Clone, Copy)]
pub struct Primitives<'c> {
    starter: &'c dyn Starter,
    connection: &'c Connection,
    rank: u32,
    size: u32,
}

/// Why a primitive failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrimitiveError {
    /// The connection, or the refusal of the server: the operation failed on all PEs alike, or who
    /// was to send has ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The server's result is no list of one byte string for each PE.
    #[error("the node agent's result of NLA {operation} is not one byte string for each PE")]
    Malformed {
        /// What was called.
        operation: Operation,
    },
}

impl<'c> Primitives<'c> {
    /// The primitives of PE `rank` of `size`, as the reply to [`calls::Initialise`] tells.
    pub fn new(connection: &'c Connection, rank: u32, size: u32) -> Self {
        Self::started_by(connection, connection, rank, size)
    }

    /// As [`Primitives::new`], where others start collective operations over the connection, too.
    pub(crate) fn started_by(
        starter: &'c dyn Starter,
        connection: &'c Connection,
        rank: u32,
        size: u32,
    ) -> Self {
        Self {
            starter,
            connection,
            rank,
            size,
        }
    }

    /// Rank of this PE.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of PEs.
    pub fn size(&self) -> u32 {
        self.size
    }

    pub(crate) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// `NLA_Send`: sends at most [`crate::wire::data::MAX_MESSAGE`] bytes to a PE, which may be this one.
    /// Returns when the node agent has taken them. Messages to one PE keep their order.
    ///
    /// # Errors
    ///
    /// No such rank, too long, or more than [`crate::wire::data::MAX_UNRECEIVED`] bytes not received by others.
    pub fn send(&self, to: u32, message: &[u8]) -> Result<(), PrimitiveError> {
        Ok(self.connection.call(&calls::SendTo(to, message))?)
    }

    /// `NLA_Recv`: waits for the next message of a PE to this one.
    ///
    /// # Errors
    ///
    /// No such rank, or that PE has ended without sending one.
    pub fn recv(&self, from: u32) -> Result<Vec<u8>, PrimitiveError> {
        Ok(self.connection.call(&calls::ReceiveFrom(from))?)
    }

    fn in_order<C: Call>(&self, call: &C) -> Result<C::Reply, ConnectionError> {
        let mut ticket = None;
        let mut made = |client: &mut Client| client.call(call).map(|made| ticket = Some(made));
        self.starter.start(self.connection, &mut made)?;
        // Not absent: the call was made, or start would have failed.
        ticket.map_or(Err(ConnectionError::Closed), |ticket| {
            self.connection.wait(&ticket)
        })
    }

    fn collective(
        &self,
        operation: Operation,
        root: u32,
        value: &[u8],
    ) -> Result<Vec<u8>, PrimitiveError> {
        Ok(self.in_order(&calls::Data(operation, root, value))?)
    }

    fn list(&self, operation: Operation, bytes: &[u8]) -> Result<Vec<Vec<u8>>, PrimitiveError> {
        let items =
            unpack(bytes, self.size as usize).ok_or(PrimitiveError::Malformed { operation })?;
        Ok(items.into_iter().map(<[u8]>::to_vec).collect())
    }

    /// `NLA_Gather`: gives `value`; the root gets those of all PEs in the order of ranks, the others
    /// `None`.
    ///
    /// # Errors
    ///
    /// This and all collective primitives: PEs called different ones, or brought too much
    /// ([`crate::wire::data::MAX_CONTRIBUTION`], [`crate::wire::data::MAX_TOTAL`]).
    pub fn gather(&self, root: u32, value: &[u8]) -> Result<Option<Vec<Vec<u8>>>, PrimitiveError> {
        let bytes = self.collective(Operation::Gather, root, value)?;
        match self.rank == root {
            true => self.list(Operation::Gather, &bytes).map(Some),
            false => Ok(None),
        }
    }

    /// `NLA_Broadcast`: all PEs get the value that the root gives; those of others are ignored.
    ///
    /// # Errors
    ///
    /// As [`Primitives::gather`].
    pub fn broadcast(&self, root: u32, value: &[u8]) -> Result<Vec<u8>, PrimitiveError> {
        let value = if self.rank == root { value } else { &[] };
        self.collective(Operation::Broadcast, root, value)
    }

    /// `NLA_Scatter`: PE i gets the i-th of the values that the root gives; those of others are
    /// ignored.
    ///
    /// # Errors
    ///
    /// As [`Primitives::gather`]; or the root gave another number of values than there are PEs, which fails
    /// on all of them.
    pub fn scatter(&self, root: u32, values: &[&[u8]]) -> Result<Vec<u8>, PrimitiveError> {
        let packed = match self.rank == root {
            true => pack(values.iter().copied()),
            false => Vec::new(),
        };
        self.collective(Operation::Scatter, root, &packed)
    }

    /// `NLA_AllGather`: gives `value`; all get those of all, in the order of ranks. A gather to the
    /// root of the tree and a broadcast.
    ///
    /// # Errors
    ///
    /// As [`Primitives::gather`].
    pub fn allgather(&self, value: &[u8]) -> Result<Vec<Vec<u8>>, PrimitiveError> {
        let bytes = self.collective(Operation::Allgather, 0, value)?;
        self.list(Operation::Allgather, &bytes)
    }

    /// `NLA_AllToAll`: gives one value for each PE; gets the one for this PE from each, in the order
    /// of ranks. A gather to the root of the tree, which regroups them, and a scatter.
    ///
    /// # Errors
    ///
    /// As [`Primitives::scatter`].
    pub fn alltoall(&self, values: &[&[u8]]) -> Result<Vec<Vec<u8>>, PrimitiveError> {
        let packed = pack(values.iter().copied());
        let bytes = self.collective(Operation::Alltoall, 0, &packed)?;
        self.list(Operation::Alltoall, &bytes)
    }

    /// `NLA_Put`: puts a pair on the bulletin board, the key-value space of PMI. All see it after the
    /// next [`Primitives::barrier`]; how it gets there is the job's
    /// [`CachePolicy`](crate::server::CachePolicy).
    ///
    /// # Errors
    ///
    /// The key or value cannot be sent.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<(), PrimitiveError> {
        Ok(self.connection.call(&calls::Put(key, value))?)
    }

    /// `NLA_Get`: the value of a key on the bulletin board.
    ///
    /// # Errors
    ///
    /// The key cannot be sent.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, PrimitiveError> {
        Ok(self.connection.call(&calls::Get(key))?)
    }

    /// `NLA_Barrier`: returns when all PEs have called it.
    ///
    /// # Errors
    ///
    /// As [`Primitives::gather`].
    pub fn barrier(&self) -> Result<(), PrimitiveError> {
        Ok(self.in_order(&calls::Fence)?)
    }
}
