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

/// The slots, and who has use for what lies there.
#[derive(Debug)]
pub(super) struct Shelf {
    gather: Gather,
    n_pes: usize,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    /// Number of the next collective operation.
    next: u64,
    live: [Weak<OnShelf>; GATHER_SLOTS],
}

/// The result of one allgather, whether there already or not.
#[derive(Debug)]
pub(super) struct OnShelf {
    shelf: Arc<Shelf>,
    request: RequestId,
    /// Made before the slot is taken by another; empty if the operation has failed.
    copy: OnceLock<Vec<u8>>,
}

impl Shelf {
    pub(super) fn new(gather: Gather, n_pes: usize, next: u64) -> Arc<Self> {
        let live = std::array::from_fn(|_| Weak::new());
        let book = Mutex::new(Book { next, live });
        Arc::new(Self {
            gather,
            n_pes,
            book,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `calls`, of which the first collective one is the next operation, when the slot of its
    /// result is free.
    pub(super) fn begin<T>(
        &self,
        connection: &Connection,
        calls: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, ConnectionError> {
        self.begin_booked(connection, calls).map(|(_, made)| made)
    }

    /// As [`Shelf::begin`]; the book is still open.
    fn begin_booked<T>(
        &self,
        connection: &Connection,
        calls: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<(MutexGuard<'_, Book>, T), ConnectionError> {
        let mut calls = Some(calls);
        loop {
            let mut book = self.vacate(connection)?;
            let made = connection.submit(|client| {
                // Operations with data count, too, and take no slot.
                let RequestId(next) = client.next_request();
                match calls.take_if(|_| next == book.next) {
                    Some(calls) => calls(client).map(Some),
                    None => {
                        book.next = next;
                        Ok(None)
                    }
                }
            })?;
            if let Some(made) = made {
                book.next += 1;
                return Ok((book, made));
            }
        }
    }

    /// Starts an allgather.
    pub(super) fn iallgather(
        self: &Arc<Self>,
        connection: &Connection,
        value: &[u8],
    ) -> Result<Arc<OnShelf>, ConnectionError> {
        let (mut book, request) = self.begin_booked(connection, |client| {
            let request = client.next_request();
            // If the agent refuses, it says so again to who waits.
            client.call(&calls::Iallgather(value)).map(|_| request)
        })?;
        let result = Arc::new(OnShelf {
            shelf: Arc::clone(self),
            request,
            copy: OnceLock::new(),
        });
        book.live[slot(request.0)] = Arc::downgrade(&result);
        Ok(result)
    }

    /// Copies the result whose slot the next operation takes, if anybody has use for it.
    fn vacate(&self, connection: &Connection) -> Result<MutexGuard<'_, Book>, ConnectionError> {
        loop {
            let book = self.lock();
            let Some(result) = book.live[slot(book.next)].upgrade() else {
                return Ok(book);
            };
            if result.keep() {
                return Ok(book);
            }
            // Others read their results meanwhile.
            drop(book);
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

impl OnShelf {
    /// The shelf counts in fewer bits.
    fn number(&self) -> u32 {
        self.request.0 as u32
    }

    pub(super) fn is_there(&self) -> bool {
        // The copy is made before the slot changes.
        let shown = || self.shelf.gather.is_done(self.number());
        self.copy.get().is_some() || shown() || self.copy.get().is_some()
    }

    /// Copies the result if it is there; says whether it has been copied. Under the lock of the book.
    fn keep(&self) -> bool {
        if self.copy.get().is_some() {
            return true;
        }
        let value = |rank| self.shelf.gather.value(self.number(), rank);
        let values: Option<Vec<_>> = (0..self.shelf.n_pes).map(value).collect();
        values.is_some_and(|values| self.copy.set(values.concat()).is_ok())
    }

    /// Asks the agent to be told when the operation is over.
    pub(super) fn ask(&self, connection: &Connection) -> Result<Ticket<()>, ConnectionError> {
        connection.submit(|client| client.call(&calls::Wait(self.request)))
    }

    /// Waits for the result.
    pub(super) fn wait(&self, connection: &Connection) -> Result<(), ConnectionError> {
        let gather = &self.shelf.gather;
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
            let len = copy.len() / self.shelf.n_pes;
            let value = copy.chunks_exact(len.max(1)).nth(rank);
            return value.map(Cow::Borrowed);
        }
        // Nobody starts an operation that takes the slot.
        let book = self.shelf.lock();
        let value = self.shelf.gather.value(self.number(), rank);
        let value = value.map(|value| Cow::Owned(value.to_vec()));
        drop(book);
        match value {
            None if self.copy.get().is_some() => self.value(rank),
            value => value,
        }
    }
}
