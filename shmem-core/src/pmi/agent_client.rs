//! Under `shmrun`: what a PE says to its launch agent, over a socket that the PEs of a node share. PMI is left to
//! whoever else speaks it in this process, such as an MPI library.
//!
//! The PEs of a node leave their UD addresses in its memory, and the last one of a group hands them over here. They
//! are exchanged by the launch agents; the result appears in the node segment. Most PEs have nothing to say and
//! send nothing at all. There is no goodbye either, because a PE that finalizes may initialise again: the agent sees
//! in the PE's block whether it ended in order.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use shmem_node::address::Addresses;
use shmem_node::contract::Replaced;
use shmem_node::sys;
use shmem_node::to_agent::ToAgent;

use crate::error::Error;

/// How long an agent that does not read, because it has no processor or is stopped, keeps a PE from its end.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The socket that leads to the node launch agent.
pub(crate) struct AgentClient {
    socket: OwnedFd,
    /// Position of this PE on its node.
    local: u32,
}

impl AgentClient {
    /// Takes over the socket that the launch agent left open. Nothing is sent yet.
    pub(super) fn inherited(local: u32, fd: RawFd) -> Result<Self, Error> {
        let socket = sys::inherit(fd).map_err(|source| Error::Os {
            what: "use the socket of the launch agent",
            source,
        })?;
        Ok(Self { socket, local })
    }

    /// Hands over the addresses of PEs of this node, in one system call.
    pub(super) fn hand_over(&self, of: &Addresses) -> Result<(), Error> {
        let (first, bytes) = (of.first as u32, &of.bytes[..]);
        let said = ToAgent::Addresses { first, bytes };
        said.send(self.socket.as_fd())
            .map_err(|source| match source.raw_os_error() {
                Some(libc::ENOTSOCK) => {
                    Error::Launch(Replaced::at(self.socket.as_raw_fd()).to_string())
                }
                _ => Error::Os {
                    what: "hand the addresses of this node to the launch agent",
                    source,
                },
            })
    }

    /// Asks the launcher to end the whole job with `status`. Returns when the agent has read that: peers that see this
    /// process end, and end by themselves then, are not heard of before it.
    pub(super) fn abort(&self, status: i32, text: &str) {
        let local = self.local;
        let said = ToAgent::Abort {
            local,
            status,
            text,
        };
        // The process exits with the status anyway; this only names the reason.
        if said.send(self.socket.as_fd()).is_ok() {
            let _ = sys::wait_read(self.socket.as_fd(), READ_TIMEOUT);
        }
    }

    /// Has the agent tell the user something, `adds`: it only adds to what was told before. Returns whether it does.
    pub(super) fn tell(&self, text: &str, adds: bool) -> bool {
        let local = self.local;
        let said = ToAgent::Tell { local, text, adds };
        said.send(self.socket.as_fd()).is_ok()
    }

    /// Has the launcher look, from now on, whether others wait for what this node's PEs will not do any more.
    pub(super) fn leaves(&self) {
        let said = ToAgent::Leaves { local: self.local };
        // An agent that has gone ends the job.
        let _ = said.send(self.socket.as_fd());
    }
}
