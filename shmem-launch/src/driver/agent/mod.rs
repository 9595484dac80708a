//! The process of a node launch agent: one thread, one epoll loop, around [`crate::agent::Agent`].

mod census;
pub(super) mod children;
mod ending;
mod input;
mod messages;
mod pe_io;
mod pmix;
mod requests;
mod respawn;
mod start;
mod trace;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::parent_id;
use std::time::Duration;

use super::link::{Got, LinkIo};
use super::node::Node;
use super::pmix::PmixIo;
use super::reap::Reaping;
use crate::agent::{Action, Agent, Event, Service};
use crate::exit::{End, ends};
use crate::frame::{Launch, Stream};
use crate::report::{Moment, Used};
use crate::sys::{self, Epoll, Ready, monotonic_ns};
use children::ChildIo;
use ending::Ending;
use input::Input;
use pe_io::Sources;
use requests::Starts;
pub(super) use start::fork_agent;
pub(crate) use start::run_remote;
use trace::Tracing;

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
const SHELL: u64 = 10 << 32;
const PMIX: u64 = 11 << 32;
const TRACE: u64 = 12 << 32;
const MESSAGES: u64 = 13 << 32;
const KIND: u64 = 0xffff_ffff << 32;

#[derive(Debug, Default)]
struct PeIo {
    pid: i32,
    output: [Option<OwnedFd>; 2],
    pmi: Option<OwnedFd>,
    /// Bytes that the PE's PMI socket did not take at once.
    pmi_out: Vec<u8>,
    /// What is waited for at that socket.
    pmi_interest: PmiInterest,
    /// How its process has ended, the last one, and what that took.
    ended: Option<(End, Used)>,
}

impl PeIo {
    /// Forgets all of a process but how it has ended.
    fn forget(&mut self) {
        let ended = self.ended;
        *self = Self {
            ended,
            ..Self::default()
        };
    }
}

/// What an agent waits for at a PE's PMI socket.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PmiInterest {
    #[default]
    Requests,
    /// Room for replies, too.
    Both,
    /// Room alone: a PE that does not take its replies may not ask for more.
    Room,
}

struct AgentProcess {
    agent: Box<Agent>,
    launch: Launch,
    parent: LinkIo,
    children: Vec<ChildIo>,
    epoll: Epoll,
    signals: OwnedFd,
    node: Option<Node>,
    /// The node's PMIx server, where there is one.
    pmix: Option<PmixIo>,
    pes: Vec<PeIo>,
    sources: Sources,
    starts: Starts,
    ending: Ending,
    input: Input,
    moments: [u64; crate::report::MOMENTS],
    /// Tools that find out the stacks of PEs.
    tracing: Tracing,
}

impl AgentProcess {
    fn moment(&mut self, moment: Moment, now: u64) {
        let at = &mut self.moments[moment as usize];
        if *at == 0 || moment == Moment::Ended || moment == Moment::LastPe {
            *at = now;
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        self.agent.handle(event, monotonic_ns());
    }

    fn work(&mut self) -> u8 {
        let mut ready: Vec<Ready> = Vec::with_capacity(256);
        loop {
            self.perform_actions();
            self.flush_up();
            self.flush_down();
            self.flush_pmix();
            if self.ending.exiting
                && (self.agent.outgoing(None).is_empty() || !self.parent.is_open())
            {
                self.wake_warden();
                return 0;
            }
            let now = monotonic_ns();
            let search = self.ending.search_due && self.ending.reaping.is_none();
            let search = search.then_some(self.ending.next_search);
            let timer = self.agent.next_timeout();
            let going_on = self.agent.stopped().is_none();
            let retry = self.starts.refused.filter(|_| going_on).map(|r| r.again);
            let overdue = self.next_overdue().filter(|_| going_on);
            let reaping = self.ending.reaping.as_ref().map(Reaping::again);
            let late = self.pmix_overdue();
            let trace = self.next_trace_end();
            let until = [timer, search, retry, overdue, reaping, late, trace];
            let until = until.into_iter().flatten().min();
            let timeout = until.map(|at| Duration::from_nanos(at.saturating_sub(now)));
            if let Err(e) = self.epoll.wait(&mut ready, timeout) {
                crate::log!(
                    "shmrun: the launch agent of node {} cannot wait: {e}",
                    self.launch.node
                );
                self.die();
            }
            for &event in &ready {
                self.dispatch(event);
            }
            let now = monotonic_ns();
            self.end_late_tools(now);
            if retry.is_some_and(|at| now >= at) {
                self.send_requests(now);
            }
            if overdue.is_some_and(|at| now >= at) {
                self.end_overdue(now);
            }
            if late.is_some_and(|at| now >= at) {
                self.pmix_is_late();
            }
            if self.ending.reaping.is_some() {
                self.go_on_reaping(now);
            } else if self.ending.search_due && now >= self.ending.next_search {
                self.search_children(now);
            }
            if timer.is_some_and(|at| now >= at) {
                self.handle(Event::Timer);
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
            PMIX => self.read_pmix(),
            MESSAGES => self.read_messages(),
            STDIN => self.input_ready(at),
            STDOUT => self.watched_ready(at, Stream::Out),
            STDERR => self.watched_ready(at, Stream::Err),
            TRACE => self.trace_ready(at),
            _ => {}
        }
    }

    fn parent_ready(&mut self, event: Ready) {
        if event.readable() {
            let mut buf = std::mem::take(&mut self.sources.scratch);
            match self.parent.receive(&mut buf) {
                Got::Bytes(n) => self.handle(Event::FromParent(&buf[..n])),
                Got::Nothing => {}
                Got::End => self.handle(Event::ParentClosed),
            }
            self.sources.scratch = buf;
        }
    }

    fn signals_ready(&mut self) {
        while let Some(signal) = sys::next_signal(self.signals.as_fd()) {
            if i32::from(signal) == libc::SIGCHLD {
                self.reap_spawners();
                self.reap_leaving();
                self.ending.search_due = true;
            } else {
                self.handle(Event::Terminated(signal));
            }
        }
    }

    fn perform_actions(&mut self) {
        loop {
            self.perform_queued();
            if !self.read_left() {
                break;
            }
        }
        self.watch_outputs();
        self.watch_messages();
    }

    fn perform_queued(&mut self) {
        while let Some(action) = self.agent.poll_action() {
            match action {
                Action::StartPes { first, count } => self.spawn(first, count),
                Action::FinishTemplate => {
                    if let Some(template) = self.node.as_ref().and_then(|n| n.template.as_ref()) {
                        // A template that is gone needs no telling.
                        let _ = template.finish();
                    }
                }
                Action::FindParent => self.find_parent(),
                Action::FindAttached { lost } => {
                    if self.any_attached() {
                        self.handle(Event::Attached { lost });
                    }
                }
                Action::Signal(signal) => self.signal(signal),
                Action::Continued(by) => self.postpone(by),
                Action::ToPe(local, bytes) => self.write_pmi(local, &bytes),
                Action::ToPmix(frame) => {
                    if let Some(pmix) = &mut self.pmix {
                        pmix.out.tail().extend(frame);
                    }
                }
                Action::Publish {
                    of,
                    request,
                    value_len,
                    offset,
                    values,
                    last,
                } => {
                    if let Some(node) = &self.node {
                        let (view, request) = (node.segment.view(), request as u32);
                        let gather = match of {
                            Service::Pmi => view.gather(),
                            Service::Addresses => view.addresses(),
                        };
                        if offset == 0 {
                            gather.begin(request, value_len);
                        }
                        gather.write(request, offset, &values);
                        if last {
                            gather.finish(request);
                        }
                    }
                }
                Action::CloseOutputOf(local) => {
                    self.sources.left.push((local, [pe_io::LAST_READS; 2]))
                }
                Action::Respawn { local, count } => self.respawn(local, count),
                Action::Count(number) => self.count(number),
                Action::Trace {
                    number,
                    pe,
                    budget_ms,
                } => self.trace(number, pe, budget_ms),
                Action::StartChild(at) => self.start_child(at),
                Action::DropChild(at) => self.drop_child(at),
                Action::Stdin(data) => self.add_input(&data),
                Action::StdinEnd => self.end_input(),
                Action::CloseOutput(stream) => self.close_outputs(Some(stream), true),
                Action::DropOutput => self.close_outputs(None, false),
                Action::KillAll => self.kill_all(),
                Action::CleanUp => self.clean_up(),
                Action::Exit => self.ending.exiting = true,
                Action::Die => self.die(),
            }
        }
    }

    fn signal(&mut self, signal: u8) {
        if let Some(node) = &self.node {
            node.group.signal(signal.into());
            // A stopped process would not get to the signal that is to end it.
            if ends(signal) {
                node.group.signal(libc::SIGCONT);
            }
        }
    }

    /// A silent parent may be stopped, which shows only if it is on this machine.
    fn find_parent(&mut self) {
        let stopped = !self.parent.is_remote() && sys::is_stopped(parent_id() as i32);
        if !stopped {
            super::log_without_waiting(format_args!(
                "shmrun: node {}: nothing was heard of the parent for {} s (SHMEM_HEARTBEAT_TIMEOUT); ending \
                 the PEs of this node",
                self.launch.node,
                self.launch.options.heartbeat.as_secs_f64()
            ));
        }
        self.handle(Event::ParentFound { stopped });
    }

    /// Whoever starts PEs was stopped for so long.
    fn postpone(&mut self, by: u64) {
        if let Some(refused) = &mut self.starts.refused {
            refused.postpone(by);
        }
        let overdue = self
            .starts
            .respawning
            .iter_mut()
            .filter_map(|r| r.overdue.as_mut());
        overdue.for_each(|at| *at += by);
    }

    fn flush_up(&mut self) {
        let out = self.agent.outgoing(None);
        if self.parent.flush(out, &self.epoll).is_err() {
            self.handle(Event::ParentClosed);
            self.perform_actions();
        }
    }
}
