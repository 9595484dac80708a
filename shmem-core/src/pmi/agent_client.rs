//! PMI under `shmrun`: one message of a node at start, nothing to wait for.
//!
//! The PEs of a node leave their UD addresses in its memory, and the last one starts the allgather here. It
//! runs in the launch agents; its result appears in the node segment. Nobody needs the replies on the
//! socket. Most PEs have nothing to say and send nothing at all. There is no goodbye either, because a PE that
//! finalizes may initialise again: the connection ends with the process, and the agent sees in
//! the PE's block whether it ended in order.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, TryLockError};

use shmem_node::address::Addresses;
use shmem_node::contract::PMI_FD;
use shmem_node::sys;
use shmem_pmi::client::calls::{IallgatherFor, Initialise};
use shmem_pmi::client::{Client, ClientConfig, ClientError};

use crate::error::Error;

/// The connection to the node launch agent.
pub(crate) struct AgentClient(Mutex<Connected>);

struct Connected {
    config: ClientConfig,
    socket: UnixStream,
    /// Made when there is something to say.
    client: Option<Client>,
}

impl AgentClient {
    /// Takes over the socket that the launch agent left open. Nothing is sent yet.
    pub(super) fn inherited(rank: u32, job: &str) -> Result<Self, Error> {
        let socket = sys::inherit(PMI_FD).map_err(|source| Error::Os {
            what: "use the PMI descriptor",
            source,
        })?;
        let socket = UnixStream::from(socket);
        let config = ClientConfig {
            rank,
            job_id: Some(job.to_owned()),
            extensions: true,
        };
        Ok(Self(Mutex::new(Connected {
            config,
            socket,
            client: None,
        })))
    }

    /// Hands the addresses of PEs of this node to the job's next allgather, in one system call.
    pub(super) fn iallgather_for(&self, of: &Addresses) -> Result<(), Error> {
        let (first, count) = (of.first as u32, of.count as u32);
        self.send("start the allgather", |client| {
            let call = IallgatherFor(first, count, &of.bytes);
            client.call(&call).map(drop)
        })
    }

    /// Asks the launcher to end the whole job with `status`.
    pub(super) fn abort(&self, status: i32, message: &str) {
        // The process exits with the status anyway; this only names the reason.
        let _ = self.send("abort the job", |client| client.abort(status, message));
    }

    /// Has the agent tell the user something; `adds`: it only adds to what was told before. Returns
    /// whether it does.
    pub(super) fn tell(&self, text: &str, adds: bool) -> bool {
        // Not `lock`: a thread that panics may have the lock itself.
        let connected = match self.0.try_lock() {
            Ok(connected) => connected,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let tell = |client: &mut Client| client.tell(text, adds);
        Self::send_in(connected, "tell the user something", tell).is_ok()
    }

    fn send<T>(
        &self,
        what: &'static str,
        queue: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, Error> {
        let connected = self.0.lock().unwrap_or_else(|e| e.into_inner());
        Self::send_in(connected, what, queue)
    }

    fn send_in<T>(
        mut connected: MutexGuard<'_, Connected>,
        what: &'static str,
        queue: impl FnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, Error> {
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
                client.call(&Initialise).map_err(refused)?;
                client
            }
        };
        take_replies(client, socket);
        let answer = queue(client).map_err(refused)?;
        socket
            .write_all(&client.take_output())
            .map_err(|source| Error::Os { what, source })?;
        Ok(answer)
    }
}

/// Reads what the agent has answered so far, for which nobody waits, so that the answers to a PE that
/// initialises again and again do not pile up.
fn take_replies(client: &mut Client, socket: &UnixStream) {
    let mut buf = [0; 1024];
    loop {
        match sys::recv_now(socket.as_fd(), &mut buf) {
            Ok(n) if n > 0 && client.handle_bytes(&buf[..n]).is_ok() => {}
            _ => return,
        }
    }
}
