//! Child agents: forked where nodes are emulated, started by remote shells where they are hosts.

use std::io;
use std::os::fd::OwnedFd;

use shmem_pmi::tree::Tree;

use super::{AgentProcess, CHILD, SHELL};
use crate::agent::Event;
use crate::child::ChildSetup;
use crate::driver::link::{self, Got, LinkIo};
use crate::driver::shell;
use crate::exit::End;
use crate::frame::{Frame, Launch, OutBuf};
use crate::remote::Contact;
use crate::sys::{self, Interest, Ready, monotonic_ns};

/// A child agent, as its parent's process sees it.
#[derive(Debug, Default)]
pub(in crate::driver) struct ChildIo {
    pub(in crate::driver) link: LinkIo,
    /// The agent or its remote shell; 0 once it was reaped.
    pub(in crate::driver) pid: i32,
    /// Standard error of the remote shell.
    pub(in crate::driver) said: Option<OwnedFd>,
}

/// A child that has been started.
#[derive(Debug, Default)]
pub(in crate::driver) struct StartedAgent {
    pub(in crate::driver) io: ChildIo,
    pub(in crate::driver) setup: ChildSetup,
    /// What waits to be sent to it.
    pub(in crate::driver) unsent: OutBuf,
}

/// Starts the agent for which `launch` is meant: by a remote shell, or by `fork`, as a fork of this process.
///
/// # Safety
/// This process has a single thread.
pub(in crate::driver) unsafe fn start_agent(
    launch: &Launch,
    by_shell: bool,
    fork: impl FnOnce() -> io::Result<(i32, OwnedFd)>,
    token: u64,
) -> io::Result<StartedAgent> {
    if by_shell {
        // SAFETY: as promised by the caller.
        let (io, unsent) = unsafe { start_by_shell(launch, token) }.map_err(io::Error::other)?;
        let contact = contact(launch).map(|contact| contact.begun(monotonic_ns()));
        let setup = setup(launch, io.pid, contact);
        return Ok(StartedAgent { io, setup, unsent });
    }
    let (pid, link) = fork()?;
    let io = ChildIo {
        link: LinkIo::socket(link, token),
        pid,
        said: None,
    };
    let unsent = send_launch(launch, &io);
    let setup = setup(launch, pid, None);
    Ok(StartedAgent { io, setup, unsent })
}

/// What is known of the agent for which `launch` is meant.
fn setup(launch: &Launch, pid: i32, contact: Option<Contact>) -> ChildSetup {
    let tree = Tree::new(launch.n_nodes, launch.degree);
    let nodes = tree.subtree(launch.node);
    let layout = launch.layout();
    ChildSetup {
        node: launch.node,
        ranks: layout.ranks(nodes.start).start..layout.ranks(nodes.end - 1).end,
        pid: pid as u32,
        contact,
    }
}

/// While this process makes its own node, the child makes that one. What does not fit goes when there is
/// room, and to a remote shell when it has connected.
fn send_launch(launch: &Launch, io: &ChildIo) -> OutBuf {
    let mut unsent = OutBuf::default();
    unsent.send(&Frame::Launch(&launch.encode()));
    io.link.send_some(&mut unsent);
    unsent
}

/// Starts the remote shell of the agent for which `launch` is meant. Gives what waits to be sent to it, too.
///
/// # Errors
/// What to tell the user.
///
/// # Safety
/// As of [`sys::fork_to_exec`].
pub(in crate::driver) unsafe fn start_by_shell(
    launch: &Launch,
    token: u64,
) -> Result<(ChildIo, OutBuf), String> {
    let machines = launch.machines.as_ref().ok_or("no hosts were named")?;
    let (host, target) = (launch.host(launch.node), launch.target(launch.node));
    // SAFETY: as promised by the caller.
    let shell = unsafe { shell::start(&machines.shell, host, target)? };
    let io = ChildIo {
        link: LinkIo::socket(shell.link, token),
        pid: shell.pid,
        said: Some(shell.said),
    };
    let unsent = send_launch(launch, &io);
    Ok((io, unsent))
}

/// The host of the agent for which `launch` is meant, before it was called.
fn contact(launch: &Launch) -> Option<Contact> {
    let machines = launch.machines.as_ref()?;
    let (host, target) = (launch.host(launch.node), launch.target(launch.node));
    Some(Contact::new(&machines.shell, host, target))
}

/// Starts the agents of `nodes` (by `fork`, where they are on this machine), for which `launch` is right but for its node; of hosts as many as may be
/// waited for at a time. Of those that cannot be started by a remote shell the first is told.
///
/// # Safety
/// This process has a single thread.
pub(super) unsafe fn start_agents(
    launch: &Launch,
    nodes: impl Iterator<Item = u32>,
    fork: impl Fn() -> io::Result<(i32, OwnedFd)>,
) -> io::Result<(Vec<StartedAgent>, Option<io::Error>)> {
    let by_shell = launch.machines.is_some();
    let starts = launch.machines.as_ref().map(|m| u64::from(m.shell.starts));
    let (mut all, mut failure) = (Vec::new(), None);
    for (node, at) in nodes.zip(0u64..) {
        let theirs = Launch {
            node,
            ..launch.clone()
        };
        let mut none = StartedAgent {
            setup: setup(&theirs, 0, None),
            ..StartedAgent::default()
        };
        if starts.is_some_and(|starts| at >= starts) {
            none.setup.contact = contact(&theirs);
            all.push(none);
            continue;
        }
        // SAFETY: as promised by the caller.
        let started = unsafe { start_agent(&theirs, by_shell, &fork, CHILD | at) };
        all.push(match started {
            Ok(started) => started,
            Err(e) if by_shell => {
                failure.get_or_insert(e);
                none
            }
            Err(e) => return Err(e),
        });
    }
    Ok((all, failure))
}

impl AgentProcess {
    /// Starts the remote shell of a child whose turn has come, or that is tried again.
    pub(super) fn start_child(&mut self, at: usize) {
        let started = self.try_to_start(at).map_err(|e| e.to_string());
        self.handle(Event::ChildStarted(at, started));
    }

    fn try_to_start(&mut self, at: usize) -> io::Result<u32> {
        let node = self.agent.child_node(at);
        let launch = Launch {
            node,
            ..self.launch.clone()
        };
        let token = at as u64;
        // SAFETY: an agent has a single thread.
        let started = unsafe { start_by_shell(&launch, CHILD | token) };
        let (io, unsent) = started.map_err(io::Error::other)?;
        *self.agent.outgoing(Some(at)) = unsent;
        io.link.watch(&self.epoll)?;
        if let Some(said) = &io.said {
            self.sources
                .outputs
                .add(said, SHELL | token, Interest::Read)?;
        }
        self.children[at] = io;
        Ok(self.children[at].pid as u32)
    }

    pub(super) fn child_ready(&mut self, at: usize, event: Ready) {
        if !event.readable() {
            return;
        }
        let mut buf = std::mem::take(&mut self.sources.scratch);
        match self.children[at].link.receive(&mut buf) {
            Got::Bytes(n) => self.handle(Event::FromChild(at, &buf[..n])),
            Got::Nothing => {}
            Got::End => self.child_closed(at, &mut buf),
        }
        self.sources.scratch = buf;
    }

    fn child_closed(&mut self, at: usize, buf: &mut [u8]) {
        // Why it ended stands before the message that it did.
        self.drain_shell(at, buf);
        self.handle(Event::ChildClosed(at));
        self.ending.search_due = true;
    }

    /// Sends what waits for the children.
    pub(super) fn flush_down(&mut self) {
        for at in 0..self.children.len() {
            let (link, out) = (&mut self.children[at].link, self.agent.outgoing(Some(at)));
            if link.flush(out, &self.epoll).is_err() {
                link.close();
                let mut buf = std::mem::take(&mut self.sources.scratch);
                self.child_closed(at, &mut buf);
                self.sources.scratch = buf;
            }
        }
    }

    /// Reads once what a remote shell says. False if there is nothing more for now.
    pub(super) fn read_shell(&mut self, at: usize, buf: &mut [u8]) -> bool {
        let Got::Bytes(n) = link::read(&mut self.children[at].said, buf) else {
            return false;
        };
        self.handle(Event::ShellText(at, &buf[..n]));
        true
    }

    fn drain_shell(&mut self, at: usize, buf: &mut [u8]) {
        while self.agent.may_read_output() && self.read_shell(at, buf) {}
    }

    pub(super) fn child_reaped(&mut self, at: usize, end: End) {
        self.children[at].pid = 0;
        let mut buf = std::mem::take(&mut self.sources.scratch);
        self.drain_shell(at, &mut buf);
        self.sources.scratch = buf;
        self.handle(Event::ChildReaped(at, end));
    }

    /// Ends a child that has not begun to work, or that does not work.
    pub(super) fn drop_child(&mut self, at: usize) {
        let child = &mut self.children[at];
        child.link.close();
        child.said = None;
        if child.pid != 0 {
            sys::kill(child.pid, libc::SIGKILL);
        }
    }
}
