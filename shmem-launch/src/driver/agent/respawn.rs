//! Starting a PE again that has died.
//!
//! It must become a child of this agent, as it was before: so a spawner is started for it alone, and
//! has ended before anything else happens.

use super::*;
use crate::driver::template;
use shmem_node::contract::ENV_PMI_RESPAWNED;
use shmem_node::template::NlaSide;
use std::ffi::CString;
use std::time::Instant;

/// How long the spawner may take.
const PATIENCE: Duration = Duration::from_secs(30);

impl Driver {
    pub(super) fn respawn(&mut self, local: u32, count: u32) {
        self.forget(local);
        let pid = self.try_respawn(local, count);
        match &pid {
            Ok(pid) => {
                self.pes[local as usize].pid = *pid;
                self.by_pid.insert(*pid, local);
            }
            Err(_) => self.pes[local as usize] = PeIo::default(),
        }
        // It may have ended while it was the spawner's child.
        self.search_due = true;
        self.tell(Event::Respawned {
            local,
            pid: pid.map_err(|e| e.to_string()),
        });
    }

    /// Takes the last of what the old process said, and closes what led to it.
    fn forget(&mut self, local: u32) {
        self.drain_output(local);
        self.unpark(local);
        for stream in Stream::ALL {
            let output = &mut self.pes[local as usize].output[stream as usize];
            if output.take().is_some() {
                self.tell(Event::OutputClosed(local, stream));
            }
        }
        // What it left in the socket; another process that holds the other end may go on for ever.
        self.drain_pmi(local);
        if self.pes[local as usize].pmi.take().is_some() {
            self.tell(Event::PeClosed(local));
        }
        self.pes[local as usize] = PeIo::default();
    }

    fn try_respawn(&mut self, local: u32, count: u32) -> io::Result<i32> {
        let theirs = self.make_ends(local)?;
        let gone = || io::Error::other("there is nothing to start it from");
        let node = self.node.as_ref().ok_or_else(gone)?;
        let mut recipe = node.recipe.clone().ok_or_else(gone)?;
        let count = CString::new(format!("{ENV_PMI_RESPAWNED}={count}"))?;
        recipe.env.push(count);
        // SAFETY: an agent has a single thread.
        let (spawner, socket) =
            unsafe { template::spawner(&recipe, &node.group, &node.segment, self.launch.ignored)? };
        let side = NlaSide::new(socket);
        let pe = PeSpec {
            rank: self.first_rank + local,
            local,
            has_stdin: false,
        };
        let fds: Vec<RawFd> = theirs.iter().map(AsRawFd::as_raw_fd).collect();
        let asked = side.spawn(&[pe], &fds).and_then(|()| side.finish());
        let start = Instant::now();
        let reply = loop {
            if start.elapsed() > PATIENCE {
                sys::kill(spawner, libc::SIGKILL);
            }
            sys::poll_readable(side.as_fd(), PATIENCE);
            match side.receive() {
                Ok(Reply::NotYet) => {}
                Ok(Reply::Spawned(reply)) => break Ok(reply),
                Ok(Reply::Closed) => {
                    break Err(io::Error::other("the process that was to start it ended"));
                }
                Err(e) => break Err(e),
            }
        };
        // Only when it has ended is the PE our child.
        while let Waited::NotYet = sys::wait(spawner) {
            if start.elapsed() > PATIENCE {
                sys::kill(spawner, libc::SIGKILL);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        asked?;
        let reply = reply?;
        match reply.pids.first() {
            Some(&pid) => Ok(pid),
            None => Err(io::Error::from_raw_os_error(reply.errno)),
        }
    }
}
