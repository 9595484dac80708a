//! Child agents: forked where nodes are emulated, started by remote shells where they are hosts.

use super::*;
use crate::agent::ChildSetup;
use crate::driver::shell;
use crate::remote::Contact;

/// A child agent, as its parent's driver sees it.
#[derive(Debug, Default)]
pub(super) struct ChildIo {
    /// Until it has ended.
    pub(super) link: Option<OwnedFd>,
    /// The agent or its remote shell; 0 once it was reaped.
    pub(super) pid: i32,
    /// Standard error of the remote shell.
    pub(super) said: Option<OwnedFd>,
}

/// The children when all were started, or were tried to.
#[derive(Debug, Default)]
pub(super) struct Started {
    pub(super) io: Vec<ChildIo>,
    pub(super) setups: Vec<ChildSetup>,
    /// What waits to be sent to each.
    pub(super) unsent: Vec<OutBuf>,
    /// Why a child could not be started.
    pub(super) failure: Option<String>,
}

impl Started {
    fn add(&mut self, node: u32, io: ChildIo, contact: Option<Contact>, unsent: OutBuf) {
        self.setups.push(ChildSetup {
            node,
            pid: io.pid as u32,
            contact,
        });
        self.io.push(io);
        self.unsent.push(unsent);
    }
}

/// Starts the agents of `nodes`, for which `launch` is right but for its node.
///
/// # Safety
/// This process has a single thread.
pub(super) unsafe fn start(
    launch: &Launch,
    nodes: impl Iterator<Item = u32>,
) -> io::Result<Started> {
    let mut started = Started::default();
    for node in nodes {
        let mut unsent = OutBuf::default();
        let theirs = Launch {
            node,
            ..launch.clone()
        };
        unsent.send(&Frame::Launch(&theirs.encode()));
        let Some(machines) = &launch.machines else {
            // SAFETY: as promised by the caller.
            let (pid, link) = unsafe { fork_agent(false)? };
            link::send_all(&link, &mut unsent);
            let io = ChildIo {
                link: Some(link),
                pid,
                said: None,
            };
            started.add(node, io, None, unsent);
            continue;
        };
        // SAFETY: as promised by the caller.
        let shell = unsafe { shell::start(&machines.shell, launch.host(node)) };
        match shell {
            Ok(shell) => {
                // The rest goes when the remote shell has connected.
                link::flush(&shell.link, &mut unsent);
                let io = ChildIo {
                    link: Some(shell.link),
                    pid: shell.pid,
                    said: Some(shell.said),
                };
                started.add(node, io, Some(shell.contact), unsent);
            }
            Err(e) => {
                started.failure.get_or_insert(e);
                started.add(node, ChildIo::default(), None, OutBuf::default());
            }
        }
    }
    Ok(started)
}

impl Driver {
    pub(super) fn child_ready(&mut self, at: usize, event: Ready) {
        if !event.readable() {
            return;
        }
        let Some(socket) = &self.children[at].link else {
            return;
        };
        let mut buf = std::mem::take(&mut self.scratch);
        match link::receive(socket, &mut buf) {
            Got::Bytes(n) => self.tell(Event::FromChild(at, &buf[..n])),
            Got::Nothing => {}
            Got::End => {
                self.children[at].link = None;
                self.blocked[1 + at] = false;
                // Why it ended stands before the message that it did.
                self.drain_shell(at, &mut buf);
                self.tell(Event::ChildClosed(at));
                self.search_due = true;
            }
        }
        self.scratch = buf;
    }

    /// Reads once what a remote shell says. False if there is nothing more for now.
    pub(super) fn read_shell(&mut self, at: usize, buf: &mut [u8]) -> bool {
        let Some(said) = &self.children[at].said else {
            return false;
        };
        match sys::read(said.as_fd(), buf) {
            Ok(n @ 1..) => {
                self.tell(Event::ShellText(at, &buf[..n]));
                true
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => false,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => true,
            Ok(0) | Err(_) => {
                self.children[at].said = None;
                false
            }
        }
    }

    fn drain_shell(&mut self, at: usize, buf: &mut [u8]) {
        while self.agent.may_read_output() && self.read_shell(at, buf) {}
    }

    pub(super) fn child_reaped(&mut self, at: usize, end: End) {
        self.children[at].pid = 0;
        let mut buf = std::mem::take(&mut self.scratch);
        self.drain_shell(at, &mut buf);
        self.scratch = buf;
        self.tell(Event::ChildReaped(at, end));
    }

    /// Ends a child that has not begun to work.
    pub(super) fn drop_child(&mut self, at: usize) {
        let child = &mut self.children[at];
        child.link = None;
        child.said = None;
        self.blocked[1 + at] = false;
        if child.pid != 0 {
            sys::kill(child.pid, libc::SIGKILL);
        }
    }
}
