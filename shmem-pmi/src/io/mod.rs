//! A driver of the [`Client`] over a connected stream socket, for several threads.
//!
//! It owns the socket, not the choice of it: [`crate::process`] and other callers take that from
//! their environment.

mod error;
mod sending;

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shmem_node::sys;

use crate::client::{Call, Client, ClientError, Ticket};
pub use error::ConnectionError;
use error::{Broken, would_retry};

/// A client and its socket, for any number of threads.
///
/// Two ways to use it: [`Connection::submit`] to make calls that overlap, and [`Connection::wait`] or
/// [`Connection::has_come`] to learn what came of each; or [`Connection::call`], which blocks. Of the
/// threads that wait, one reads the socket for all. Where the server has no extensions, what is called
/// during a fence is sent after it.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    timeout: Option<Duration>,
    shared: Mutex<Shared>,
    /// Something has been read, or nobody reads any more.
    turn: Condvar,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    /// Whether a thread sleeps in a read of the socket.
    reading: bool,
    /// Whether a thread sends requests, and those of others have to wait.
    writing: bool,
    broken: Option<Broken>,
}

impl Shared {
    fn received(&mut self, outcome: io::Result<&[u8]>) {
        let broken = match outcome {
            Ok([]) => Broken::Closed,
            Ok(bytes) => match self.client.handle_bytes(bytes) {
                Ok(()) => return,
                Err(error) => Broken::Nonsense(error),
            },
            Err(error) if would_retry(&error) => return,
            Err(error) => Broken::of(error),
        };
        self.broken.get_or_insert(broken);
    }

    fn check(&self) -> Result<(), ConnectionError> {
        self.broken.as_ref().map_or(Ok(()), |b| Err(b.error()))
    }
}

impl Connection {
    /// Takes over a connected stream socket of any family, such as the one of `PMI_FD`.
    ///
    /// `timeout` bounds every wait; `None` waits as long as it takes,
    /// which is right where a fence may wait for a slow PE.
    ///
    /// # Errors
    ///
    /// The socket cannot be set to blocking mode, for example because it is none.
    pub fn new(
        socket: impl Into<OwnedFd>,
        client: Client,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        // Reads, writes and their timeouts are the same for all families.
        let stream = UnixStream::from(socket.into());
        stream.set_nonblocking(false)?;
        let shared = Shared {
            client,
            reading: false,
            writing: false,
            broken: None,
        };
        Ok(Self {
            stream,
            timeout,
            shared: Mutex::new(shared),
            turn: Condvar::new(),
        })
    }

    /// Connects to a server by TCP: `address` is `host:port`, as in `PMI_PORT`.
    ///
    /// # Errors
    ///
    /// The address cannot be resolved, or nobody answers there.
    pub fn connect(address: &str, client: Client, timeout: Option<Duration>) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?; // requests are small, and wait for their replies
        Self::new(stream, client, timeout)
    }

    /// Sleeps until the server closes the connection; reads nothing, so other threads go on.
    ///
    /// # Errors
    ///
    /// The socket cannot be watched.
    pub fn wait_hangup(&self) -> io::Result<()> {
        sys::wait_hangup(self.stream.as_fd())
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes calls and sends them, in one write if the socket takes it. What several threads submit
    /// does not mix.
    ///
    /// # Errors
    ///
    /// The error of `calls`; the socket fails, or takes nothing within the timeout.
    pub fn submit<T>(
        &self,
        calls: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, ConnectionError> {
        let mut shared = self.lock();
        shared.check()?;
        let made = calls(&mut shared.client)?;
        drop(self.flush_until(shared, self.deadline())?);
        Ok(made)
    }

    /// Makes a call and waits for its reply.
    ///
    /// # Errors
    ///
    /// The errors of [`Client::call`] and [`Connection::wait`].
    pub fn call<C: Call>(&self, call: &C) -> Result<C::Reply, ConnectionError> {
        self.wait(&self.submit(|client| client.call(call))?)
    }

    /// Waits for the reply to one call.
    ///
    /// # Errors
    ///
    /// The server refuses the request, or the operation fails; the socket fails or is closed, the time
    /// is over, or the server sends nonsense.
    pub fn wait<R: Send + 'static>(&self, ticket: &Ticket<R>) -> Result<R, ConnectionError> {
        let deadline = self.deadline();
        let mut buffer = [0; 4096];
        let mut shared = self.lock();
        loop {
            shared = self.flush_until(shared, deadline)?;
            if let Some(outcome) = ticket.take() {
                return Ok(outcome?);
            }
            shared.check()?;
            let left = self.remaining(deadline)?;
            if shared.reading {
                shared = self.wait_turn(shared, left);
                continue;
            }
            shared.reading = true;
            drop(shared);
            let outcome = self.read(&mut buffer, left);
            shared = self.lock();
            shared.reading = false;
            shared.received(outcome.map(|len| &buffer[..len]));
            self.turn.notify_all();
        }
    }

    /// Whether the outcome of one call has come; reads what there is and never waits.
    ///
    /// # Errors
    ///
    /// The socket fails or is closed, or the server sends nonsense.
    pub fn has_come<R: Send + 'static>(&self, ticket: &Ticket<R>) -> Result<bool, ConnectionError> {
        let mut buffer = [0; 4096];
        let mut shared = self.lock();
        loop {
            shared = self.flush_until(shared, self.deadline())?;
            if ticket.has_come() {
                return Ok(true);
            }
            shared.check()?;
            if shared.reading {
                return Ok(false); // it will be told by whoever reads
            }
            let outcome = sys::recv_now(self.stream.as_fd(), &mut buffer);
            if matches!(&outcome, Err(e) if e.kind() == io::ErrorKind::WouldBlock) {
                return Ok(false);
            }
            shared.received(outcome.map(|len| &buffer[..len]));
            self.turn.notify_all();
        }
    }

    fn read(&self, buffer: &mut [u8], left: Option<Duration>) -> io::Result<usize> {
        if left.is_some() {
            self.stream.set_read_timeout(left)?;
        }
        (&self.stream).read(buffer)
    }

    /// Sleeps until another thread has read or sent something.
    fn wait_turn<'a>(
        &self,
        shared: MutexGuard<'a, Shared>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, Shared> {
        match left {
            Some(left) => {
                let waited = self.turn.wait_timeout(shared, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.turn.wait(shared);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.timeout
            .and_then(|time| Instant::now().checked_add(time))
    }

    fn remaining(&self, deadline: Option<Instant>) -> Result<Option<Duration>, ConnectionError> {
        let Some(deadline) = deadline else {
            return Ok(None);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ConnectionError::Timeout(self.timeout.unwrap_or_default()));
        }
        Ok(Some(left))
    }

    /// [`Client::abort`], sent at once; there is no answer.
    ///
    /// # Errors
    ///
    /// The errors of [`Connection::submit`].
    pub fn abort(&self, exit_code: i32, message: &str) -> Result<(), ConnectionError> {
        self.submit(|client| client.abort(exit_code, message))
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_driver;
