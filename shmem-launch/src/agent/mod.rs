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

mod causes;
mod census;
mod children;
mod event;
mod input;
mod life;
mod losses;
mod output;
mod pes;
mod pmi;
mod pmix;
mod progress;
mod respawn;
mod silence;
mod template;
mod timers;

use std::collections::VecDeque;

use shmem_node::to_agent::ToAgent;
use shmem_pmi::question::Answer;
use shmem_pmi::server::{NodeStore, TreeLink};

use crate::child::Child;
use crate::exit::{Cause, End, Fault, is_for_programs};
use crate::fold::{Fold, Notice, Passed};
use crate::frame::{Frame, FrameReader, OutBuf, Stream, each_frame};
use crate::pulse::{Pulse, Rhythm};
use crate::report::Reduced;
use causes::{Pings, Report};
use input::Input;
pub use input::InputRoute;
use output::Output;
pub use output::{BUDGET, Reading};
use silence::Silence;

pub use crate::child::ChildSetup;
pub use event::{Action, Event, Missed, Setup};
use pes::Pes;
pub use pmi::{Servers, Service};
use pmix::Pmix;
use progress::Progress;

/// How long output may stay silent at the end before descriptors that some escaped process holds
/// are given up.
const FLUSH_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Preparing,
    Ready,
    Starting,
    Running,
    Exited,
    /// Everything was killed; output is being flushed.
    Finishing,
    /// The driver is reaping.
    CleaningUp,
    Over,
}

/// The state machine.
#[derive(Debug)]
pub struct Agent {
    setup: Setup,
    phase: Phase,
    servers: Servers,
    pmix: Option<Pmix>,
    pes: Pes,
    children: Vec<Child>,
    parent: FrameReader,
    up: OutBuf,
    output: Output,
    input: Input,
    actions: VecDeque<Action>,
    prepared: bool,
    sent_started: bool,
    template_done: bool,
    /// How it ended, if that is known before its socket's end.
    template_end: Option<(End, Option<Cause>)>,
    /// It has gone too early, with so many PEs not started: until then its end is waited for.
    template_lost: Option<(u64, u32)>,
    stopping: bool,
    /// Signals for programs that came before all PEs were there; each once, as the kernel keeps them.
    early: Vec<u8>,
    /// What PEs of the subtree have said.
    fold: Fold,
    /// Whether a fault has gone up: the job ends with it, and what follows is a consequence.
    fault_sent: bool,
    /// Whether a cause of it that an agent heard of later has gone up.
    cause_sent: bool,
    /// Whether the PMIx server works, and what waits for the answer.
    pings: Pings,
    /// Whether it was told that somebody is missing for ever.
    absent_sent: bool,
    /// For which operation of each service, and with how many absent, that was looked for last.
    looked: [Option<(u64, [u32; 3])>; 2],
    /// The same for group barriers, of which the state has a number.
    looked_at_groups: Option<(u64, [u32; 3])>,
    disconnected_sent: bool,
    /// Whether the agent has reported that a PE is in finalize.
    leaving_sent: bool,
    /// Whether the template takes long to answer.
    silence: Silence,
    /// How far the start has come.
    progress: Progress,
    /// When links are looked at, and what is known of the parent.
    rhythm: Rhythm,
    pulse: Pulse,
    /// Somebody asks what the PEs wait for.
    count: Option<census::Count>,
    kill_at: Option<u64>,
    flush_at: Option<u64>,
    /// Since when the job is stopped.
    stopped: Option<u64>,
    /// PEs that are to be started again when all that they have written was read, and how often that
    /// makes.
    respawns: Vec<(u32, u32)>,
    report: Option<Reduced>,
}

impl Agent {
    /// An agent before its driver has prepared anything, with the servers of its node.
    pub fn new(setup: Setup, servers: Servers) -> Self {
        let children: Vec<_> = setup.children.iter().cloned().map(Child::new).collect();
        Self {
            phase: Phase::Preparing,
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
            parent: FrameReader::default(),
            up: OutBuf::default(),
            actions: VecDeque::new(),
            prepared: false,
            sent_started: false,
            template_done: false,
            template_end: None,
            template_lost: None,
            stopping: false,
            early: Vec::new(),
            fold: Fold::default(),
            fault_sent: false,
            cause_sent: false,
            pings: Pings::default(),
            absent_sent: false,
            looked: [None; 2],
            looked_at_groups: None,
            disconnected_sent: false,
            leaving_sent: false,
            silence: Silence::default(),
            progress: Progress::default(),
            rhythm: Rhythm::new(setup.options.heartbeat, setup.options.preparation),
            pulse: Pulse::default(),
            count: None,
            kill_at: None,
            flush_at: None,
            stopped: None,
            respawns: Vec::new(),
            report: None,
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
            None => &mut self.up,
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

    /// Whether output can be taken at all.
    pub fn may_read_output(&self) -> bool {
        self.output.may_read()
    }

    /// Whether there is room for what PEs say.
    pub fn may_hear(&self) -> bool {
        self.output.may_hear()
    }

    /// Whose output may be read.
    pub fn reading(&self) -> Reading {
        self.output.reading()
    }

    /// Takes note of an event.
    pub fn handle(&mut self, event: Event<'_>, now: u64) {
        if self.phase == Phase::Over {
            return self.leave(&event, now);
        }
        match event {
            Event::FromParent(bytes) => {
                self.pulse.heard(now);
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
            Event::Prepared => self.prepared = true,
            Event::Failed(cause) => self.fault(0, cause),
            Event::PmixFailed(what) => self.pmix_failed(what),
            Event::Started { pids, error } => self.started(pids, error),
            Event::TemplateClosed => self.template_closed(now),
            Event::TemplateEnded(end, why) => self.template_ended(end, why),
            Event::Output(local, stream, data) => {
                self.output.own(local, stream, data, now, &mut self.up);
                self.touch_flush(now);
            }
            Event::OutputClosed(local, stream) => {
                self.output_closed(local, stream, now);
                self.touch_flush(now);
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
            Event::Said(ToAgent::Addresses { first, bytes }) => self.bring_addresses(first, bytes),
            Event::Said(ToAgent::Abort {
                local,
                status,
                text,
            }) => self.wants_end(local, status, text.to_owned(), now),
            Event::Said(ToAgent::Tell { local, text, adds }) => {
                self.has_words(local, text.to_owned(), adds, now);
            }
            Event::Said(ToAgent::Leaves { .. }) => self.leaves(),
            Event::FromPmix(said) => self.pmix_said(said, now),
            Event::StdinTaken(n) => self.input_taken(None, n),
            Event::Terminated(signal) => {
                let end = End::Signal {
                    signal,
                    core: false,
                };
                let what = format!("its launch agent was told to end: it {end}");
                self.fault(0, Cause::Node { what });
            }
            Event::Recorded(recording) => self.up.send(&Frame::Recorded {
                shift: 0,
                sent: now,
                recording: &recording,
            }),
            Event::CleanedUp(report) => self.cleaned_up(&report, now),
            Event::Timer => {
                self.output.tick(now, &mut self.up);
                self.end_flush(now);
            }
            Event::Counted(number, census) => self.counted_own(number, census),
            Event::Traced(number, rank, text) => {
                self.up.send(&Frame::Traced { number, rank, text })
            }
        }
        self.timers(now);
        self.start_children(now);
        self.serve(now);
        self.serve_pmix();
        self.return_credit();
        // A PE whose failure is held back has ended, and is reported as that.
        if !self.pings.hold_something() {
            self.look_for_absent();
            self.look_for_absent_of_groups();
            self.look_for_absent_of_pmix();
            self.look_for_disconnected();
        }
        self.advance();
        self.look_for_silence(now);
        self.tell_progress(now);
        self.end_count(now);
    }

    fn parent_bytes(&mut self, bytes: &[u8], now: u64) {
        let each = |agent: &mut Self, frame: Frame<'_>| agent.parent_frame(frame, now);
        if let Err(e) = each_frame(self, |agent| Some(&mut agent.parent), bytes, each) {
            self.broken_parent(&e);
        }
    }

    /// There is no way to agree on anything with a parent that cannot be understood.
    fn broken_parent(&mut self, e: &dyn std::fmt::Display) {
        let what = format!("the link to the parent agent carries what cannot be understood: {e}");
        self.fault(0, Cause::Node { what });
        self.die();
    }

    fn parent_frame(&mut self, frame: Frame<'_>, now: u64) {
        // What an agent only hands on, it hands on first: the farther nodes need it soonest.
        match &frame {
            Frame::Go
            | Frame::Signal(_)
            | Frame::Stop { .. }
            | Frame::CloseOutput(_)
            | Frame::Respawn { .. }
            | Frame::Lost(_)
            | Frame::Trace { .. }
            | Frame::Finish => {
                for child in self.children.iter_mut().filter(|c| !c.is_closed()) {
                    child.out.send(&frame);
                }
            }
            _ => {}
        }
        match frame {
            Frame::Go if self.phase == Phase::Ready => {
                self.phase = Phase::Starting;
            }
            Frame::Go => {}
            Frame::Credit(n) => {
                self.output.grant(n, now, &mut self.up);
                self.touch_flush(now);
            }
            Frame::Stdin(_) | Frame::StdinEnd => self.pass_input(&frame),
            // Before the last PE is started the template is in the group, and only a signal that
            // ends the job may end it.
            Frame::Signal(signal) if is_for_programs(signal) && self.phase < Phase::Running => {
                if !self.early.contains(&signal) {
                    self.early.push(signal);
                }
            }
            Frame::Signal(signal) => {
                self.actions.push_back(Action::Signal(signal));
                self.note_stop(signal, now);
            }
            Frame::Stop { grace_ns } => self.stop(grace_ns, now),
            Frame::CloseOutput(stream) => self.actions.push_back(Action::CloseOutput(stream)),
            Frame::Finish if self.phase < Phase::Finishing => {
                self.phase = Phase::Finishing;
                self.kill_at = None;
                self.actions.push_back(Action::KillAll);
                self.flush_at = Some(self.clock(now) + FLUSH_NS);
            }
            Frame::Finish => {}
            Frame::Pmi(bytes) => self.tree(Service::Pmi, TreeLink::Parent, bytes),
            Frame::Addresses(bytes) => self.tree(Service::Addresses, TreeLink::Parent, bytes),
            Frame::Pmix(bytes) => self.pmix_tree(TreeLink::Parent, bytes),
            Frame::Answer {
                asker,
                ticket,
                answer,
            } => match Answer::decode(answer) {
                Ok(answer) => self.servers.pmi.handle_answer(asker, ticket, answer),
                Err(e) => self.broken_parent(&e),
            },
            Frame::Respawn { rank, count } => self.respawn(rank, count),
            Frame::Beat => {}
            Frame::Lost(loss) => self.lost(&loss),
            Frame::Count { number, budget_ms } => self.begin_count(number, budget_ms, now),
            Frame::Trace {
                number,
                pes,
                budget_ms,
            } => self.trace(number, pes, budget_ms),
            other => self.broken_parent(&format!("a frame that only goes up: {}", other.kind())),
        }
    }

    /// Input goes to the children first, like all that is passed on.
    fn pass_input(&mut self, frame: &Frame<'_>) {
        for child in self.input.children() {
            if !self.children[child].is_closed() {
                self.children[child].out.send(frame);
            }
        }
        if self.input.is_for_own() {
            self.actions.push_back(match frame {
                Frame::Stdin(data) => Action::Stdin(data.to_vec()),
                _ => Action::StdinEnd,
            });
        }
    }

    fn input_taken(&mut self, child: Option<usize>, n: u32) {
        if let Some(n) = self.input.taken(child, n) {
            self.up.send(&Frame::StdinCredit(n));
        }
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
        if more || !std::mem::replace(&mut self.fault_sent, true) {
            self.up.send(&Frame::Fault(fault));
        }
    }

    /// Passes on all that a PE has written, the beginning of a line too: what is said about the PE
    /// comes behind it.
    fn press(&mut self, local: u32, now: u64) {
        for stream in Stream::ALL {
            self.output.press(local, stream, now, &mut self.up);
        }
    }

    /// A PE of the subtree says something.
    fn notice(&mut self, notice: Notice, now: u64) {
        match self.fold.add(notice) {
            Passed::On(notice) => {
                let local = notice.rank.checked_sub(self.setup.first_rank);
                if let Some(local) = local.filter(|_| notice.node == self.setup.node) {
                    self.press(local, now);
                }
                self.up.send(&Frame::Notice(notice));
            }
            Passed::Counted => {}
            // Bounded as all output is.
            Passed::Unknown(notice) if notice.node == self.setup.node => {
                let line = format!("shmem: {}\n", notice.line(&[]));
                let local = notice.rank - self.setup.first_rank;
                let (data, up) = (line.as_bytes(), &mut self.up);
                self.output.own(local, Stream::Err, data, now, up);
            }
            Passed::Unknown(notice) => self.up.send(&Frame::Notice(notice)),
        }
    }

    /// Passes on how often the same was said.
    fn tell_counts(&mut self) {
        for notice in self.fold.take_counts() {
            self.up.send(&Frame::Notice(notice));
        }
    }

    fn started(&mut self, pids: &[i32], error: Option<Cause>) {
        let asked = self.pes.answered(pids);
        if let Some(cause) = error {
            // PEs that cannot be started are not asked for again.
            self.pes.give_up_starting();
            self.fault(0, cause);
        } else if asked != pids.len() && !self.stopping {
            let what = format!("the template started {} of {asked} PEs", pids.len());
            self.fault(0, Cause::Node { what });
        }
    }

    fn output_closed(&mut self, local: u32, stream: Stream, now: u64) {
        self.pes.output_closed(local, stream);
        self.output.closed(local, stream, now, &mut self.up);
    }

    fn reaped(&mut self, local: u32, end: End, missed: Missed, attached: bool, now: u64) {
        if self.may_respawn(local, end, attached) {
            self.press(local, now);
            return self.report_failed(local, end);
        }
        if !self.pes.ended(local) {
            return;
        }
        let missed = match (end, missed) {
            (End::Code(0), Missed::Nothing) => self.missed_by_pmix(local),
            _ => missed,
        };
        let (rank, pid) = self.identify(local);
        // Every end that leaves others waiting is reported: see `exit`, "Who frees those that wait".
        let cause = match (end, missed) {
            (End::Code(0), Missed::Finalize) if self.setup.n_pes > 1 => Cause::Unfinalized { rank },
            (End::Code(0), Missed::Init) => Cause::Absent { rank },
            (End::Code(0), _) => return,
            (end, _) => Cause::Pe { rank, end },
        };
        // After `Stop` the launcher has its cause and every PE dies of it.
        if !self.stopping {
            self.press(local, now);
            match missed {
                Missed::Nothing => self.lose_pe(rank, pid, cause, now),
                _ => self.pe_fault(pid, cause, now),
            }
        }
    }

    /// Whether what starts PEs is still wanted.
    pub fn is_starting(&self) -> bool {
        !self.template_done && !self.stopping
    }

    fn stop(&mut self, grace_ns: u64, now: u64) {
        if self.phase >= Phase::Exited {
            return;
        }
        self.stopping = true;
        self.template_lost = None;
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
            self.kill_at = None;
            self.actions.push_back(Action::KillAll);
        } else {
            self.actions.push_back(Action::Signal(15));
            let at = now.saturating_add(grace_ns);
            self.kill_at = Some(self.kill_at.map_or(at, |k| k.min(at)));
        }
    }

    fn advance(&mut self) {
        self.start_again();
        if self.phase == Phase::Preparing && self.prepared && self.all_children(|c| c.ready) {
            self.phase = Phase::Ready;
            self.up.send(&Frame::Ready);
        }
        if self.phase == Phase::Starting {
            while let Some((first, count)) = self.pes.next_batch(self.setup.portion) {
                self.actions.push_back(Action::Start { first, count });
            }
        }
        // Why a template has gone too early is the cause, and comes before what its PEs are like.
        let asked = self.pes.all_answered() && self.template_lost.is_none();
        if asked && (self.phase == Phase::Starting || self.stopping) {
            if !self.template_done {
                self.template_done = true;
                self.actions.push_back(Action::FinishTemplate);
            }
            self.phase = self.phase.max(Phase::Running);
            let early = std::mem::take(&mut self.early).into_iter();
            if !self.stopping {
                self.actions.extend(early.map(Action::Signal));
            }
        }
        if self.phase == Phase::Running
            && !self.sent_started
            && !self.stopping
            && self.all_children(|c| c.started)
        {
            self.sent_started = true;
            self.up.send(&Frame::Started);
        }
        let all_ended = self.pes.all_ended() && self.all_children(|c| c.exited);
        if self.phase == Phase::Running && all_ended && !self.pings.are_awaited() {
            self.phase = Phase::Exited;
            self.kill_at = None;
            self.tell_counts();
            self.up.send(&Frame::Exited);
        }
        if self.phase == Phase::Finishing
            && self.pes.all_closed()
            && self.all_children(|c| c.done)
            && self.output.is_empty()
        {
            self.phase = Phase::CleaningUp;
            self.flush_at = None;
            self.actions.push_back(Action::CleanUp);
        }
    }

    fn cleaned_up(&mut self, own: &Reduced, now: u64) {
        if self.phase != Phase::CleaningUp {
            return;
        }
        // Where the job was ended, and what was said since the PEs had.
        self.tell_counts();
        let mut report = self.report.take().unwrap_or_default();
        report.merge(own);
        report.sent = now;
        self.up.send(&Frame::Done(Box::new(report)));
        self.phase = Phase::Over;
        self.actions.push_back(Action::Exit);
    }

    fn die(&mut self) {
        self.phase = Phase::Over;
        self.actions.clear();
        self.actions.push_back(Action::Die);
    }
}

#[cfg(test)]
mod tests;
