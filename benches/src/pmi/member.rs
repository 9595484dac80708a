//! One process of a PMI job under `shmrun`, with the calls that are measured.

use std::fmt::Write;
use std::io;

use shmem_node::contract::{self, ENV_LOCAL_RANK};
use shmem_pmi::process::{Process, Request};
use shmem_pmi::process_mapping::{self, ProcessMapping};

pub use shmem_pmi::papers::pmgr::Pmgr;
use shmem_pmi::papers::primitives::Primitives;
pub use shmem_pmi::process::Gathered;

/// One process, connected.
#[derive(Debug)]
pub struct Member {
    process: Process,
    nodes: usize,
    leads: bool,
    agent: u32,
}

impl Member {
    /// Takes what `shmrun` left for this process. Once per process.
    ///
    /// # Errors
    /// This is no process of a job of `shmrun`, or the launcher is of another version.
    pub fn join() -> io::Result<Self> {
        let Some(fds) = contract::offered_here() else {
            return Err(io::Error::other("start this with shmrun"));
        };
        let fds = fds.map_err(io::Error::other)?;
        let agent = peer_pid(fds.pmi())?;
        let process = Process::init().map_err(io::Error::other)?;
        let mapping = process.job_attr(process_mapping::KEY);
        let mapping = mapping.map_err(io::Error::other)?.unwrap_or_default();
        let nodes = String::from_utf8_lossy(&mapping)
            .parse::<ProcessMapping>()
            .map_err(io::Error::other)?
            .to_nodes(process.size());
        Ok(Self {
            process,
            nodes: nodes.iter().max().map_or(1, |&last| last as usize + 1),
            leads: std::env::var(ENV_LOCAL_RANK).is_ok_and(|local| local == "0"),
            agent,
        })
    }

    /// This process.
    pub fn rank(&self) -> usize {
        self.process.rank() as usize
    }

    /// Processes of the job.
    pub fn size(&self) -> usize {
        self.process.size() as usize
    }

    /// Nodes of the job.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Whether this is the first process of its node.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Nanoseconds that the agent of this node has spent on processors.
    pub fn agent_cpu(&self) -> u64 {
        let path = format!("/proc/{}/schedstat", self.agent);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let first = text.split_whitespace().next();
        first.and_then(|ns| ns.parse().ok()).unwrap_or(0)
    }

    /// Puts `value`, as text, under the name of this process.
    ///
    /// # Errors
    /// This and all calls below: the server refuses, or is gone.
    pub fn put(&self, value: &str) -> io::Result<()> {
        let put = self.process.put(&key(self.rank()), value.as_bytes());
        put.map_err(io::Error::other)
    }

    /// What process `rank` has put, after a fence.
    ///
    /// # Errors
    /// As [`Member::put`], or there is nothing.
    pub fn get(&self, rank: usize) -> io::Result<Vec<u8>> {
        let value = self
            .process
            .get_of(rank as u32, &key(rank))
            .map_err(io::Error::other)?;
        value.ok_or_else(|| io::Error::other(format!("process {rank} has put nothing")))
    }

    /// Fence.
    ///
    /// # Errors
    /// As [`Member::put`].
    pub fn fence(&self) -> io::Result<()> {
        self.process.fence().map_err(io::Error::other)
    }

    /// Starts a fence.
    ///
    /// # Errors
    /// As [`Member::put`].
    pub fn ifence(&self) -> io::Result<Request<()>> {
        self.process.ifence().map_err(io::Error::other)
    }

    /// Allgather.
    ///
    /// # Errors
    /// As [`Member::put`].
    pub fn allgather(&self, value: &[u8]) -> io::Result<Gathered> {
        self.process.allgather(value).map_err(io::Error::other)
    }

    /// Starts an allgather.
    ///
    /// # Errors
    /// As [`Member::put`].
    pub fn iallgather(&self, value: &[u8]) -> io::Result<Request<Gathered>> {
        self.process.iallgather(value).map_err(io::Error::other)
    }

    /// The primitives of the agents.
    ///
    /// # Errors
    /// The server has none.
    pub fn primitives(&self) -> io::Result<Primitives<'_>> {
        let none = || io::Error::other("the PMI server has no primitives");
        self.process.primitives().ok_or_else(none)
    }

    /// Takes leave.
    ///
    /// # Errors
    /// As [`Member::put`].
    pub fn finalize(self) -> io::Result<()> {
        self.process.finalize().map_err(io::Error::other)
    }
}

/// The key under which process `rank` puts its value.
fn key(rank: usize) -> String {
    format!("ep-{rank}")
}

/// `len` printable bytes that differ between processes and rounds.
pub fn text(rank: usize, round: usize, len: usize) -> String {
    let mut text = String::with_capacity(len + 16);
    while text.len() < len {
        let _ = write!(text, "{rank:05x}.{round:02x}");
    }
    text.truncate(len);
    text
}

/// Process that made the socket pair: the agent of the node.
fn peer_pid(socket: i32) -> io::Result<u32> {
    // SAFETY: an all-zero ucred is valid and writable for the length that is given; the call fails
    // on what is no socket.
    unsafe {
        let mut peer: libc::ucred = std::mem::zeroed();
        let mut len = size_of_val(&peer) as libc::socklen_t;
        let got = libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut len,
        );
        match got {
            0 => Ok(peer.pid as u32),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_differ_and_are_as_long_as_asked() {
        assert_eq!(text(1, 2, 8), "00001.02");
        assert_eq!(text(8191, 2, 20).len(), 20);
        assert_ne!(text(1, 2, 8), text(1, 3, 8));
        assert_ne!(text(1, 2, 8), text(2, 2, 8));
    }
}
