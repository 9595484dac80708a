//! Results of allgathers in the memory that the processes of a node share.
//!
//! The node agent stores the result of operation `r` in slot `r % GATHER_SLOTS`, where operation
//! `r + GATHER_SLOTS` replaces it. It cannot be complete before this process has joined it, so
//! whoever starts an operation first sees to the one whose slot it will take: if somebody still has
//! use for its result, that is copied. Until then nothing is copied but the values that are read.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use shmem_node::gather::Gather;
use shmem_node::layout::GATHER_SLOTS;

use crate::client::{Client, ClientError, RequestId, Ticket, calls};
use crate::io::{Connection, ConnectionError};

/// How long a result is awaited in memory before the agent is asked, which would know if the
/// operation had failed.
const IN_MEMORY: Duration = Duration::from_millis(100);

/// The slots, and which callers still use the results in them.
#[derive(Debug)]
pub(super) struct Slots {
    gather: Gather,
    n_pes: usize,
    in_use: Mutex<InUse>,
}

/// Results that a caller still uses.
#[derive(Debug)]
struct InUse {
    /// Number of the next collective operation.
    next: u64,
    results: [Weak<SlotResult>; GATHER_SLOTS],
}

/// The result of one allgather, whether there already or not.
#[derive(Debug)]
pub(super) struct SlotResult {
    slots: Arc<Slots>,
    request: RequestId,
    /// Made before the slot is taken by another; empty if the operation has failed.
    copy: OnceLock<Vec<u8>>,
}

impl Slots {
    pub(super) fn new(gather: Gather, n_pes: usize, next: u64) -> Arc<Self> {
        let results = std::array::from_fn(|_| Weak::new());
        let in_use = Mutex::new(InUse { next, results });
        Arc::new(Self {
            gather,
            n_pes,
            in_use,
        })
    }

    fn lock(&self) -> MutexGuard<'_, InUse> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `calls`, of which the first collective one is the next operation, when the slot of its
    /// result is free.
    pub(super) fn begin<T>(
        &self,
        connection: &Connection,
        calls: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, ConnectionError> {
        self.begin_locked(connection, calls).map(|(_, made)| made)
    }

    /// As [`Slots::begin`]; the slots are still locked.
    fn begin_locked<T>(
        &self,
        connection: &Connection,
        calls: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<(MutexGuard<'_, InUse>, T), ConnectionError> {
        let mut calls = Some(calls);
        loop {
            let mut in_use = self.vacate(connection)?;
            let made = connection.submit(|client| {
                // Operations with data count, too, and take no slot.
                let RequestId(next) = client.next_request();
                match calls.take_if(|_| next == in_use.next) {
                    Some(calls) => calls(client).map(Some),
                    None => {
                        in_use.next = next;
                        Ok(None)
                    }
                }
            })?;
            if let Some(made) = made {
                in_use.next += 1;
                return Ok((in_use, made));
            }
        }
    }

    /// Starts an allgather.
    pub(super) fn iallgather(
        self: &Arc<Self>,
        connection: &Connection,
        value: &[u8],
    ) -> Result<Arc<SlotResult>, ConnectionError> {
        let (mut in_use, request) = self.begin_locked(connection, |client| {
            let request = client.next_request();
            // If the agent refuses, it says so again to who waits.
            client.call(&calls::Iallgather(value)).map(|_| request)
        })?;
        let result = Arc::new(SlotResult {
            slots: Arc::clone(self),
            request,
            copy: OnceLock::new(),
        });
        in_use.results[slot(request.0)] = Arc::downgrade(&result);
        Ok(result)
    }

    /// Copies the result whose slot the next operation takes, if anybody has use for it.
    fn vacate(&self, connection: &Connection) -> Result<MutexGuard<'_, InUse>, ConnectionError> {
        loop {
            let in_use = self.lock();
            let Some(result) = in_use.results[slot(in_use.next)].upgrade() else {
                return Ok(in_use);
            };
            if result.keep() {
                return Ok(in_use);
            }
            // Others read their results meanwhile.
            drop(in_use);
            match result.wait(connection) {
                Ok(()) => {}
                Err(ConnectionError::Refused(_)) => {
                    let _ = result.copy.set(Vec::new());
                }
                Err(other) => return Err(other),
            }
        }
    }
}

/// Where the result of an operation lies.
fn slot(request: u64) -> usize {
    (request % GATHER_SLOTS as u64) as usize
}

impl SlotResult {
    /// Number of the operation, as the slots have it: in fewer bits.
    fn number(&self) -> u32 {
        self.request.0 as u32
    }

    pub(super) fn is_there(&self) -> bool {
        // The copy is made before the slot changes.
        let shown = || self.slots.gather.is_done(self.number());
        self.copy.get().is_some() || shown() || self.copy.get().is_some()
    }

    /// Copies the result if it is there; says whether it has been copied. Under the lock of the slots.
    fn keep(&self) -> bool {
        if self.copy.get().is_some() {
            return true;
        }
        let value = |rank| self.slots.gather.value(self.number(), rank);
        let values: Option<Vec<_>> = (0..self.slots.n_pes).map(value).collect();
        values.is_some_and(|values| self.copy.set(values.concat()).is_ok())
    }

    /// Asks the agent to be told when the operation is over.
    pub(super) fn ask(&self, connection: &Connection) -> Result<Ticket<()>, ConnectionError> {
        connection.submit(|client| client.call(&calls::Wait(self.request)))
    }

    /// Waits for the result.
    pub(super) fn wait(&self, connection: &Connection) -> Result<(), ConnectionError> {
        let gather = &self.slots.gather;
        if self.is_there() || gather.wait(self.number(), IN_MEMORY) {
            return Ok(());
        }
        connection.wait(&self.ask(connection)?)
    }

    /// Bytes of each value.
    pub(super) fn value_len(&self) -> usize {
        self.value(0).map_or(0, |value| value.len())
    }

    /// The value of a PE: a piece of the copy if there is one, else a copy of its own.
    pub(super) fn value(&self, rank: usize) -> Option<Cow<'_, [u8]>> {
        if let Some(copy) = self.copy.get() {
            let len = copy.len() / self.slots.n_pes;
            let value = copy.chunks_exact(len.max(1)).nth(rank);
            return value.map(Cow::Borrowed);
        }
        // Nobody starts an operation that takes the slot.
        let in_use = self.slots.lock();
        let value = self.slots.gather.value(self.number(), rank);
        let value = value.map(|value| Cow::Owned(value.to_vec()));
        drop(in_use);
        match value {
            None if self.copy.get().is_some() => self.value(rank),
            value => value,
        }
    }
}
