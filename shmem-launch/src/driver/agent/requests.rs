//! Asking the template for PEs, a batch at a time.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use shmem_node::template::message::{BIND, Refusal, Step};
use shmem_node::template::{Lost, PeSpec, Reply};

use super::pe_io::PePipes;
use super::respawn::Respawning;
use super::{AgentProcess, PMI, STDERR, STDOUT};
use crate::agent::Event;
use crate::exit::Cause;
use crate::frame::Stream;
use crate::program;
use crate::report::Moment;
use crate::sys::{Interest, monotonic_ns};

/// How soon a request that the kernel has refused for now is tried again, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(1);
const RETRY_LAST: Duration = Duration::from_millis(64);

/// How long the kernel may refuse it.
const RETRY_LIMIT: Duration = Duration::from_secs(120);

/// A request to the template that waits to be sent.
#[derive(Debug)]
pub(super) struct Request {
    first: u32,
    specs: Vec<PeSpec>,
    /// The PEs' ends.
    theirs: Vec<OwnedFd>,
}

/// Since when the kernel refuses to take descriptors to the template, and when to try again: many
/// agents of one user may have too many of them on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    since: u64,
    pub(super) again: u64,
    pause: u64,
}

impl Refused {
    /// After another refusal; `None` when it has lasted too long.
    fn once_more(before: Option<Self>, now: u64) -> Option<Self> {
        let since = before.map_or(now, |r| r.since);
        let pause = before.map_or(RETRY_FIRST.as_nanos() as u64, |r| {
            (2 * r.pause).min(RETRY_LAST.as_nanos() as u64)
        });
        (now.saturating_sub(since) < RETRY_LIMIT.as_nanos() as u64).then_some(Self {
            since,
            again: now + pause,
            pause,
        })
    }

    /// Nobody could take anything for so long.
    pub(super) fn postpone(&mut self, by: u64) {
        self.since += by;
        self.again += by;
    }
}

/// PEs that are being started.
#[derive(Default)]
pub(super) struct Starts {
    /// Requests for the template that wait to be sent, and whether the kernel refuses them for now.
    unsent: VecDeque<Request>,
    pub(super) refused: Option<Refused>,
    /// PEs that the template has started; they are the first ones.
    pub(super) answered: u32,
    /// Why the template has executed PEs, if it has.
    pub(super) lost: Lost,
    /// PEs that are being started again.
    pub(super) respawning: Vec<Respawning>,
}

impl AgentProcess {
    pub(super) fn spawn(&mut self, first: u32, count: u32) {
        match self.prepare_request(first, count) {
            Ok(request) => {
                self.starts.unsent.push_back(request);
                self.send_requests(monotonic_ns());
            }
            Err(e) => self.not_spawned(first..first + count, e.to_string()),
        }
    }

    fn not_spawned(&mut self, locals: std::ops::Range<u32>, error: String) {
        for local in locals {
            self.pes[local as usize].output = [None, None];
            for stream in Stream::ALL {
                self.handle(Event::OutputClosed(local, stream));
            }
        }
        let rank = self.agent.first_rank() + self.starts.answered;
        self.handle(Event::PesStarted {
            pids: &[],
            error: Some(format!("cannot start PE {rank}: {error}").into()),
        });
    }

    /// Why the next PE was not started.
    fn refused_by_template(&self, refusal: Refusal, lost: Lost) -> Cause {
        let rank = self.agent.first_rank() + self.starts.answered;
        let error = io::Error::from_raw_os_error(refusal.errno);
        let command = self.launch.command_of(rank);
        let program = Path::new(OsStr::from_bytes(&command.program));
        let dir = command
            .dir
            .as_deref()
            .map(|dir| Path::new(OsStr::from_bytes(dir)));
        match (refusal.step, dir) {
            (Step::Bind, _) => format!("cannot {BIND} PE {rank}: {error}").into(),
            (Step::Start, _) if refusal.errno == libc::ENOTSUP && !lost.is_nothing() => format!(
                "cannot start PE {rank}: its libraries have {lost} before main, which a fork loses; use SHMEM_SPAWN=auto or exec"
            )
            .into(),
            (Step::Enter, Some(dir)) => {
                let dir = dir.display();
                format!("cannot start PE {rank} in the directory {dir}: {error}").into()
            }
            (Step::Start | Step::Enter, _) => match program::refused(program, refusal.errno) {
                Some(e) => e.into(),
                None => format!("cannot start PE {rank}: {error}").into(),
            },
        }
    }

    /// Makes the descriptors of a batch of PEs.
    fn prepare_request(&mut self, first: u32, count: u32) -> io::Result<Request> {
        let mut request = Request {
            first,
            specs: Vec::with_capacity(count as usize),
            theirs: Vec::with_capacity(4 * count as usize),
        };
        for local in first..first + count {
            let rank = self.agent.first_rank() + local;
            let (ours, theirs) = PePipes::pairs()?;
            self.keep_pipes(local, ours)?;
            request.theirs.extend(theirs);
            let input = self.make_input(local)?;
            request.specs.push(PeSpec {
                rank,
                local,
                has_stdin: input.is_some().into(),
            });
            request.theirs.extend(input);
        }
        Ok(request)
    }

    /// Asks the template for PEs, as far as the kernel takes the requests.
    pub(super) fn send_requests(&mut self, now: u64) {
        while let Some(request) = self.starts.unsent.front() {
            let template = self.node.as_ref().and_then(|n| n.template.as_ref());
            let fds: Vec<BorrowedFd<'_>> = request.theirs.iter().map(AsFd::as_fd).collect();
            let sent = template.map_or(Ok(()), |t| t.spawn(&request.specs, &fds));
            let locals = request.first..request.first + request.specs.len() as u32;
            match sent.as_ref().map_err(io::Error::raw_os_error) {
                Err(Some(libc::ETOOMANYREFS | libc::EAGAIN)) => {
                    self.starts.refused = Refused::once_more(
                        self.starts.refused,
                        self.agent.stopped().unwrap_or(now),
                    );
                    if self.starts.refused.is_some() {
                        return;
                    }
                    self.starts.unsent.clear();
                    let error = format!(
                        "its descriptors cannot be handed over: this user's processes have too many \
                         on their way over Unix sockets, for {} s already; end others of them, or \
                         raise the limit (ulimit -n)",
                        RETRY_LIMIT.as_secs()
                    );
                    return self.not_spawned(locals, error);
                }
                // Its end is noticed when it is read.
                Ok(()) | Err(Some(libc::EPIPE | libc::ECONNRESET)) => {}
                Err(_) => {
                    let error = sent.expect_err("matched").to_string();
                    self.starts.unsent.clear();
                    return self.not_spawned(locals, error);
                }
            }
            self.starts.refused = None;
            self.starts.unsent.pop_front();
            self.write_inputs(locals);
        }
    }

    /// Listens to a PE from now on.
    pub(super) fn keep_pipes(&mut self, local: u32, pipes: PePipes) -> io::Result<()> {
        for (stream, kind, read) in [
            (Stream::Out, STDOUT, pipes.out),
            (Stream::Err, STDERR, pipes.err),
        ] {
            self.sources
                .outputs
                .add(&read, kind | u64::from(local), Interest::Read)?;
            self.pes[local as usize].output[stream as usize] = Some(read);
        }
        self.epoll
            .add(&pipes.pmi, PMI | u64::from(local), Interest::Read)?;
        self.pes[local as usize].pmi = Some(pipes.pmi);
        Ok(())
    }

    pub(super) fn template_ready(&mut self) {
        loop {
            let Some(template) = self.node.as_ref().and_then(|n| n.template.as_ref()) else {
                return;
            };
            match template.receive() {
                Ok(Reply::NotYet) => return,
                Ok(Reply::Started(reply)) => {
                    let now = monotonic_ns();
                    self.moment(Moment::FirstPe, now);
                    self.moment(Moment::LastPe, now);
                    for &pid in &reply.pids {
                        if let Some(pe) = self.pes.get_mut(self.starts.answered as usize) {
                            pe.pid = pid;
                            self.ending.by_pid.insert(pid, self.starts.answered);
                            self.starts.answered += 1;
                        }
                    }
                    self.starts.lost = reply.lost;
                    let error = reply
                        .refusal
                        .map(|refusal| self.refused_by_template(refusal, reply.lost));
                    self.handle(Event::PesStarted {
                        pids: &reply.pids,
                        error,
                    });
                    for pid in reply.pids {
                        if let Some((status, used)) = self.ending.unnamed.remove(&pid) {
                            self.reaped(pid, status, used);
                        }
                    }
                    self.perform_actions();
                }
                Ok(Reply::Closed) | Err(_) => {
                    if let Some(node) = &mut self.node {
                        node.template = None;
                    }
                    self.forget_unnamed();
                    // Requests that wait are for nobody.
                    self.send_requests(monotonic_ns());
                    self.handle(Event::TemplateClosed);
                    self.ending.search_due = true;
                    return;
                }
            }
        }
    }
}
