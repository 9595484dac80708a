//! A driver of the [`Client`] over a connected stream socket, for several threads.
//!
//! It owns the socket, not the choice of it: [`crate::process`] and other callers take that from
//! their environment.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shmem_node::sys;

use crate::client::{
    Client, ClientConfig, ClientError, Event, Initialised, Neighbours, Refusal, RequestId, Spawned,
    Ticket,
};
use crate::question::SpawnRequest;

/// Why a call over a [`Connection`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The socket failed.
    #[error("PMI socket: {0}")]
    Socket(#[from] io::Error),
    /// The server has closed the connection.
    #[error("PMI server closed the connection; the job is probably being terminated")]
    Closed,
    /// The reply did not come in time.
    #[error("no reply from the PMI server within {0:?}")]
    Timeout(Duration),
    /// The call cannot be made, or the server's bytes make no sense.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server refused the request, or the operation failed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The reply is not of the kind that belongs to the request.
    #[error("PMI server answered with {0:?}, which is no answer to the request")]
    WrongReply(Event),
}

/// How long a thread that sends leaves reading to another one before it looks again.
const LOOK: Duration = Duration::from_millis(10);

/// A client and its socket, for any number of threads.
///
/// Two ways to use it: [`Connection::submit`] to make calls that overlap, and
/// [`Connection::wait_for`] or [`Connection::poll_for`] to learn what came of each; or the methods
/// named after the calls, which block. Of the threads that wait, one reads the socket for all. Where the
/// server has no extensions, what is called during a fence is sent after it.
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
    /// Events of calls that nobody has asked about yet.
    events: HashMap<Ticket, Event>,
    /// Calls that nobody will ask about.
    forgotten: HashSet<Ticket>,
    /// Whether a thread sleeps in a read of the socket.
    reading: bool,
    /// Whether a thread sends requests, and those of others have to wait.
    writing: bool,
    broken: Option<Broken>,
}

/// Why the connection is of no use any more; the same for all threads.
#[derive(Debug)]
enum Broken {
    Closed,
    Socket(io::Error),
    Nonsense(ClientError),
}

impl Broken {
    fn of(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Socket(error),
        }
    }

    fn error(&self) -> ConnectionError {
        match self {
            Self::Closed => ConnectionError::Closed,
            Self::Socket(error) => io::Error::new(error.kind(), error.to_string()).into(),
            Self::Nonsense(error) => error.clone().into(),
        }
    }
}

impl Shared {
    /// Takes the outcome of a call out of what has come.
    fn take(&mut self, ticket: Ticket) -> Option<Event> {
        while let Some((of, event)) = self.client.poll_event() {
            if !self.forgotten.remove(&of) {
                self.events.insert(of, event);
            }
        }
        self.events.remove(&ticket)
    }

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
    /// Takes over a connected stream socket of any family, such as the one of `PMI_FD`, for a
    /// PMI-2 client.
    ///
    /// `timeout` bounds every wait of the blocking methods; `None` waits as long as it takes,
    /// which is right where a fence may wait for a slow PE.
    ///
    /// # Errors
    ///
    /// The socket cannot be set to blocking mode, for example because it is none.
    pub fn from_fd(
        fd: OwnedFd,
        config: ClientConfig,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        Self::with_client(fd, Client::new(config), timeout)
    }

    /// As [`Connection::from_fd`], over a Unix socket.
    ///
    /// # Errors
    ///
    /// As [`Connection::from_fd`].
    pub fn new(
        stream: UnixStream,
        config: ClientConfig,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        Self::with_client(stream.into(), Client::new(config), timeout)
    }

    /// As [`Connection::from_fd`], for a client that speaks any version.
    ///
    /// # Errors
    ///
    /// As [`Connection::from_fd`].
    pub fn with_client(fd: OwnedFd, client: Client, timeout: Option<Duration>) -> io::Result<Self> {
        // Reads, writes and their timeouts are the same for all families.
        let stream = UnixStream::from(fd);
        stream.set_nonblocking(false)?;
        let shared = Shared {
            client,
            events: HashMap::new(),
            forgotten: HashSet::new(),
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
        Self::with_client(stream.into(), client, timeout)
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

    /// The client, to queue calls.
    pub fn client(&mut self) -> &mut Client {
        let shared = self.shared.get_mut();
        &mut shared.unwrap_or_else(PoisonError::into_inner).client
    }

    /// Makes calls and sends them, in one write if the socket takes it. What several threads submit
    /// does not mix.
    ///
    /// # Errors
    ///
    /// That of `calls`; the socket fails, or takes nothing within the timeout.
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

    /// Sends what is queued, in one write if the socket takes it.
    ///
    /// # Errors
    ///
    /// The socket fails, or takes nothing within the timeout.
    pub fn flush(&self) -> Result<(), ConnectionError> {
        self.flush_until(self.lock(), self.deadline()).map(drop)
    }

    /// Waits for the event of one call; the events of others are kept for those who ask.
    ///
    /// # Errors
    ///
    /// The socket fails or is closed, the time is over, or the server sends nonsense. An
    /// [`Event::Error`] is an `Ok` event here.
    pub fn wait_for(&self, ticket: Ticket) -> Result<Event, ConnectionError> {
        let deadline = self.deadline();
        let mut buffer = [0; 4096];
        let mut shared = self.lock();
        loop {
            shared = self.flush_until(shared, deadline)?;
            if let Some(event) = shared.take(ticket) {
                return Ok(event);
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

    /// The event of one call if it has come; reads what there is and never waits.
    ///
    /// # Errors
    ///
    /// As [`Connection::wait_for`].
    pub fn poll_for(&self, ticket: Ticket) -> Result<Option<Event>, ConnectionError> {
        let mut buffer = [0; 4096];
        let mut shared = self.lock();
        loop {
            shared = self.flush_until(shared, self.deadline())?;
            if let Some(event) = shared.take(ticket) {
                return Ok(Some(event));
            }
            shared.check()?;
            if shared.reading {
                return Ok(None); // it will be told by whoever reads
            }
            let outcome = sys::recv_now(self.stream.as_fd(), &mut buffer);
            if matches!(&outcome, Err(e) if e.kind() == io::ErrorKind::WouldBlock) {
                return Ok(None);
            }
            shared.received(outcome.map(|len| &buffer[..len]));
            self.turn.notify_all();
        }
    }

    /// Says that nobody will ask for the event of a call.
    pub fn forget(&self, ticket: Ticket) {
        let mut shared = self.lock();
        if shared.take(ticket).is_none() {
            shared.forgotten.insert(ticket);
        }
    }

    /// Forgets the events that have come for calls nobody will wait for.
    pub fn discard_events(&self) {
        let mut shared = self.lock();
        shared.events.clear();
        while shared.client.poll_event().is_some() {}
    }

    fn read(&self, buffer: &mut [u8], left: Option<Duration>) -> io::Result<usize> {
        if left.is_some() {
            self.stream.set_read_timeout(left)?;
        }
        (&self.stream).read(buffer)
    }

    /// Sends what is queued, in one write if the socket takes it. Where it does not, replies are taken
    /// meanwhile, by this thread or by the one that reads: a server need not take more requests before
    /// its replies have been.
    fn flush_until<'a>(
        &'a self,
        mut shared: MutexGuard<'a, Shared>,
        deadline: Option<Instant>,
    ) -> Result<MutexGuard<'a, Shared>, ConnectionError> {
        while shared.client.has_output() && shared.writing {
            // Behind what another thread sends.
            shared = self.wait_turn(shared, self.remaining(deadline)?);
            shared.check()?;
        }
        if !shared.client.has_output() {
            return Ok(shared);
        }
        shared.writing = true;
        let output = shared.client.take_output();
        let (mut shared, sent) = self.send(shared, &output, deadline);
        shared.writing = false;
        self.turn.notify_all();
        sent.map(|()| shared)
    }

    fn send<'a>(
        &'a self,
        mut shared: MutexGuard<'a, Shared>,
        mut rest: &[u8],
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, Shared>, Result<(), ConnectionError>) {
        let socket = self.stream.as_fd();
        let mut buffer = [0; 4096];
        while !rest.is_empty() {
            let broken = match sys::send_now(socket, rest) {
                Ok(0) => Broken::Closed,
                Ok(len) => {
                    rest = &rest[len..];
                    continue;
                }
                Err(error) if would_retry(&error) => {
                    let left = match self.remaining(deadline) {
                        Ok(left) => left,
                        Err(error) => {
                            // The server has a part of a request, and would take the next for its
                            // rest.
                            let late =
                                "the server did not take a request in time, which cut it off";
                            let late = io::Error::new(io::ErrorKind::TimedOut, late);
                            shared.broken.get_or_insert(Broken::Socket(late));
                            return (shared, Err(error));
                        }
                    };
                    // Who reads may have got its reply before there is room, and nobody would read then.
                    let reads = !shared.reading;
                    let max = match reads {
                        true => left,
                        false => Some(left.map_or(LOOK, |left| left.min(LOOK))),
                    };
                    drop(shared);
                    let waited = sys::wait_writable(socket, reads, max);
                    shared = self.lock();
                    if !shared.reading {
                        let got = sys::recv_now(socket, &mut buffer);
                        shared.received(got.map(|len| &buffer[..len]));
                        self.turn.notify_all();
                    }
                    match (waited, shared.check()) {
                        (Ok(()), Ok(())) => continue,
                        (Err(error), Ok(())) => Broken::of(error),
                        (_, Err(error)) => return (shared, Err(error)),
                    }
                }
                Err(error) => Broken::of(error),
            };
            let error = shared.broken.get_or_insert(broken).error();
            return (shared, Err(error));
        }
        (shared, Ok(()))
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

    fn call<T>(
        &self,
        make: impl FnOnce(&mut Client) -> Result<Ticket, ClientError>,
        pick: impl FnOnce(Event) -> Result<T, Event>,
    ) -> Result<T, ConnectionError> {
        let ticket = self.submit(make)?;
        self.outcome(ticket, pick)
    }

    /// Waits for the outcome of a call and picks what is expected out of it.
    pub(crate) fn outcome<T>(
        &self,
        ticket: Ticket,
        pick: impl FnOnce(Event) -> Result<T, Event>,
    ) -> Result<T, ConnectionError> {
        match self.wait_for(ticket)? {
            Event::Error(refusal) => Err(refusal.into()),
            event => pick(event).map_err(ConnectionError::WrongReply),
        }
    }

    /// [`Client::initialise`], blocking.
    ///
    /// # Errors
    ///
    /// This and all methods below: the socket, the time, the server's refusal, or a wrong call.
    pub fn initialise(&self) -> Result<Initialised, ConnectionError> {
        self.call(
            |client| client.initialise(),
            |event| match event {
                Event::Initialised(facts) => Ok(facts),
                other => Err(other),
            },
        )
    }

    /// [`Client::job_id`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn job_id(&self) -> Result<String, ConnectionError> {
        self.call(
            |client| client.job_id(),
            |event| match event {
                Event::JobId(id) => Ok(id),
                other => Err(other),
            },
        )
    }

    /// [`Client::job_attr`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn job_attr(&self, key: &str) -> Result<Option<Vec<u8>>, ConnectionError> {
        self.call(
            |client| client.job_attr(key),
            |event| match event {
                Event::JobAttr(value) => Ok(value),
                other => Err(other),
            },
        )
    }

    /// [`Client::put_node_attr`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn put_node_attr(&self, key: &str, value: &[u8]) -> Result<(), ConnectionError> {
        self.call(
            |client| client.put_node_attr(key, value),
            |event| match event {
                Event::NodeAttrPut => Ok(()),
                other => Err(other),
            },
        )
    }

    /// [`Client::node_attr`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn node_attr(&self, key: &str, wait: bool) -> Result<Option<Vec<u8>>, ConnectionError> {
        self.call(
            |client| client.node_attr(key, wait),
            |event| match event {
                Event::NodeAttr(value) => Ok(value),
                other => Err(other),
            },
        )
    }

    /// [`Client::put`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn put(&self, key: &str, value: &[u8]) -> Result<(), ConnectionError> {
        self.call(
            |client| client.put(key, value),
            |event| match event {
                Event::Put => Ok(()),
                other => Err(other),
            },
        )
    }

    /// [`Client::get`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, ConnectionError> {
        self.call(
            |client| client.get(key),
            |event| match event {
                Event::Got(value) => Ok(value),
                other => Err(other),
            },
        )
    }

    /// [`Client::get_from`], blocking: waits for the PE to put the key.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`]; or that PE ended without putting it.
    pub fn get_from(&self, owner: u32, key: &str) -> Result<Vec<u8>, ConnectionError> {
        self.call(
            |client| client.get_from(owner, key),
            |event| match event {
                Event::Got(Some(value)) => Ok(value),
                other => Err(other),
            },
        )
    }

    /// [`Client::fence`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn fence(&self) -> Result<(), ConnectionError> {
        self.call(
            |client| client.fence(),
            |event| match event {
                Event::FenceDone => Ok(()),
                other => Err(other),
            },
        )
    }

    /// [`Client::ifence`]: sends it and does not wait.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn ifence(&self) -> Result<RequestId, ConnectionError> {
        let started = self.submit(|client| client.ifence())?;
        self.forget(started.ticket);
        Ok(started.request)
    }

    /// [`Client::iallgather`]: sends it, with all that is queued, and does not wait.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn iallgather(&self, value: &[u8]) -> Result<RequestId, ConnectionError> {
        let started = self.submit(|client| client.iallgather(value))?;
        self.forget(started.ticket);
        Ok(started.request)
    }

    /// [`Client::wait`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`]; or the operation failed.
    pub fn wait(&self, request: RequestId) -> Result<(), ConnectionError> {
        self.call(
            |client| client.wait(request),
            |event| match event {
                Event::RequestDone(_) => Ok(()),
                other => Err(other),
            },
        )
    }

    /// [`Client::publish`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn publish(&self, name: &str, port: &[u8]) -> Result<(), ConnectionError> {
        self.call(
            |client| client.publish(name, port),
            |event| match event {
                Event::Published => Ok(()),
                other => Err(other),
            },
        )
    }

    /// [`Client::lookup`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn lookup(&self, name: &str) -> Result<Vec<u8>, ConnectionError> {
        self.call(
            |client| client.lookup(name),
            |event| match event {
                Event::LookedUp(port) => Ok(port),
                other => Err(other),
            },
        )
    }

    /// [`Client::unpublish`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn unpublish(&self, name: &str) -> Result<(), ConnectionError> {
        self.call(
            |client| client.unpublish(name),
            |event| match event {
                Event::Unpublished => Ok(()),
                other => Err(other),
            },
        )
    }

    /// [`Client::spawn`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn spawn(&self, request: SpawnRequest) -> Result<Spawned, ConnectionError> {
        self.call(
            |client| client.spawn(request),
            |event| match event {
                Event::Spawned(spawned) => Ok(spawned),
                other => Err(other),
            },
        )
    }

    /// [`Client::ring`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn ring(&self, value: &[u8]) -> Result<Neighbours, ConnectionError> {
        self.call(
            |client| client.ring(value),
            |event| match event {
                Event::Ring(ring) => Ok(ring),
                other => Err(other),
            },
        )
    }

    /// [`Client::finalize`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn finalize(&self) -> Result<(), ConnectionError> {
        self.call(
            |client| client.finalize(),
            |event| match event {
                Event::Finalized => Ok(()),
                other => Err(other),
            },
        )
    }

    /// [`Client::abort`], sent at once; there is no answer.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn abort(&self, exit_code: i32, message: &str) -> Result<(), ConnectionError> {
        self.submit(|client| client.abort(exit_code, message))
    }
}

/// Interrupted, or the socket's own timeout: the deadline decides, not the socket.
fn would_retry(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_driver;
