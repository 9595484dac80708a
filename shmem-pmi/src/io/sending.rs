//! Sending requests without keeping replies out: a server need not take more requests before its
//! replies have been taken.

use std::io;
use std::os::fd::AsFd;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use shmem_node::sys;

use super::error::{Broken, would_retry};
use super::{Connection, ConnectionError, Shared};

/// How long a thread that sends leaves reading to another one before it looks again.
const LOOK: Duration = Duration::from_millis(10);

impl Connection {
    /// Sends what is queued, in one write if the socket takes it. Where it does not, replies are taken
    /// meanwhile, by this thread or by the one that reads.
    pub(super) fn flush_until<'a>(
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
}
