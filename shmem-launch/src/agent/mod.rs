//! A node launch agent as a pure state machine.
//!
//! The driver tells it what happened ([`Event`], with the time), takes the [`Action`]s, and writes
//! the bytes that stand in the link buffers ([`Agent::outgoing`]). There is no descriptor, process,
//! clock or thread in here, so whole trees of agents run in a seeded simulation.
//!
//! # Life
//! ```text
//! Preparing --Prepared, all children Ready--> Ready ^
//!    | Go (from the launcher, through the tree)
//! Starting  --last batch answered-----------> template may exit
//!    |                            all PEs of the subtree started: Started ^
//! Running   --last PE reaped, all children Exited--> Exited ^
//!    | Finish
//! Finishing --group killed, output flushed, all children Done--> Done ^ , Exit
//! ```
//! A failure goes up as a `Fault`; the launcher alone decides that the job ends and sends `Stop`
//! down: no more PEs are started, those that run get SIGTERM, after the grace period SIGKILL, and
//! the life goes on from "last PE reaped". A subtree whose agent has gone counts as ready, exited
//! and done, since nothing more will come from it. When the link to the parent closes, the agent
//! kills its PEs and exits; its children see their links close and do the same.
//!
//! Where processes may be started again (`--respawn`), a PE that fails is not missed at first: `Died` goes
//! up, and `Respawn` or `Stop` comes down; see `respawn`.

mod absence;
mod causes;
mod census;
mod children;
mod event;
mod heartbeat;
mod input;
mod life;
mod losses;
mod output;
mod parent;
mod pes;
mod pmi;
mod pmix;
mod progress;
mod respawn;
mod silence;
mod startup;
mod template;
mod timers;

use std::collections::VecDeque;

use shmem_node::to_agent::ToAgent;
use shmem_pmi::server::NodeStore;

use crate::child::Child;
use crate::exit::{Cause, End, Fault};
use crate::frame::{Frame, OutBuf, Stream};
use crate::pulse::Rhythm;
use crate::repeats::{Notice, Passed, Repeats};
use crate::report::Reduced;
use absence::Absence;
use causes::{Failures, Report};
use input::Input;
pub use input::InputRoute;
use life::{Life, Phase};
use output::Output;
pub use output::{BUDGET, Reading};
use parent::Parent;
use startup::Startup;

pub use crate::child::ChildSetup;
pub use event::{Action, Event, Service, Setup, StillNeeded};
use pes::Pes;
pub use pmi::Servers;
use pmix::Pmix;

/// What is put together of all that the subtree says, before it goes up.
#[derive(Debug, Default)]
struct Gathered {
    /// Messages of PEs, equal ones counted.
    notices: Repeats,
    /// What PEs wait for, while somebody asks.
    count: Option<census::Count>,
    /// Reports of children that are done.
    report: Option<Reduced>,
}

/// The state machine.
#[derive(Debug)]
pub struct Agent {
    setup: Setup,
    life: Life,
    startup: Startup,
    /// When links are looked at.
    rhythm: Rhythm,
    parent: Parent,
    children: Vec<Child>,
    servers: Servers,
    pmix: Option<Pmix>,
    pes: Pes,
    output: Output,
    input: Input,
    failures: Failures,
    absence: Absence,
    gathered: Gathered,
    actions: VecDeque<Action>,
}

impl Agent {
    /// An agent before its driver has prepared anything, with the servers of its node.
    pub fn new(setup: Setup, servers: Servers) -> Self {
        let children: Vec<_> = setup.children.iter().cloned().map(Child::new).collect();
        Self {
            life: Life::default(),
            startup: Startup::default(),
            rhythm: Rhythm::new(setup.options.heartbeat, setup.options.preparation),
            parent: Parent::default(),
            pmix: setup.pmix.then(|| Pmix::new(servers.pmi.place())),
            servers,
            pes: Pes::new(setup.n_local),
            input: Input::new(&setup.input),
            output: Output::new(
                setup.options.raw_output,
                setup.first_rank,
                setup.n_local,
                children.len(),
            ),
            children,
            failures: Failures::default(),
            absence: Absence::default(),
            gathered: Gathered::default(),
            actions: VecDeque::new(),
            setup,
        }
    }

    /// Keeps what PMI's fences make visible in `store`, which is empty; before any event.
    pub fn use_store(&mut self, store: Box<dyn NodeStore>) {
        self.servers.pmi.use_store(store);
    }

    /// Bytes for the parent (`None`) or a child; the driver consumes what it has written.
    pub fn outgoing(&mut self, child: Option<usize>) -> &mut OutBuf {
        match child {
            None => &mut self.parent.out,
            Some(child) => &mut self.children[child].out,
        }
    }

    /// The node of a child.
    pub fn child_node(&self, child: usize) -> u32 {
        self.children[child].node()
    }

    /// What to do next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Rank of the node's first PE.
    pub fn first_rank(&self) -> u32 {
        self.setup.first_rank
    }

    /// Whether output can be taken at all.
    pub fn may_read_output(&self) -> bool {
        self.output.may_read()
    }

    /// Whether there is room for what PEs say.
    pub fn may_read_messages(&self) -> bool {
        self.output.may_read_messages()
    }

    /// Whose output may be read.
    pub fn reading(&self) -> Reading {
        self.output.reading()
    }

    /// Takes note of an event.
    pub fn handle(&mut self, event: Event<'_>, now: u64) {
        if self.life.phase == Phase::Over {
            return self.leave(&event, now);
        }
        self.note(event, now);
        self.timers(now);
        self.start_children(now);
        self.serve(now);
        self.serve_pmix();
        self.return_credit();
        // A PE whose failure is held back has ended, and is reported as that.
        if !self.failures.pings.hold_something() {
            self.look_for_absent();
            self.look_for_absent_of_groups();
            self.look_for_absent_of_pmix();
            self.look_for_disconnected();
        }
        self.advance();
        self.look_for_silence(now);
        self.send_progress(now);
        self.end_count(now);
    }

    fn note(&mut self, event: Event<'_>, now: u64) {
        match event {
            Event::FromParent(bytes) => {
                self.parent.pulse.received(now);
                self.parent_bytes(bytes, now);
            }
            Event::ParentClosed => self.die(),
            Event::ParentFound { stopped } => self.parent_found(stopped),
            Event::Attached { lost } => self.is_needed(lost),
            Event::FromChild(child, bytes) => self.child_bytes(child, bytes, now),
            Event::ChildClosed(child) => {
                self.children[child].closed(now);
                self.look_for_lost(now);
            }
            Event::ChildReaped(child, end) => {
                self.children[child].reaped(end);
                self.look_for_lost(now);
            }
            Event::ChildStarted(child, started) => self.child_started(child, started, now),
            Event::ShellText(child, text) => self.shell_text(child, text, now),
            Event::Prepared => self.startup.prepared = true,
            Event::Failed(cause) => self.fault(0, cause),
            Event::PmixFailed(what) => self.pmix_failed(what),
            Event::PesStarted { pids, error } => self.started(pids, error),
            Event::TemplateClosed => self.template_closed(now),
            Event::TemplateEnded(end, why) => self.template_ended(end, why),
            Event::Output(local, stream, data) => {
                self.output
                    .own(local, stream, data, now, &mut self.parent.out);
                self.life.touch_flush(now);
            }
            Event::OutputClosed(local, stream) => {
                self.output_closed(local, stream, now);
                self.life.touch_flush(now);
            }
            Event::Reaped {
                local,
                end,
                missed,
                attached,
            } => self.reaped(local, end, missed, attached, now),
            Event::Respawned { local, pid } => self.respawned(local, pid),
            Event::FromPe(local, bytes) => {
                self.servers.pmi.handle_client_bytes(local as usize, bytes);
            }
            Event::PeClosed(local) => self.servers.pmi.client_closed(local as usize),
            Event::Message(ToAgent::Addresses { first, bytes }) => {
                self.bring_addresses(first, bytes)
            }
            Event::Message(ToAgent::Abort {
                local,
                status,
                text,
            }) => self.wants_end(local, status, text.to_owned(), now),
            Event::Message(ToAgent::Tell { local, text, adds }) => {
                self.message_for_user(local, text.to_owned(), adds, now);
            }
            Event::Message(ToAgent::Leaves { .. }) => self.leaves(),
            Event::FromPmix(said) => self.pmix_said(said, now),
            Event::StdinTaken(n) => self.input_taken(None, n),
            Event::Terminated(signal) => self.terminated(signal),
            Event::Recorded(recording) => self.parent.out.send(&Frame::Recorded {
                shift: 0,
                sent: now,
                recording: &recording,
            }),
            Event::CleanedUp(report) => self.cleaned_up(&report, now),
            Event::Timer => {
                self.output.tick(now, &mut self.parent.out);
                self.end_flush(now);
            }
            Event::Counted(number, census) => self.counted_own(number, census),
            Event::Traced(number, rank, text) => {
                self.parent.out.send(&Frame::Traced { number, rank, text })
            }
        }
    }

    fn terminated(&mut self, signal: u8) {
        let end = End::killed(signal);
        let what = format!("its launch agent was told to end: it {end}");
        self.fault(0, Cause::Node { what });
    }

    fn identify(&self, local: u32) -> (u32, u32) {
        (self.setup.first_rank + local, self.pes.pid(local))
    }

    fn fault(&mut self, pid: u32, cause: Cause) {
        self.pass_fault(Fault {
            node: self.setup.node,
            pid,
            cause,
        });
    }

    /// What a PE of this node did ends the job.
    fn pe_fault(&mut self, pid: u32, cause: Cause, now: u64) {
        let node = self.setup.node;
        self.report_pe(Report::Fault(Fault { node, pid, cause }), now);
    }

    fn pass_fault(&mut self, fault: Fault) {
        // Of hosts that cannot be reached every one is named.
        let more = matches!(fault.cause, Cause::Unreachable { .. });
        if more || !std::mem::replace(&mut self.failures.fault_sent, true) {
            self.parent.out.send(&Frame::Fault(fault));
        }
    }

    /// Passes on all that a PE has written, the beginning of a line too: what is said about the PE
    /// comes behind it.
    fn press(&mut self, local: u32, now: u64) {
        for stream in Stream::ALL {
            self.output.press(local, stream, now, &mut self.parent.out);
        }
    }

    /// A PE of the subtree says something.
    fn notice(&mut self, notice: Notice, now: u64) {
        match self.gathered.notices.add(notice) {
            Passed::On(notice) => {
                let local = notice.rank.checked_sub(self.setup.first_rank);
                if let Some(local) = local.filter(|_| notice.node == self.setup.node) {
                    self.press(local, now);
                }
                self.parent.out.send(&Frame::Notice(notice));
            }
            Passed::Counted => {}
            // Bounded as all output is.
            Passed::Unknown(notice) if notice.node == self.setup.node => {
                let line = format!("shmem: {}\n", notice.line(&[]));
                let local = notice.rank - self.setup.first_rank;
                let (data, up) = (line.as_bytes(), &mut self.parent.out);
                self.output.own(local, Stream::Err, data, now, up);
            }
            Passed::Unknown(notice) => self.parent.out.send(&Frame::Notice(notice)),
        }
    }

    /// Passes on how often the same was said.
    fn send_counts(&mut self) {
        for notice in self.gathered.notices.take_counts() {
            self.parent.out.send(&Frame::Notice(notice));
        }
    }

    fn output_closed(&mut self, local: u32, stream: Stream, now: u64) {
        self.pes.output_closed(local, stream);
        self.output.closed(local, stream, now, &mut self.parent.out);
    }

    fn reaped(&mut self, local: u32, end: End, missed: StillNeeded, attached: bool, now: u64) {
        if self.may_respawn(local, end, attached) {
            self.press(local, now);
            return self.report_failed(local, end);
        }
        if !self.pes.ended(local) {
            return;
        }
        let missed = match (end, missed) {
            (End::Code(0), StillNeeded::Nothing) => self.missed_by_pmix(local),
            _ => missed,
        };
        let (rank, pid) = self.identify(local);
        // Every end that leaves others waiting is reported: see `exit`, "Who frees those that wait".
        let cause = match (end, missed) {
            (End::Code(0), StillNeeded::Finalize) if self.setup.n_pes > 1 => {
                Cause::Unfinalized { rank }
            }
            (End::Code(0), StillNeeded::Init) => Cause::Absent { rank },
            (End::Code(0), _) => return,
            (end, _) => Cause::Pe { rank, end },
        };
        // After `Stop` the launcher has its cause and every PE dies of it.
        if !self.life.stopping {
            self.press(local, now);
            match missed {
                StillNeeded::Nothing => self.lose_pe(rank, pid, cause, now),
                _ => self.pe_fault(pid, cause, now),
            }
        }
    }

    fn stop(&mut self, grace_ns: u64, now: u64) {
        if self.life.phase >= Phase::Exited {
            return;
        }
        self.life.stopping = true;
        self.startup.template.lost = None;
        self.note_end(now);
        self.respawn_nobody();
        // Those that are asked to end are continued for it.
        self.note_stop(libc::SIGCONT as u8, now);
        // Hosts that have not answered have nothing to end, and may take their time.
        for child in 0..self.children.len() {
            let c = &mut self.children[child];
            if (c.is_waiting() || !c.is_closed()) && !c.answered() {
                c.give_up(now);
                self.child_closed(child, true, now);
            }
        }
        // Requests not yet sent will not be; an unanswered one is answered or the template dies.
        self.pes.stop_asking();
        if grace_ns == 0 {
            self.life.kill_at = None;
            self.actions.push_back(Action::KillAll);
        } else {
            self.actions.push_back(Action::Signal(15));
            let at = now.saturating_add(grace_ns);
            self.life.kill_at = Some(self.life.kill_at.map_or(at, |k| k.min(at)));
        }
    }

    fn advance(&mut self) {
        self.start_again();
        self.advance_startup();
        if self.life.phase == Phase::Running
            && !self.startup.reported
            && !self.life.stopping
            && self.all_children(|c| c.started)
        {
            self.startup.reported = true;
            self.parent.out.send(&Frame::Started);
        }
        let all_ended = self.pes.all_ended() && self.all_children(|c| c.exited);
        if self.life.phase == Phase::Running && all_ended && !self.failures.pings.are_awaited() {
            self.life.phase = Phase::Exited;
            self.life.kill_at = None;
            self.send_counts();
            self.parent.out.send(&Frame::Exited);
        }
        if self.life.phase == Phase::Finishing
            && self.pes.all_closed()
            && self.all_children(|c| c.done)
            && self.output.is_empty()
        {
            self.life.phase = Phase::CleaningUp;
            self.life.flush_at = None;
            self.actions.push_back(Action::CleanUp);
        }
    }

    fn cleaned_up(&mut self, own: &Reduced, now: u64) {
        if self.life.phase != Phase::CleaningUp {
            return;
        }
        // Where the job was ended, and what was said since the PEs had.
        self.send_counts();
        let mut report = self.gathered.report.take().unwrap_or_default();
        report.merge(own);
        report.sent = now;
        self.parent.out.send(&Frame::Done(Box::new(report)));
        self.life.phase = Phase::Over;
        self.actions.push_back(Action::Exit);
    }

    fn die(&mut self) {
        self.life.phase = Phase::Over;
        self.actions.clear();
        self.actions.push_back(Action::Die);
    }
}

#[cfg(test)]
mod tests;
