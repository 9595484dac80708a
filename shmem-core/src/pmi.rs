//! This PE's side of PMI: one message at start, nothing to wait for.
//!
//! The allgather of the UD addresses is started here and runs in the launch agents; its result
//! appears in the node segment. Nobody needs the replies on the socket. A PE of a job with one node
//! has nothing to say and sends nothing at all. There is no goodbye either, because a PE that
//! finalizes may initialise again: the connection ends with the process, and the agent sees in
//! the PE's block whether it ended in order.

use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use shmem_node::contract::PMI_FD;
use shmem_pmi::client::{Client, ClientConfig, ClientError};

use crate::error::Error;

/// The connection to the node launch agent; absent in a program that was started alone.
pub(crate) struct Pmi(Option<Mutex<Connected>>);

struct Connected {
    config: ClientConfig,
    socket: UnixStream,
    /// Made when there is something to say.
    client: Option<Client>,
}

impl Pmi {
    /// For a PE without a launcher.
    pub(crate) fn alone() -> Self {
        Self(None)
    }

    /// Takes over the socket that the launch agent left open. Nothing is sent yet.
    pub(crate) fn inherited(rank: u32, job: &str) -> Result<Self, Error> {
        // SAFETY: plain system call; it also tells whether the descriptor is open.
        if unsafe { libc::fcntl(PMI_FD, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
            let source = std::io::Error::last_os_error();
            return Err(Error::Os {
                what: "use the PMI descriptor",
                source,
            });
        }
        // SAFETY: the descriptor is open and, by the contract with the launcher, ours.
        let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(PMI_FD) });
        let config = ClientConfig {
            rank,
            job_id: Some(job.to_owned()),
            extensions: true,
        };
        Ok(Self(Some(Mutex::new(Connected {
            config,
            socket,
            client: None,
        }))))
    }

    /// Hands this PE's `value` to the job's next allgather, in one system call; gives the number
    /// of the request, under which the results appear in the node segment.
    pub(crate) fn iallgather(&self, value: &[u8]) -> Result<u32, Error> {
        let started = self.send("start the allgather", |client| client.iallgather(value))?;
        Ok(started.map_or(0, |s| s.request.0 as u32))
    }

    /// Asks the launcher to end the whole job with `status`.
    pub(crate) fn abort(&self, status: i32, message: &str) {
        // The process exits with the status anyway; this only names the reason.
        let _ = self.send("abort the job", |client| client.abort(status, message));
    }

    fn send<T>(
        &self,
        what: &'static str,
        queue: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<Option<T>, Error> {
        let Some(connected) = &self.0 else {
            return Ok(None);
        };
        let mut connected = connected.lock().unwrap_or_else(|e| e.into_inner());
        let Connected {
            config,
            socket,
            client,
        } = &mut *connected;
        let refused = |e: ClientError| Error::Launch(format!("cannot {what}: {e}"));
        let client = match client {
            Some(client) => client,
            None => {
                let client = client.insert(Client::new(config.clone()));
                client.initialise().map_err(refused)?;
                client
            }
        };
        take_replies(client, socket);
        let answer = queue(client).map_err(refused)?;
        socket
            .write_all(&client.take_output())
            .map_err(|source| Error::Os { what, source })?;
        Ok(Some(answer))
    }
}

/// Reads what the agent has answered so far, which is of no interest, so that the answers of a PE that
/// initialises again and again do not pile up.
fn take_replies(client: &mut Client, socket: &UnixStream) {
    let mut buf = [0; 1024];
    loop {
        // SAFETY: the buffer is writable for its length.
        let n = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                buf.as_mut_ptr().cast(),
                buf.len(),
                libc::MSG_DONTWAIT,
            )
        };
        match usize::try_from(n) {
            Ok(n) if n > 0 && client.handle_bytes(&buf[..n]).is_ok() => {}
            _ => break,
        }
    }
    while client.poll_event().is_some() {}
}
