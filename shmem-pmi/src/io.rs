//! A blocking driver of the [`Client`] over a connected stream socket.
//!
//! The only module of the crate that does I/O. It owns the socket, not the choice of it: the
//! caller has taken the descriptor from its environment.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::client::{
    Client, ClientConfig, ClientError, Event, Initialised, Refusal, RequestId, Ticket,
};

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

/// A client and its socket.
///
/// Two ways to use it: [`Connection::client`] to queue calls, [`Connection::flush`] and
/// [`Connection::wait_for`] to overlap them; or the methods named after the calls, which block.
#[derive(Debug)]
pub struct Connection {
    client: Client,
    stream: UnixStream,
    timeout: Option<Duration>,
    /// Events of calls that nobody has waited for yet.
    events: VecDeque<(Ticket, Event)>,
}

impl Connection {
    /// Takes over a connected stream socket of any family, such as the one of `PMI_FD`.
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
        Self::new(UnixStream::from(fd), config, timeout)
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
        stream.set_nonblocking(false)?;
        Ok(Self {
            client: Client::new(config),
            stream,
            timeout,
            events: VecDeque::new(),
        })
    }

    /// The client, to queue calls.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Sends what is queued, in one write if the socket takes it.
    ///
    /// # Errors
    ///
    /// The socket fails, or takes nothing within the timeout.
    pub fn flush(&mut self) -> Result<(), ConnectionError> {
        let deadline = self.deadline();
        self.flush_until(deadline)
    }

    /// Waits for the event of one call; the events of others are kept for those who ask.
    ///
    /// # Errors
    ///
    /// The socket fails or is closed, the time is over, or the server sends nonsense. An
    /// [`Event::Error`] is an `Ok` event here.
    pub fn wait_for(&mut self, ticket: Ticket) -> Result<Event, ConnectionError> {
        let deadline = self.deadline();
        let mut buffer = [0; 4096];
        loop {
            self.flush_until(deadline)?;
            while let Some(event) = self.client.poll_event() {
                self.events.push_back(event);
            }
            if let Some(at) = self.events.iter().position(|(of, _)| *of == ticket)
                && let Some((_, event)) = self.events.remove(at)
            {
                return Ok(event);
            }
            self.stream.set_read_timeout(self.remaining(deadline)?)?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(len) => self.client.handle_bytes(&buffer[..len])?,
                Err(error) if would_retry(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(ConnectionError::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Forgets the events that have come for calls nobody will wait for.
    pub fn discard_events(&mut self) {
        self.events.clear();
        while self.client.poll_event().is_some() {}
    }

    fn flush_until(&mut self, deadline: Option<Instant>) -> Result<(), ConnectionError> {
        let output = self.client.take_output();
        let mut rest = &output[..];
        while !rest.is_empty() {
            self.stream.set_write_timeout(self.remaining(deadline)?)?;
            match self.stream.write(rest) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(len) => rest = &rest[len..],
                Err(error) if would_retry(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Err(ConnectionError::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
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
        &mut self,
        ticket: Result<Ticket, ClientError>,
        pick: impl FnOnce(Event) -> Result<T, Event>,
    ) -> Result<T, ConnectionError> {
        match self.wait_for(ticket?)? {
            Event::Error(refusal) => Err(refusal.into()),
            event => pick(event).map_err(ConnectionError::WrongReply),
        }
    }

    /// [`Client::initialise`], blocking.
    ///
    /// # Errors
    ///
    /// This and all methods below: the socket, the time, the server's refusal, or a wrong call.
    pub fn initialise(&mut self) -> Result<Initialised, ConnectionError> {
        let ticket = self.client.initialise();
        self.call(ticket, |event| match event {
            Event::Initialised(facts) => Ok(facts),
            other => Err(other),
        })
    }

    /// [`Client::job_id`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn job_id(&mut self) -> Result<String, ConnectionError> {
        let ticket = self.client.job_id();
        self.call(ticket, |event| match event {
            Event::JobId(id) => Ok(id),
            other => Err(other),
        })
    }

    /// [`Client::job_attr`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn job_attr(&mut self, key: &str) -> Result<Option<Vec<u8>>, ConnectionError> {
        let ticket = self.client.job_attr(key);
        self.call(ticket, |event| match event {
            Event::JobAttr(value) => Ok(value),
            other => Err(other),
        })
    }

    /// [`Client::put_node_attr`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn put_node_attr(&mut self, key: &str, value: &[u8]) -> Result<(), ConnectionError> {
        let ticket = self.client.put_node_attr(key, value);
        self.call(ticket, |event| match event {
            Event::NodeAttrPut => Ok(()),
            other => Err(other),
        })
    }

    /// [`Client::node_attr`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn node_attr(&mut self, key: &str, wait: bool) -> Result<Option<Vec<u8>>, ConnectionError> {
        let ticket = self.client.node_attr(key, wait);
        self.call(ticket, |event| match event {
            Event::NodeAttr(value) => Ok(value),
            other => Err(other),
        })
    }

    /// [`Client::put`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), ConnectionError> {
        let ticket = self.client.put(key, value);
        self.call(ticket, |event| match event {
            Event::Put => Ok(()),
            other => Err(other),
        })
    }

    /// [`Client::get`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, ConnectionError> {
        let ticket = self.client.get(key);
        self.call(ticket, |event| match event {
            Event::Got(value) => Ok(value),
            other => Err(other),
        })
    }

    /// [`Client::fence`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn fence(&mut self) -> Result<(), ConnectionError> {
        let ticket = self.client.fence();
        self.call(ticket, |event| match event {
            Event::FenceDone => Ok(()),
            other => Err(other),
        })
    }

    /// [`Client::ifence`]: sends it and does not wait.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn ifence(&mut self) -> Result<RequestId, ConnectionError> {
        let started = self.client.ifence()?;
        self.flush()?;
        Ok(started.request)
    }

    /// [`Client::iallgather`]: sends it, with all that is queued, and does not wait.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn iallgather(&mut self, value: &[u8]) -> Result<RequestId, ConnectionError> {
        let started = self.client.iallgather(value)?;
        self.flush()?;
        Ok(started.request)
    }

    /// [`Client::wait`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`]; or the operation failed.
    pub fn wait(&mut self, request: RequestId) -> Result<(), ConnectionError> {
        let ticket = self.client.wait(request);
        self.call(ticket, |event| match event {
            Event::RequestDone(_) => Ok(()),
            other => Err(other),
        })
    }

    /// [`Client::finalize`], blocking.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn finalize(&mut self) -> Result<(), ConnectionError> {
        let ticket = self.client.finalize();
        self.call(ticket, |event| match event {
            Event::Finalized => Ok(()),
            other => Err(other),
        })
    }

    /// [`Client::abort`], sent at once; there is no answer.
    ///
    /// # Errors
    ///
    /// As [`Connection::initialise`].
    pub fn abort(&mut self, exit_code: i32, message: &str) -> Result<(), ConnectionError> {
        self.client.abort(exit_code, message)?;
        self.flush()
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
