//! The process of a node launch agent: one thread, one epoll loop, around [`crate::agent::Agent`].
//!
//! Output pipes are in an epoll set of their own, nested in the main one: when the way up is
//! blocked, one change stops the reading of all of them.
//!
//! # Reaping
//! With thousands of children, `waitpid(-1)` walks a long list for each. A PE that ends closes its
//! PMI socket first, so PEs whose socket has ended are asked for by number when SIGCHLD comes; the
//! full search runs at most every few milliseconds, for those that passed their socket to others.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use shmem_node::pe_block::PeState;
use shmem_node::template::{PeSpec, Reply};
use shmem_pmi::tree::Tree;

use super::link::{self, Got};
use super::node::{self, Node};
use super::park::Parking;
use super::reap::bury;
use crate::agent::{Action, Agent, Event, Setup};
use crate::exit::End;
use crate::frame::{Frame, Launch, OutBuf, STDIN_WINDOW, Stream};
use crate::limits;
use crate::plan::Layout;
use crate::report::{Moment, Reduced};
use crate::sys::{self, Epoll, Interest, Ready, Waited, monotonic_ns};

/// Number of the link to the parent in an agent.
const LINK_FD: RawFd = 3;

const SIGNALS: [i32; 2] = [libc::SIGCHLD, libc::SIGTERM];

/// Time between two searches for ended children of unknown number, per PE: bounds their share of
/// the agent's time.
const SEARCH_NS_PER_PE: u64 = 1_000;
const SEARCH_NS_MIN: u64 = 2_000_000;

/// Time that exiting child agents have before they are killed, and all of it at most.
const BURY_PATIENCE: Duration = Duration::from_secs(2);
const BURY_LIMIT: Duration = Duration::from_secs(5);

/// Kinds of descriptors, in the upper half of an epoll token; the lower half is a number.
const PARENT: u64 = 1 << 32;
const CHILD: u64 = 2 << 32;
const SIGNAL: u64 = 3 << 32;
const TEMPLATE: u64 = 4 << 32;
const OUTPUTS: u64 = 5 << 32;
const PMI: u64 = 6 << 32;
const STDIN: u64 = 7 << 32;
const STDOUT: u64 = 8 << 32;
const STDERR: u64 = 9 << 32;
const KIND: u64 = 0xffff_ffff << 32;

#[derive(Debug, Default)]
struct PeIo {
    pid: i32,
    output: [Option<OwnedFd>; 2],
    pmi: Option<OwnedFd>,
    /// Bytes that the PE's PMI socket did not take at once.
    pmi_out: Vec<u8>,
}

struct Driver {
    agent: Agent,
    launch: Launch,
    parent: OwnedFd,
    /// Links and process ids of the child agents.
    children: Vec<(Option<OwnedFd>, i32)>,
    epoll: Epoll,
    outputs: Epoll,
    reading_outputs: bool,
    /// Where stderr's read ends are while silent, if descriptors are scarce.
    parking: Option<Parking>,
    /// Which links wait for room: 0 is the parent's, then the children's.
    blocked: Vec<bool>,
    signals: OwnedFd,
    node: Option<Node>,
    pes: Vec<PeIo>,
    /// Local number of the PE with this process id.
    by_pid: HashMap<i32, u32>,
    answered: u32,
    /// PEs whose PMI socket has ended and which are not reaped.
    leaving: Vec<u32>,
    next_search: u64,
    search_due: bool,
    stdin: Option<OwnedFd>,
    stdin_queue: Vec<u8>,
    stdin_ended: bool,
    moments: [u64; crate::report::MOMENTS],
    scratch: Vec<u8>,
    exiting: bool,
}

/// The life of an agent, in the process forked for it. `link` leads to its parent; nothing else
/// but standard streams may be open.
pub(super) fn run(link: OwnedFd) -> u8 {
    sys::set_name(c"shmrun-agent");
    sys::keep_freed_memory();
    sys::set_blocked(&SIGNALS);
    for signal in [
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGTSTP,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ] {
        sys::set_ignored(signal, true);
    }
    match start(link) {
        Ok(mut driver) => driver.work(),
        // Without its parent an agent has nobody to tell; with it, the exit status speaks.
        Err(e) => {
            eprintln!("shmrun: a launch agent cannot start: {e}");
            crate::exit::LAUNCHER
        }
    }
}

/// Forks an agent; gives its process id and the link to it.
///
/// # Safety
/// This process has a single thread.
pub(super) unsafe fn fork_agent(own_group: bool) -> io::Result<(i32, OwnedFd)> {
    let (ours, theirs) = sys::socketpair(libc::SOCK_STREAM)?;
    let null = sys::dev_null()?;
    let child = || {
        if own_group {
            // Away from the terminal's foreground: its signals are for shmrun alone.
            let _ = sys::set_group(0, 0);
        }
        let null = null.as_raw_fd();
        let placed = [
            (null, 0, true),
            (null, 1, true),
            (2, 2, true),
            (theirs.as_raw_fd(), LINK_FD, true),
        ];
        if let Err(e) = sys::arrange_fds(&placed, LINK_FD + 1) {
            eprintln!("shmrun: a launch agent cannot start: {e}");
            return crate::exit::LAUNCHER;
        }
        // SAFETY: the link was put there just now and nobody else owns it here.
        run(unsafe { sys::own(LINK_FD) })
    };
    // SAFETY: one thread, as promised by the caller.
    let pid = unsafe { sys::fork(child)? };
    Ok((pid, ours))
}

fn start(parent: OwnedFd) -> io::Result<Driver> {
    let bad = |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
    let content = link::read_one_frame(&parent)?;
    let Frame::Launch(body) = Frame::decode(&content).map_err(|e| bad(&e))? else {
        return Err(bad(&"the first frame is not a Launch"));
    };
    let launched = monotonic_ns();
    let launch = Launch::decode(body).map_err(|e| bad(&e))?;
    sys::become_subreaper()?;

    // Children first, while there is nothing that they should not inherit.
    let tree = Tree::new(launch.n_nodes, launch.degree);
    let mut children = Vec::new();
    let mut pids = Vec::new();
    for child in tree.children(launch.node) {
        // SAFETY: an agent has a single thread.
        let (pid, socket) = unsafe { fork_agent(false)? };
        let mut out = OutBuf::default();
        out.send(&Frame::Launch(
            &Launch {
                node: child,
                ..launch.clone()
            }
            .encode(),
        ));
        link::send_all(&socket, &mut out);
        pids.push((child, pid as u32));
        children.push((Some(socket), pid));
    }

    let layout = Layout::of(launch.n_pes, launch.n_nodes);
    let ranks = layout.ranks(launch.node);
    let node_of = layout.node_of();
    let pmi = node::pmi_server(&launch, &layout, &tree, &node_of).map_err(|e| bad(&e))?;
    let n_local = ranks.len() as u32;
    let agent = Agent::new(
        Setup {
            node: launch.node,
            first_rank: ranks.start,
            n_local,
            several: launch.n_pes > 1,
            raw_output: launch.raw_output,
            children: pids,
        },
        pmi,
    );
    // SAFETY: an agent has a single thread.
    let node = unsafe { Node::prepare(&launch, &node_of) };

    let need = limits::descriptors(n_local, children.len() as u32);
    let have = sys::raise_descriptors(need);
    let least = limits::descriptors_least(n_local, children.len() as u32);
    let node = node.and_then(|node| {
        let short = limits::LimitError::Descriptors {
            need: least,
            limit: have,
        };
        if have < least {
            Err(short.to_string())
        } else {
            Ok(node)
        }
    });
    let epoll = Epoll::new()?;
    let outputs = Epoll::new()?;
    let signals = sys::signalfd(&SIGNALS)?;
    epoll.add(&parent, PARENT, Interest::Read)?;
    epoll.add(&signals, SIGNAL, Interest::Read)?;
    epoll.add(&outputs.fd(), OUTPUTS, Interest::Read)?;
    for (at, (socket, _)) in children.iter().enumerate() {
        epoll.add(
            socket.as_ref().expect("just made"),
            CHILD | at as u64,
            Interest::Read,
        )?;
    }
    let blocked = vec![false; 1 + children.len()];
    let mut driver = Driver {
        agent,
        launch,
        parent,
        children,
        epoll,
        outputs,
        reading_outputs: true,
        parking: (have < need).then(Parking::default),
        blocked,
        signals,
        node: None,
        pes: (0..n_local).map(|_| PeIo::default()).collect(),
        by_pid: HashMap::with_capacity(n_local as usize),
        answered: 0,
        leaving: Vec::new(),
        next_search: 0,
        search_due: false,
        stdin: None,
        stdin_queue: Vec::new(),
        stdin_ended: false,
        moments: [0; crate::report::MOMENTS],
        scratch: vec![0; 64 << 10],
        exiting: false,
    };
    driver.moment(Moment::Launched, launched);
    match node {
        Ok(node) => {
            if let Some(template) = &node.template {
                driver
                    .epoll
                    .add(&template.as_fd(), TEMPLATE, Interest::Read)?;
            }
            driver.node = Some(node);
            driver.tell(Event::Prepared);
            driver.moment(Moment::Prepared, monotonic_ns());
        }
        Err(e) => driver.tell(Event::Failed(e)),
    }
    Ok(driver)
}

impl Driver {
    fn moment(&mut self, moment: Moment, now: u64) {
        let at = &mut self.moments[moment as usize];
        if *at == 0 || moment == Moment::Ended || moment == Moment::LastPe {
            *at = now;
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        self.agent.handle(event, monotonic_ns());
    }

    fn work(&mut self) -> u8 {
        let mut ready: Vec<Ready> = Vec::with_capacity(256);
        loop {
            self.act();
            self.flush();
            if self.exiting {
                return 0;
            }
            let now = monotonic_ns();
            let search = self.search_due.then_some(self.next_search);
            let until = [self.agent.next_timeout(), search]
                .into_iter()
                .flatten()
                .min();
            let timeout = until.map(|at| Duration::from_nanos(at.saturating_sub(now)));
            if let Err(e) = self.epoll.wait(&mut ready, timeout) {
                eprintln!(
                    "shmrun: the launch agent of node {} cannot wait: {e}",
                    self.launch.node
                );
                self.die();
            }
            for &event in &ready {
                self.dispatch(event);
            }
            let now = monotonic_ns();
            if self.search_due && now >= self.next_search {
                self.search_children(now);
            }
            if timer.is_some_and(|at| now >= at) {
                self.tell(Event::Timer);
            }
        }
    }

    fn dispatch(&mut self, event: Ready) {
        let at = (event.token & !KIND) as u32;
        match event.token & KIND {
            PARENT => self.parent_ready(event),
            CHILD => self.child_ready(at as usize, event),
            SIGNAL => self.signals_ready(),
            TEMPLATE => self.template_ready(),
            OUTPUTS => self.outputs_ready(),
            PMI => self.pmi_ready(at, event),
            STDIN => self.write_stdin(),
            _ => {}
        }
    }

    fn parent_ready(&mut self, event: Ready) {
        if event.readable() {
            let mut buf = std::mem::take(&mut self.scratch);
            match link::receive(&self.parent, &mut buf) {
                Got::Bytes(n) => self.tell(Event::FromParent(&buf[..n])),
                Got::Nothing => {}
                Got::End => self.tell(Event::ParentClosed),
            }
            self.scratch = buf;
        }
    }

    fn child_ready(&mut self, at: usize, event: Ready) {
        if !event.readable() {
            return;
        }
        let Some(socket) = &self.children[at].0 else {
            return;
        };
        let mut buf = std::mem::take(&mut self.scratch);
        match link::receive(socket, &mut buf) {
            Got::Bytes(n) => self.tell(Event::FromChild(at, &buf[..n])),
            Got::Nothing => {}
            Got::End => {
                self.children[at].0 = None;
                self.blocked[1 + at] = false;
                self.tell(Event::ChildClosed(at));
                self.search_due = true;
            }
        }
        self.scratch = buf;
    }

    fn signals_ready(&mut self) {
        while let Some(signal) = sys::next_signal(self.signals.as_fd()) {
            if i32::from(signal) == libc::SIGCHLD {
                self.reap_leaving();
                self.search_due = true;
            } else {
                self.tell(Event::Terminated(signal));
            }
        }
    }

    fn template_ready(&mut self) {
        loop {
            let Some(template) = self.node.as_ref().and_then(|n| n.template.as_ref()) else {
                return;
            };
            match template.receive() {
                Ok(Reply::NotYet) => return,
                Ok(Reply::Spawned(reply)) => {
                    let now = monotonic_ns();
                    self.moment(Moment::FirstPe, now);
                    self.moment(Moment::LastPe, now);
                    for &pid in &reply.pids {
                        if let Some(pe) = self.pes.get_mut(self.answered as usize) {
                            pe.pid = pid;
                            self.by_pid.insert(pid, self.answered);
                            self.answered += 1;
                        }
                    }
                    let error = (reply.errno != 0)
                        .then(|| io::Error::from_raw_os_error(reply.errno).to_string());
                    self.tell(Event::Spawned {
                        pids: &reply.pids,
                        error,
                    });
                    self.act();
                }
                Ok(Reply::Closed) | Err(_) => {
                    if let Some(node) = &mut self.node {
                        node.template = None;
                    }
                    self.tell(Event::TemplateClosed);
                    self.search_due = true;
                    return;
                }
            }
        }
    }

    fn outputs_ready(&mut self) {
        let mut ready = Vec::with_capacity(256);
        if self.outputs.wait(&mut ready, Some(Duration::ZERO)).is_err() {
            return;
        }
        let mut buf = std::mem::take(&mut self.scratch);
        for event in ready {
            if !self.agent.may_read_output() {
                break;
            }
            let local = (event.token & !KIND) as u32;
            let stream = if event.token & KIND == STDOUT {
                Stream::Out
            } else {
                Stream::Err
            };
            self.read_output(local, stream, &mut buf, event.hangup());
        }
        self.scratch = buf;
        self.park_overdue();
    }

    /// Brings a stream's descriptor back from where it is parked.
    fn unpark(&mut self, local: u32) {
        if let Some(parking) = &mut self.parking
            && self.pes[local as usize].output[Stream::Err as usize].is_none()
        {
            for (local, fd) in parking.fetch(local) {
                self.pes[local as usize].output[Stream::Err as usize] = Some(fd);
            }
        }
    }

    fn park(&mut self, locals: std::ops::Range<u32>) {
        let Some(parking) = &mut self.parking else {
            return;
        };
        let end = locals.end.min(self.pes.len() as u32);
        let fds = (locals.start..end)
            .filter_map(|l| Some((l, self.pes[l as usize].output[Stream::Err as usize].take()?)))
            .collect();
        // What cannot be parked stays in the table.
        if let Err((_, fds)) = parking.park(fds) {
            for (local, fd) in fds {
                self.pes[local as usize].output[Stream::Err as usize] = Some(fd);
            }
        }
    }

    fn park_overdue(&mut self) {
        while let Some(lot) = self.parking.as_mut().and_then(Parking::overdue) {
            self.park(lot);
        }
    }

    /// Reads once; `last` says that no writer is left, so a short read is the end.
    fn read_output(&mut self, local: u32, stream: Stream, buf: &mut [u8], last: bool) {
        if stream == Stream::Err {
            self.unpark(local);
        }
        let Some(fd) = &self.pes[local as usize].output[stream as usize] else {
            return;
        };
        let end = match sys::read(fd.as_fd(), buf) {
            Ok(0) => true,
            Ok(n) => {
                self.tell(Event::Output(local, stream, &buf[..n]));
                last && n < buf.len()
            }
            Err(e) => e.kind() != io::ErrorKind::Interrupted,
        };
        if end {
            self.pes[local as usize].output[stream as usize] = None;
            self.tell(Event::OutputClosed(local, stream));
        }
    }

    fn pmi_ready(&mut self, local: u32, event: Ready) {
        if event.readable() {
            let Some(socket) = &self.pes[local as usize].pmi else {
                return;
            };
            let mut buf = std::mem::take(&mut self.scratch);
            match link::receive(socket, &mut buf) {
                Got::Bytes(n) => self.tell(Event::FromPe(local, &buf[..n])),
                Got::Nothing => {}
                Got::End => {
                    self.pes[local as usize].pmi = None;
                    self.pes[local as usize].pmi_out = Vec::new();
                    self.leaving.push(local);
                    self.tell(Event::PeClosed(local));
                    self.reap_leaving();
                }
            }
            self.scratch = buf;
        } else if event.writable() {
            self.write_pmi(local, &[]);
        }
    }

    /// Sends what waits for a PE and then `more`.
    fn write_pmi(&mut self, local: u32, more: &[u8]) {
        let pe = &mut self.pes[local as usize];
        let Some(socket) = &pe.pmi else { return };
        let waited = !pe.pmi_out.is_empty();
        pe.pmi_out.extend_from_slice(more);
        let mut sent = 0;
        while sent < pe.pmi_out.len() {
            match sys::send(socket.as_fd(), &pe.pmi_out[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // The PE is gone; reading will say so.
                Err(_) => sent = pe.pmi_out.len(),
            }
        }
        pe.pmi_out.drain(..sent);
        let waits = !pe.pmi_out.is_empty();
        if waits != waited {
            let interest = if waits {
                Interest::ReadWrite
            } else {
                Interest::Read
            };
            let _ = self.epoll.change(socket, PMI | u64::from(local), interest);
        }
        if !waits {
            pe.pmi_out = Vec::new();
        }
    }

    fn reap_leaving(&mut self) {
        // Until the template has gone, PEs are not our children.
        if self.node.as_ref().is_some_and(|n| n.template.is_some()) {
            return;
        }
        // A long list is better served by the search.
        if self.leaving.len() > 64 {
            self.search_due = true;
            return;
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|&local| {
            let pid = self.pes[local as usize].pid;
            match pid > 0 && self.by_pid.contains_key(&pid) {
                false => false,
                true => match sys::wait(pid) {
                    Waited::Child(pid, status) => {
                        self.reaped(pid, status);
                        false
                    }
                    _ => true,
                },
            }
        });
        leaving.append(&mut self.leaving);
        self.leaving = leaving;
    }

    fn search_children(&mut self, now: u64) {
        self.search_due = false;
        let mut guard = None;
        while let Waited::Child(pid, status) = sys::wait(-1) {
            if self.node.as_ref().is_some_and(|n| n.group.id() == pid) {
                guard = Some(status);
            } else {
                self.reaped(pid, status);
            }
        }
        // After the PEs: if one of them killed the whole group, it is the one to be named.
        if let (Some(status), Some(node)) = (guard, &mut self.node) {
            node.group.guard_reaped();
            if !self.by_pid.is_empty() {
                let end = End::from_wait(status);
                self.tell(Event::Failed(format!(
                    "the guard of the PEs' process group {end}"
                )));
            }
        }
        let by_pid = &self.by_pid;
        self.leaving
            .retain(|&l| by_pid.contains_key(&self.pes[l as usize].pid));
        let alive = self.by_pid.len() as u64;
        self.next_search = now + SEARCH_NS_MIN.max(alive * SEARCH_NS_PER_PE);
    }

    fn reaped(&mut self, pid: i32, status: i32) {
        let end = End::from_wait(status);
        if let Some(local) = self.by_pid.remove(&pid) {
            let unfinalized = self.node.as_ref().is_some_and(|n| {
                let state = n.segment.pe_state(local as usize);
                state != PeState::Fresh && state != PeState::Finalized
            });
            if end != End::Code(0) || unfinalized {
                self.drain_output(local);
            }
            self.moment(Moment::Ended, monotonic_ns());
            self.tell(Event::Reaped {
                local,
                end,
                unfinalized,
            });
        } else if let Some(at) = self.children.iter().position(|c| c.1 == pid) {
            self.children[at].1 = 0;
            self.tell(Event::ChildReaped(at, end));
        } else if let Some(node) = &mut self.node
            && node.template_pid == pid
        {
            node.template_pid = 0;
        }
    }

    /// Passes on what a failed PE wrote last, so that it stands before the message about it.
    fn drain_output(&mut self, local: u32) {
        let mut buf = std::mem::take(&mut self.scratch);
        self.unpark(local);
        for stream in Stream::ALL {
            while self.agent.may_read_output()
                && self.pes[local as usize].output[stream as usize]
                    .as_ref()
                    .is_some_and(|fd| sys::poll_readable(fd.as_fd(), Duration::ZERO))
            {
                self.read_output(local, stream, &mut buf, false);
            }
        }
        self.scratch = buf;
        self.park_overdue();
    }

    fn act(&mut self) {
        while let Some(action) = self.agent.poll_action() {
            match action {
                Action::Spawn { first, count } => self.spawn(first, count),
                Action::FinishTemplate => {
                    if let Some(template) = self.node.as_ref().and_then(|n| n.template.as_ref()) {
                        // A template that is gone needs no telling.
                        let _ = template.finish();
                    }
                }
                Action::Signal(signal) => {
                    if let Some(node) = &self.node {
                        node.group.signal(signal.into());
                        // A stopped process would not get to the signal that is to end it.
                        if !matches!(signal, 10 | 12) {
                            node.group.signal(libc::SIGCONT);
                        }
                    }
                }
                Action::ToPe(local, bytes) => self.write_pmi(local, &bytes),
                Action::Publish {
                    request,
                    value_len,
                    values,
                } => {
                    if let Some(node) = &self.node {
                        node.segment
                            .publish_gather(request as u32, value_len, &values);
                    }
                }
                Action::Stdin(data) => {
                    self.stdin_queue.extend_from_slice(&data);
                    self.write_stdin();
                }
                Action::StdinEnd => {
                    self.stdin_ended = true;
                    self.write_stdin();
                }
                Action::CloseOutput(stream) => self.close_outputs(Some(stream), true),
                Action::DropOutput => self.close_outputs(None, false),
                Action::KillAll => self.kill_all(),
                Action::CleanUp => self.clean_up(),
                Action::Exit => {
                    link::send_all(&self.parent, self.agent.outgoing(None));
                    self.exiting = true;
                }
                Action::Die => self.die(),
            }
        }
        let may_read = self.agent.may_read_output();
        if may_read != self.reading_outputs {
            self.reading_outputs = may_read;
            let interest = if may_read {
                Interest::Read
            } else {
                Interest::Nothing
            };
            let _ = self.epoll.change(&self.outputs.fd(), OUTPUTS, interest);
        }
    }

    fn flush(&mut self) {
        let hold = self.agent.hold_until().is_some_and(|until| monotonic_ns() < until);
        if !hold {
            self.agent.flushed();
        }
        let sockets =
            std::iter::once(Some(&self.parent)).chain(self.children.iter().map(|c| c.0.as_ref()));
        for (at, socket) in sockets.enumerate() {
            let child = at.checked_sub(1);
            let out = self.agent.outgoing(child);
            if out.pending().is_empty() || (hold && child.is_none()) {
                continue;
            }
            let Some(socket) = socket else {
                let n = out.pending().len();
                out.consume(n);
                continue;
            };
            let blocked = !link::flush(socket, out);
            if blocked != self.blocked[at] {
                self.blocked[at] = blocked;
                let token = child.map_or(PARENT, |c| CHILD | c as u64);
                let interest = if blocked {
                    Interest::ReadWrite
                } else {
                    Interest::Read
                };
                let _ = self.epoll.change(socket, token, interest);
            }
        }
    }

    fn spawn(&mut self, first: u32, count: u32) {
        if let Err(e) = self.try_spawn(first, count) {
            let raise = if e.raw_os_error() == Some(libc::EMFILE) {
                " (ulimit -n)"
            } else {
                ""
            };
            for local in first..first + count {
                self.pes[local as usize].output = [None, None];
                for stream in Stream::ALL {
                    self.tell(Event::OutputClosed(local, stream));
                }
            }
            self.tell(Event::Spawned {
                pids: &[],
                error: Some(format!("{e}{raise}")),
            });
        }
    }

    /// Makes the descriptors of a batch of PEs and asks the template for them.
    fn try_spawn(&mut self, first: u32, count: u32) -> io::Result<()> {
        let first_rank = Layout::of(self.launch.n_pes, self.launch.n_nodes)
            .ranks(self.launch.node)
            .start;
        let mut specs = Vec::with_capacity(count as usize);
        let mut theirs: Vec<OwnedFd> = Vec::with_capacity(3 * count as usize + 1);
        for local in first..first + count {
            let rank = first_rank + local;
            for stream in Stream::ALL {
                let (read, write) = sys::pipe()?;
                let kind = if stream == Stream::Out {
                    STDOUT
                } else {
                    STDERR
                };
                self.outputs
                    .add(&read, kind | u64::from(local), Interest::Read)?;
                self.pes[local as usize].output[stream as usize] = Some(read);
                theirs.push(write);
            }
            let (ours, pmi) = sys::socketpair(libc::SOCK_STREAM)?;
            self.epoll
                .add(&ours, PMI | u64::from(local), Interest::Read)?;
            self.pes[local as usize].pmi = Some(ours);
            theirs.push(pmi);
            if rank == 0 {
                let (read, write) = sys::pipe()?;
                sys::set_nonblocking(write.as_fd())?;
                theirs.push(read);
                self.stdin = Some(write);
            }
            specs.push(PeSpec {
                rank,
                local,
                has_stdin: rank == 0,
            });
        }
        if let Some(template) = self.node.as_ref().and_then(|n| n.template.as_ref()) {
            let fds: Vec<RawFd> = theirs.iter().map(AsRawFd::as_raw_fd).collect();
            match template.spawn(&specs, &fds) {
                Ok(()) => {}
                // Its end is noticed when it is read.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) => {}
                Err(e) => return Err(e),
            }
        }
        drop(theirs);
        self.park(first..first + count);
        if first == 0 {
            self.write_stdin();
        }
        Ok(())
    }

    fn write_stdin(&mut self) {
        let Some(pipe) = &self.stdin else {
            // Before PE 0 exists input waits; after it has closed its end input is thrown away,
            // and without credit no more comes.
            if self.answered > 0 {
                self.stdin_queue.clear();
            }
            return;
        };
        let mut sent = 0;
        let mut broken = false;
        while sent < self.stdin_queue.len() {
            match sys::write(pipe.as_fd(), &self.stdin_queue[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        self.stdin_queue.drain(..sent);
        debug_assert!(self.stdin_queue.len() <= STDIN_WINDOW as usize);
        if broken || (self.stdin_ended && self.stdin_queue.is_empty()) {
            self.stdin_queue = Vec::new();
            self.stdin = None;
        } else if !self.stdin_queue.is_empty() {
            // Registered only while something waits: an idle pipe would always be writable.
            if self.epoll.change(pipe, STDIN, Interest::Write).is_err() {
                let _ = self.epoll.add(pipe, STDIN, Interest::Write);
            }
        } else {
            let _ = self.epoll.remove(pipe);
        }
        if sent > 0 && !broken {
            self.tell(Event::StdinTaken(sent as u32));
        }
    }

    /// Closes the read ends of one stream or of both; `tell` lets the agent know.
    fn close_outputs(&mut self, only: Option<Stream>, tell: bool) {
        for local in 0..self.pes.len() as u32 {
            for stream in Stream::ALL
                .into_iter()
                .filter(|&s| only.is_none_or(|o| o == s))
            {
                if stream == Stream::Err {
                    self.unpark(local);
                }
                if self.pes[local as usize].output[stream as usize]
                    .take()
                    .is_some()
                    && tell
                {
                    self.tell(Event::OutputClosed(local, stream));
                }
            }
        }
    }

    fn kill_all(&mut self) {
        if let Some(node) = &self.node {
            node.group.signal(libc::SIGKILL);
        }
        for pid in sys::children() {
            if !self.children.iter().any(|c| c.1 == pid) {
                sys::kill(pid, libc::SIGKILL);
            }
        }
        self.search_due = true;
    }

    fn clean_up(&mut self) {
        self.close_outputs(None, false);
        self.stdin = None;
        let agents: Vec<i32> = self.children.iter().map(|c| c.1).collect();
        bury(|pid| agents.contains(&pid), BURY_PATIENCE, BURY_LIMIT);
        let mut report = Reduced {
            agents: 1,
            ..Reduced::default()
        };
        for (aggregate, &at) in report.moments.iter_mut().zip(&self.moments) {
            if at != 0 {
                aggregate.add(at);
            }
        }
        if self.launch.report
            && let Some(node) = &self.node
        {
            for local in 0..self.answered as usize {
                report.add_pe(&node.segment.pe_stats(local));
            }
        }
        report.agent_cpu.add(sys::process_cpu_ns());
        self.tell(Event::CleanedUp(report));
    }

    fn die(&mut self) -> ! {
        // Their links end: child agents do the same.
        for child in &mut self.children {
            child.0 = None;
        }
        self.kill_all();
        let agents: Vec<i32> = self.children.iter().map(|c| c.1).collect();
        bury(|pid| agents.contains(&pid), BURY_PATIENCE, BURY_LIMIT);
        sys::exit_now(crate::exit::LAUNCHER)
    }
}
