//! The process that the user started, around [`crate::root::Root`].
//!
//! Each of the standard streams has a thread that reads or writes it, started after the last fork, so
//! the main loop never waits for any of them: see `streams`.
//!
//! # Signals
//! They are blocked and read from a descriptor, but for those that were ignored when `shmrun` started
//! (as `nohup` and scripts' background jobs have it): these stay ignored, by the PEs, too. Ctrl-Z
//! stops the PEs on all nodes, then `shmrun` itself; agents have nothing to do meanwhile. When it is
//! continued, so are they.

mod asked;
mod files;
mod spawned;
mod streams;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use shmem_node::recording::Recording;

use super::agent::children::{self, ChildIo};
use super::agent::fork_agent;
use super::link::{self, Got, LinkIo};
use super::memory;
use super::pmix;
use super::reap::reap_all;
use crate::child::ChildSetup;
use crate::cli::Cli;
use crate::exit::End;
use crate::frame::{InputTo, Launch, Stream};
use crate::job::Job;
use crate::report::{self, Launcher, Reduced};
use crate::root::{Action, Event, Root, Setup};
use crate::seeing;
use crate::sys::{self, Epoll, Interest, Waited, monotonic_ns};
use asked::{CLIENTS, StatusSocket};
use files::Files;
use spawned::{SPAWNED, SpawnedIo};
use streams::{Note, Notes, Room, Text, Writer, put_file, reader, writers};

pub(crate) use spawned::Outer;
pub(crate) use streams::{Lost, put};

/// What `shmrun` acts on.
const SIGNALS: [i32; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCHLD,
];

const LINK: u64 = 0;
const SIGNAL: u64 = 1;
const NOTES: u64 = 2;
const SHELL: u64 = 3;
const OUTER: u64 = 4;

/// How long processes that are left after the agents' end may take, before they are killed and in
/// all.
const REAP_PATIENCE: Duration = Duration::from_millis(1500);
const REAP_LIMIT: Duration = Duration::from_secs(5);

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) facts: Launcher,
    pub(crate) report: Option<Reduced>,
    pub(crate) recordings: Vec<Recording>,
    /// Whether standard output ends within a line.
    within_line: bool,
}

/// Runs a job to its end; a spawned one for who asked for it.
///
/// # Errors
/// When not even the first agent can be started.
///
/// # Safety
/// This process has a single thread.
pub(crate) unsafe fn run(job: Job, outer: Option<Outer>) -> io::Result<Outcome> {
    let Job {
        launch,
        first_is_here,
        spawn_options,
        output,
        mut facts,
        ..
    } = job;
    let files = output
        .map(|dir| Files::prepare(&dir, launch.n_pes))
        .transpose()?;
    let taken = settle()?;
    let by_shell = !first_is_here;
    let serves_pmix = launch.pmix.is_some();
    // SAFETY: one thread, as promised by the caller.
    let fork = || unsafe { fork_agent(true) };
    // SAFETY: one thread, as promised by the caller.
    let agent = match unsafe { children::start_agent(&launch, by_shell, fork, LINK) } {
        Err(e) if !by_shell => return Err(sys::naming("cannot start the first launch agent")(e)),
        agent => agent?,
    };

    let signals = sys::signalfd(&taken)?;
    let wake = Arc::new(sys::eventfd()?);
    let epoll = Epoll::new()?;
    agent.io.link.watch(&epoll)?;
    epoll.add(&signals, SIGNAL, Interest::Read)?;
    epoll.add(&wake, NOTES, Interest::Read)?;
    if let Some(said) = &agent.io.said {
        epoll.add(said, SHELL, Interest::Read)?;
    }
    let number = outer.as_ref().map(|outer| outer.job.number);
    let outer = outer.map(|outer| outer.link).unwrap_or_default();
    outer.watch(&epoll)?;
    let asked = StatusSocket::listen(&epoll, facts.program.clone());
    let (sender, inbox) = channel();
    let notes = Notes {
        sender,
        wake: wake.clone(),
    };
    let room = Arc::new(Room::default());
    let reads = number.is_none() && launch.input != InputTo::Nobody;
    if reads {
        reader(notes.clone(), room.clone())?;
    }
    let mut driver = LauncherProcess {
        root: Root::new(root_setup(&launch, agent.setup, number)),
        launch: by_shell.then_some(launch),
        agent: agent.io,
        reading_shell: true,
        epoll,
        signals,
        wake,
        inbox,
        writers: writers(&notes, files)?,
        room,
        room_given: 0,
        spawn_options,
        spawned: Vec::new(),
        outer,
        asked,
    };
    *driver.root.outgoing() = agent.unsent;
    if !reads {
        driver.handle(Event::StdinEnd);
    }
    let status = driver.work();
    let status = status.map_err(sys::naming("cannot wait for what happens in it"))?;
    facts.status = status;
    Ok(driver.end(facts, serves_pmix))
}

/// What the launcher's state machine needs to know of the job.
fn root_setup(launch: &Launch, agent: ChildSetup, spawned_as: Option<u32>) -> Setup {
    let hosts = launch.machines.iter().flat_map(|machines| &machines.hosts);
    Setup {
        n_pes: launch.n_pes,
        n_nodes: launch.n_nodes,
        options: launch.options.clone(),
        began: monotonic_ns(),
        agent,
        hosts: hosts.map(|host| host.name.clone()).collect(),
        job_id: shmem_node::contract::hex(&launch.job_id),
        spawned_as,
    }
}

/// Puts this process in order. Gives the signals that it takes.
fn settle() -> io::Result<Vec<i32>> {
    let mut taken: Vec<i32> = SIGNALS.to_vec();
    taken.retain(|&s| s == libc::SIGCHLD || !sys::is_ignored(s));
    // SIGTTIN blocked: a background read fails instead of stopping the launcher.
    let blocked: Vec<i32> = taken.iter().copied().chain([libc::SIGTTIN]).collect();
    sys::set_blocked(&blocked);
    sys::leave_no_core_file();
    memory::note();
    sys::set_ignored(libc::SIGCHLD, false);
    sys::become_subreaper()?;
    Ok(taken)
}

struct LauncherProcess {
    root: Root,
    /// What node 0's agent is told, if it may have to be started anew.
    launch: Option<Launch>,
    /// Node 0's agent.
    agent: ChildIo,
    reading_shell: bool,
    epoll: Epoll,
    signals: OwnedFd,
    wake: Arc<OwnedFd>,
    inbox: Receiver<Note>,
    writers: [Writer; 2],
    room: Arc<Room>,
    /// Room that the reader was told of and has not answered with input.
    room_given: u32,
    spawn_options: Vec<OsString>,
    /// Launchers of jobs that PEs have spawned.
    spawned: Vec<SpawnedIo>,
    /// The link to the launcher that started this one, if this job was spawned.
    outer: LinkIo,
    /// Other processes of the user that ask what the job does.
    asked: StatusSocket,
}

impl LauncherProcess {
    /// Leaves nothing of the job, and tells what it was.
    fn end(mut self, mut facts: Launcher, serves_pmix: bool) -> Outcome {
        if let Some(out) = self.root.outgoing_outer() {
            self.outer.send_all(out);
        }
        // A remote shell ends when its link does.
        self.agent.link.close();
        self.spawned.clear();
        reap_all(|_| true, REAP_PATIENCE, REAP_LIMIT);
        if serves_pmix {
            // Those of agents that were killed together with their servers.
            pmix::remove_abandoned();
        }
        let moments = self.root.moments();
        facts.ready = moments.ready;
        facts.started = moments.started;
        facts.exited = moments.exited;
        facts.done = monotonic_ns();
        let mut recordings = self.root.take_recordings();
        recordings.sort_by_key(|recording| recording.rank);
        Outcome {
            facts,
            report: self.root.report().cloned(),
            within_line: self.root.ends_within_line(Stream::Out),
            recordings,
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        self.root.handle(event, monotonic_ns());
    }

    fn work(&mut self) -> io::Result<u8> {
        let mut ready = Vec::new();
        let mut buf = vec![0; 256 << 10];
        loop {
            while let Some(action) = self.root.poll_action() {
                match action {
                    Action::StartJob { number } => self.start_spawned(number),
                    Action::Answer { client, text } => self.answer(client, text),
                    Action::StartAgent => self.start_agent(),
                }
            }
            self.write_texts();
            self.flush()?;
            self.flush_spawned()?;
            self.watch_shell()?;
            self.watch_spawned()?;
            if let Some(status) = self.root.finished() {
                return Ok(status);
            }
            // Asked for again only when the last quota came: a reader that holds room may be
            // blocked in a read for as much.
            if self.room_given == 0 {
                self.room_given = self.root.stdin_room();
                if self.room_given > 0 {
                    self.room.set(self.room_given);
                }
            }
            let timeout = self
                .root
                .next_timeout()
                .map(|at| Duration::from_nanos(at.saturating_sub(monotonic_ns())));
            self.epoll.wait(&mut ready, timeout)?;
            for event in &ready {
                match event.token {
                    LINK => self.link_ready(&mut buf),
                    SIGNAL => self.signals_ready(&mut buf),
                    OUTER => self.outer_ready(&mut buf),
                    token if token >= CLIENTS => self.asked_ready(token),
                    token if token >= SPAWNED => self.spawned_ready(token, &mut buf),
                    SHELL => drop(self.read_shell(&mut buf)),
                    _ => self.notes_ready(),
                }
            }
            self.handle(Event::Timer);
        }
    }

    /// Starts the remote shell of node 0's agent anew.
    fn start_agent(&mut self) {
        let started = self.try_to_start().map_err(|e| e.to_string());
        self.handle(Event::AgentStarted(started));
    }

    fn try_to_start(&mut self) -> io::Result<u32> {
        let launch = self.launch.as_ref().ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: the remote shell is executed at once; the threads that read and write streams share nothing
        // with what happens before that but the allocator.
        let started = unsafe { children::start_by_shell(launch, LINK) };
        let (agent, unsent) = started.map_err(io::Error::other)?;
        *self.root.outgoing() = unsent;
        agent.link.watch(&self.epoll)?;
        if let Some(said) = &agent.said {
            self.epoll.add(said, SHELL, Interest::Read)?;
        }
        self.reading_shell = true;
        self.agent = agent;
        Ok(self.agent.pid as u32)
    }

    fn link_ready(&mut self, buf: &mut [u8]) {
        match self.agent.link.receive(buf) {
            Got::Bytes(n) => self.handle(Event::FromAgent(&buf[..n])),
            Got::Nothing => {}
            Got::End => {
                // Why it ended stands before the message that it did.
                while self.read_shell(buf) {}
                self.handle(Event::AgentClosed);
                self.reap();
            }
        }
    }

    /// Reads once what node 0's remote shell says. False if there is nothing more for now.
    fn read_shell(&mut self, buf: &mut [u8]) -> bool {
        let Got::Bytes(n) = link::read(&mut self.agent.said, buf) else {
            return false;
        };
        self.handle(Event::ShellText(&buf[..n]));
        true
    }

    /// While the terminal is blocked, so is what would be written to it.
    fn watch_shell(&mut self) -> io::Result<()> {
        let may_read = self.root.may_read_shell();
        if let Some(said) = &self.agent.said
            && may_read != self.reading_shell
        {
            self.reading_shell = may_read;
            let interest = if may_read {
                Interest::Read
            } else {
                Interest::Nothing
            };
            self.epoll.change(said, SHELL, interest)?;
        }
        Ok(())
    }

    fn outer_ready(&mut self, buf: &mut [u8]) {
        match self.outer.receive(buf) {
            Got::Bytes(n) => self.handle(Event::FromOuter(&buf[..n])),
            Got::Nothing => {}
            // It was killed. Agents do the same when they see their links end.
            Got::End => sys::exit_now(crate::exit::LAUNCHER),
        }
    }

    fn signals_ready(&mut self, buf: &mut [u8]) {
        while let Some(signal) = sys::next_signal(self.signals.as_fd()) {
            match i32::from(signal) {
                libc::SIGCHLD => {
                    self.reap();
                    self.reap_spawned(buf);
                }
                libc::SIGTSTP => self.stop(),
                _ => self.handle(Event::Signal(signal)),
            }
        }
    }

    /// Stops the job and this process, until somebody continues it. (If nobody could, as in a session
    /// without job control, the kernel does not stop it.)
    fn stop(&mut self) {
        self.handle(Event::Signal(libc::SIGTSTP as u8));
        // What the agents do not take at once reaches them when this goes on; they are not blocked
        // by something that we do.
        let _ = self.flush().and_then(|()| self.flush_spawned());
        let stopped = monotonic_ns();
        sys::stop();
        self.handle(Event::Continued(monotonic_ns() - stopped));
    }

    /// Only the agent: what else becomes our child is an orphan of a lost agent and is reaped at
    /// the end.
    fn reap(&mut self) {
        if self.agent.pid != 0
            && let Waited::Child(_, status) = sys::wait(self.agent.pid)
        {
            self.agent.pid = 0;
            self.handle(Event::AgentReaped(memory::of_agent(End::from_wait(status))));
        }
    }

    fn notes_ready(&mut self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        while let Ok(note) = self.inbox.try_recv() {
            match note {
                Note::Written(stream, n) => {
                    self.writers[stream as usize].is_busy = false;
                    self.handle(Event::Written(stream, n));
                }
                Note::Closed(stream, why) => {
                    self.writers[stream as usize].is_busy = false;
                    self.handle(Event::StreamClosed(stream, why));
                }
                Note::Stdin(data) => {
                    self.room_given = 0;
                    self.handle(Event::Stdin(&data));
                }
                Note::StdinEnd(why) => {
                    if let Some(why) = why {
                        self.handle(Event::StdinFailed(why));
                    }
                    self.handle(Event::StdinEnd);
                }
            }
        }
    }

    fn write_texts(&mut self) {
        for stream in Stream::ALL {
            if self.writers[stream as usize].is_busy {
                continue;
            }
            let mixed = self.root.take_text(stream);
            let separate = self.root.take_files(stream);
            if !mixed.is_empty() || !separate.is_empty() {
                self.writers[stream as usize].write(Text { mixed, separate });
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(out) = self.root.outgoing_outer() {
            self.outer.flush(out, &self.epoll)?;
        }
        let out = self.root.outgoing();
        self.agent.link.flush(out, &self.epoll)
    }
}

/// Writes the reports that were asked for.
///
/// # Errors
/// The file that cannot be written, and why.
pub(crate) fn write_reports(outcome: &Outcome, cli: &Cli) -> Result<(), Lost> {
    let none = Reduced::default();
    let launcher = &outcome.facts;
    let reduced = outcome.report.as_ref().unwrap_or(&none);
    let job = seeing::Job {
        launcher,
        reduced,
        recordings: &outcome.recordings,
    };
    let within_line = std::cell::Cell::new(outcome.within_line);
    let write = |file: &OsStr, what: &str, content: &[u8]| {
        let written = match file == "-" || file.as_encoded_bytes().starts_with(b"-.") {
            true => {
                let line_end = if within_line.take() { "\n" } else { "" };
                put(Stream::Out, [line_end.as_bytes(), content].concat())
            }
            false => put_file(file, content),
        };
        written.map_err(|lost| Lost {
            message: lost.message.map(|why| format!("the {what} is lost: {why}")),
            ..lost
        })
    };
    for file in &cli.report {
        let content = if seeing::is_page(file) {
            seeing::page(&job)
        } else if report::is_json(file) {
            report::to_json(launcher, reduced)
        } else {
            report::to_text(launcher, reduced)
        };
        write(file, "report", content.as_bytes())?;
    }
    if let Some(file) = &cli.trace {
        write(file, "trace", &seeing::timeline(&job))?;
    }
    Ok(())
}
