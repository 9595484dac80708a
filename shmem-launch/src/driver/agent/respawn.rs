//! Starting a PE again that has died.
//!
//! It must become a child of this agent, as it was before: so a spawner is started for it alone. The
//! others are served meanwhile. When the spawner has ended, the PE is this agent's child, and the answer
//! lies in the socket.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use shmem_node::contract::ENV_PMI_RESPAWNED;
use shmem_node::template::{NlaSide, PeSpec, Reply};

use super::AgentProcess;
use super::pe_io::PePipes;
use crate::agent::Event;
use crate::driver::template;
use crate::sys::{self, Waited, monotonic_ns};

/// How long the spawner may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A PE that is being started again.
#[derive(Debug)]
pub(super) struct Respawning {
    local: u32,
    pub(super) spawner: i32,
    socket: NlaSide,
    /// What will lead to the new process. Nobody listens before it is known.
    ours: PePipes,
    /// When the spawner is killed, unless it has been.
    pub(super) overdue: Option<u64>,
}

impl AgentProcess {
    pub(super) fn respawn(&mut self, local: u32, count: u32) {
        self.forget(local);
        match self.start_spawner(local, count) {
            Ok(respawning) => self.starts.respawning.push(respawning),
            Err(e) => self.respawned(local, Err(e)),
        }
    }

    /// Takes the last of what the old process said to PMI, and closes what led to it. Its output was closed
    /// before.
    fn forget(&mut self, local: u32) {
        // What it left in the socket; another process that holds the other end may go on for ever.
        self.drain_pmi(local);
        if self.pes[local as usize].pmi.take().is_some() {
            self.handle(Event::PeClosed(local));
        }
        self.pes[local as usize].forget();
    }

    fn start_spawner(&mut self, local: u32, count: u32) -> io::Result<Respawning> {
        let began = self.agent.stopped().unwrap_or_else(monotonic_ns);
        let (ours, theirs) = PePipes::pairs()?;
        let gone = || io::Error::other("there is nothing to start it from");
        let node = self.node.as_ref().ok_or_else(gone)?;
        let mut recipe = node.recipe.clone().ok_or_else(gone)?;
        let count = CString::new(format!("{ENV_PMI_RESPAWNED}={count}"))?;
        recipe.env.push(count);
        // SAFETY: an agent has a single thread.
        let (spawner, socket) = unsafe {
            template::spawner(
                &recipe,
                &node.group,
                &node.segment,
                node.their_messages.as_ref().map(AsFd::as_fd),
                self.launch.ignored,
            )?
        };
        let socket = NlaSide::new(socket);
        let pe = PeSpec {
            rank: self.agent.first_rank() + local,
            local,
            has_stdin: 0,
        };
        let fds: Vec<BorrowedFd<'_>> = theirs.iter().map(AsFd::as_fd).collect();
        if let Err(e) = socket.spawn(&[pe], &fds).and_then(|()| socket.finish()) {
            // Without a request it has nothing to do, and is reaped as any child.
            sys::kill(spawner, libc::SIGKILL);
            return Err(e);
        }
        Ok(Respawning {
            local,
            spawner,
            socket,
            ours,
            overdue: Some(began + PATIENCE.as_nanos() as u64),
        })
    }

    /// When the next spawner has taken too long.
    pub(super) fn next_overdue(&self) -> Option<u64> {
        self.starts
            .respawning
            .iter()
            .filter_map(|r| r.overdue)
            .min()
    }

    /// Kills spawners that have taken too long.
    pub(super) fn end_overdue(&mut self, now: u64) {
        for respawning in &mut self.starts.respawning {
            if respawning.overdue.take_if(|at| *at <= now).is_some() {
                sys::kill(respawning.spawner, libc::SIGKILL);
            }
        }
    }

    /// Asks for spawners that have ended.
    pub(super) fn reap_spawners(&mut self) {
        let spawners: Vec<i32> = self.starts.respawning.iter().map(|r| r.spawner).collect();
        for spawner in spawners {
            if let (Waited::Child(pid, status), used) = sys::wait_used(spawner) {
                self.reaped(pid, status, used);
            }
        }
    }

    /// Whether a process that has ended was the spawner of a PE, which is then known.
    pub(super) fn spawner_ended(&mut self, pid: i32) -> bool {
        let Some(at) = self.starts.respawning.iter().position(|r| r.spawner == pid) else {
            return false;
        };
        let Respawning {
            local,
            socket,
            ours,
            overdue,
            ..
        } = self.starts.respawning.swap_remove(at);
        let pid = match socket.receive() {
            Ok(Reply::Started(reply)) => match reply.pids.first() {
                Some(&pid) => Ok(pid),
                None => Err(io::Error::from_raw_os_error(
                    reply.refusal.map_or(libc::EIO, |refusal| refusal.errno),
                )),
            },
            Ok(_) if overdue.is_none() => {
                let what = format!("that took more than {} s", PATIENCE.as_secs());
                Err(io::Error::other(what))
            }
            Ok(_) => Err(io::Error::other(
                "the process that was to start it has ended",
            )),
            Err(e) => Err(e),
        };
        // What was for the old process must not reach the new one.
        self.perform_actions();
        let pid = pid.and_then(|pid| self.keep_pipes(local, ours).map(|()| pid));
        self.respawned(local, pid);
        true
    }

    fn respawned(&mut self, local: u32, pid: io::Result<i32>) {
        match &pid {
            Ok(pid) => {
                self.pes[local as usize].pid = *pid;
                self.ending.by_pid.insert(*pid, local);
            }
            Err(_) => self.pes[local as usize].forget(),
        }
        // It may have ended while it was the spawner's child.
        self.ending.search_due = true;
        let ended = pid
            .as_ref()
            .ok()
            .and_then(|pid| self.ending.unnamed.remove(pid));
        let new = pid.as_ref().ok().copied();
        self.handle(Event::Respawned {
            local,
            pid: pid.map_err(|e| e.to_string()),
        });
        if let (Some(pid), Some((status, used))) = (new, ended) {
            self.reaped(pid, status, used);
        }
        self.forget_unnamed();
    }
}
