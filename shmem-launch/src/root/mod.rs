//! The launcher as a pure state machine: the root of the tree, above the agent of node 0.
//!
//! It decides when the job starts, that it ends and why, and it alone talks to the user. Output of
//! PEs becomes text here ([`Root::take_text`]); the driver reports what it has written, and that is
//! what gives the agents credit for more.
//!
//! # How a job ends
//! The first of these is *the* cause and decides the exit status ([`crate::exit`]): all PEs ended
//! with 0; an agent reported a fault; a signal for `shmrun`; the time limit; the loss of node 0's
//! agent. Each but the first sends `Stop` down. When all PEs have ended, `Finish` has the agents
//! clean up, and with `Done` from node 0 (or the end of its link) nothing is left; the launcher
//! exits as soon as what it has was written.
//!
//! Ctrl-C is passed on as SIGINT first, so that programs may end in their own way; after the grace
//! period, `Stop` follows. A second Ctrl-C kills at once.
//!
//! What the user reads, and what becomes of output that cannot be written: `output`. Jobs that PEs
//! spawn, and the names that they publish: `spawned`. Hosts that cannot be reached: `missing`. Processes that
//! are started again instead of ending the job: `respawn`. Those without whom the others go on: `losses`.

mod census;
mod losses;
mod missing;
mod output;
mod progress;
mod respawn;
mod spawned;
mod watch;

use std::collections::BTreeMap;

use shmem_node::recording::Recording;

pub use spawned::{Action, MAX_SPAWNED};

use crate::child::{self, Child, ChildSetup, Failure};
use crate::exit::{self, Cause, End, Fault, signal_name};
use crate::fold::Fold;
use crate::frame::{Frame, JobOptions, OutBuf, STDIN_WINDOW, Stream, codec};
use crate::pulse::Rhythm;
use crate::report::Reduced;
use crate::stdio::{Mixer, Turns};
use census::Asker;
use losses::Losses;
use output::{LINK, SHELL, Sink};
use progress::Progress;
use spawned::{Outer, SpawnedJobs};

/// How long agents may take to answer a `Stop` beyond the grace period, and the time in which they notice
/// that another one is silent.
const PATIENCE_NS: u64 = 10_000_000_000;

/// What a program gets that writes for nobody, and its number in the status of those that it ends.
const SIGPIPE: u8 = 13;

/// What stops PEs, and continues them.
const SIGTSTP: u8 = 20;
const SIGCONT: u8 = 18;

/// What the launcher needs to know of the job.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// PEs of the job.
    pub n_pes: u32,
    /// Its nodes.
    pub n_nodes: u32,
    /// What was asked for.
    pub options: JobOptions,
    /// When the job began.
    pub began: u64,
    /// Node 0's agent.
    pub agent: ChildSetup,
    /// Names of the nodes' hosts, if they have their own.
    pub hosts: Vec<String>,
    /// Id of the job.
    pub job_id: String,
    /// Its number, if another job has spawned it.
    pub spawned_as: Option<u32>,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// Bytes from node 0's agent.
    FromAgent(&'a [u8]),
    /// The link to it ended.
    AgentClosed,
    /// Its process ended.
    AgentReaped(End),
    /// Its process was started anew, as [`Action::StartAgent`] asks for; or why it cannot be.
    AgentStarted(Result<u32, String>),
    /// Its remote shell said something.
    ShellText(&'a [u8]),
    /// A signal for the launcher.
    Signal(u8),
    /// Input for PE 0.
    Stdin(&'a [u8]),
    /// There is no more input.
    StdinEnd,
    /// The driver wrote this many bytes of a stream's text.
    Written(Stream, usize),
    /// A stream can be written no more: nobody reads it, or this is where it leads and why.
    StreamClosed(Stream, Option<String>),
    /// Standard input cannot be read on, for this reason.
    StdinFailed(String),
    /// The launcher was stopped for so many nanoseconds, and all PEs with it.
    Continued(u64),
    /// Bytes from the launcher of the spawned job of this number.
    FromSpawned(u32, &'a [u8]),
    /// A spawned job wrote something.
    SpawnedText(u32, Stream, &'a [u8]),
    /// The launcher of a spawned job has ended, after all that it wrote; or why it cannot be started.
    SpawnedEnded(u32, Result<End, String>),
    /// Bytes from the launcher that started this one, which is that of a spawned job.
    FromOuter(&'a [u8]),
    /// Time has passed.
    Timer,
}

/// Moments of the job, in nanoseconds of the driver's clock; 0 if not reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moments {
    /// All agents were prepared.
    pub ready: u64,
    /// All PEs were started.
    pub started: u64,
    /// All PEs had ended.
    pub exited: u64,
    /// Nothing was left.
    pub done: u64,
}

impl Setup {
    /// Name of a node's host, if it has one of its own.
    fn host(&self, node: u32) -> &str {
        self.hosts.get(node as usize).map_or("", String::as_str)
    }
}

/// The state machine.
#[derive(Debug)]
pub struct Root {
    setup: Setup,
    /// Node 0's agent.
    agent: Child,
    mixer: Mixer,
    /// Whose line is open, per stream.
    turns: [Turns; 2],
    /// What PEs have said.
    fold: Fold,
    sinks: [Sink; 2],
    progress: Progress,
    credit: u32,
    stdin_credit: u32,
    stdin_ended: bool,
    status: u8,
    /// Whether the cause of the end is known.
    ending: bool,
    /// Whether it is the failure of a PE, which may turn out to be a consequence.
    blames_pe: bool,
    /// Whether a PE ended the job by its own request.
    aborted: bool,
    interrupts: u32,
    /// When the time limit is over.
    deadline: Option<u64>,
    stop_at: Option<u64>,
    /// Hosts that cannot be reached, while others of them are waited for.
    missing: Option<missing::Missing>,
    give_up_at: Option<u64>,
    /// Since when there is output that was not read.
    unread_since: Option<u64>,
    finished: bool,
    moments: Moments,
    report: Option<Reduced>,
    /// What the PEs recorded.
    recordings: Vec<Recording>,
    jobs: SpawnedJobs,
    outer: Option<Outer>,
    /// How often each PE was started again.
    respawned: BTreeMap<u32, u32>,
    /// Who failed without ending the job.
    losses: Losses,
    /// When the link is looked at.
    rhythm: Rhythm,
    /// Who asks what the PEs wait for.
    asked: census::Asked,
    /// Whether PEs wait for others that have left.
    watch: watch::Watch,
}

impl Root {
    /// A launcher whose agent of node 0 is being started.
    pub fn new(setup: Setup) -> Self {
        Self {
            mixer: Mixer::new(setup.options.label, setup.spawned_as),
            fold: Fold::default(),
            outer: setup.spawned_as.map(|_| Outer::default()),
            jobs: SpawnedJobs::default(),
            respawned: BTreeMap::new(),
            losses: Losses::default(),
            rhythm: Rhythm::new(setup.options.heartbeat, setup.options.preparation),
            asked: census::Asked::default(),
            watch: watch::Watch::default(),
            agent: Child::new(setup.agent.clone()),
            turns: Default::default(),
            sinks: Default::default(),
            progress: Progress::default(),
            credit: 0,
            stdin_credit: STDIN_WINDOW,
            stdin_ended: false,
            status: 0,
            ending: false,
            blames_pe: false,
            aborted: false,
            interrupts: 0,
            deadline: setup.options.timeout_s.map(|s| {
                let limit = s.saturating_mul(1_000_000_000);
                setup.began.saturating_add(limit)
            }),
            stop_at: None,
            missing: None,
            give_up_at: None,
            unread_since: None,
            finished: false,
            moments: Moments::default(),
            report: None,
            recordings: Vec::new(),
            setup,
        }
    }

    fn grace_ns(&self) -> u64 {
        self.setup.options.grace.as_nanos() as u64
    }

    /// Bytes for node 0's agent; the driver consumes what it has written.
    pub fn outgoing(&mut self) -> &mut OutBuf {
        &mut self.agent.out
    }

    /// Bytes of input that may be read now.
    pub fn stdin_room(&self) -> u32 {
        if self.stdin_ended || self.moments.ready == 0 {
            0
        } else {
            self.stdin_credit
        }
    }

    /// The exit status, once the job is over and everything was written.
    pub fn finished(&self) -> Option<u8> {
        let written = self.sinks.iter().all(Sink::is_empty);
        (self.is_over() && written).then_some(self.status)
    }

    /// Whether agents and spawned jobs are gone, though text may still have to be written.
    pub fn is_over(&self) -> bool {
        self.finished && self.jobs.is_empty()
    }

    /// The exit status as far as it is known.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// When things happened.
    pub fn moments(&self) -> Moments {
        self.moments
    }

    /// The agents' report.
    pub fn report(&self) -> Option<&Reduced> {
        self.report.as_ref()
    }

    /// What the PEs recorded, in no order.
    pub fn take_recordings(&mut self) -> Vec<Recording> {
        std::mem::take(&mut self.recordings)
    }

    /// When [`Event::Timer`] is due at the latest.
    pub fn next_timeout(&self) -> Option<u64> {
        if self.is_over() {
            return None;
        }
        let deadline = self.deadline.filter(|_| !self.ending);
        let of_pes = [deadline, self.stop_at, self.give_up_at];
        let of_pes = of_pes
            .into_iter()
            .filter(|_| self.clock(u64::MAX) == u64::MAX);
        let turns = self.turns.iter().filter_map(Turns::deadline).min();
        let look = self.rhythm.deadline().filter(|_| !self.finished);
        let others = [
            self.agent.deadline(),
            turns,
            look,
            self.progress_due(),
            self.answer_deadline(),
            self.watch_deadline(),
        ];
        of_pes.chain(others).flatten().min()
    }

    /// Takes note of an event.
    pub fn handle(&mut self, event: Event<'_>, now: u64) {
        match event {
            Event::FromAgent(bytes) => self.agent_bytes(bytes, now),
            Event::AgentClosed => self.agent.closed(now),
            Event::AgentStarted(started) => self.agent_started(started, now),
            Event::ShellText(text) => self.shell_text(text, now),
            Event::AgentReaped(end) => self.agent.reaped(end),
            Event::Signal(signal) => self.signal(signal, now),
            Event::Stdin(data) => {
                self.stdin_credit -= (data.len() as u32).min(self.stdin_credit);
                self.agent.out.send(&Frame::Stdin(data));
            }
            Event::StdinEnd => {
                if !std::mem::replace(&mut self.stdin_ended, true) {
                    self.agent.out.send(&Frame::StdinEnd);
                }
            }
            Event::Written(stream, n) => self.written(stream, n, now),
            Event::StreamClosed(stream, why) => self.stream_closed(stream, why, now),
            Event::StdinFailed(why) => {
                self.lose(exit::OUTPUT);
                self.say(&format!(
                    "cannot read standard input: {why}; for the program it ends here"
                ));
            }
            Event::Continued(stopped) => self.go_on(stopped),
            Event::FromSpawned(number, bytes) => self.spawned_bytes(number, bytes, now),
            Event::SpawnedText(number, stream, text) => {
                self.spawned_text(number, stream, text, now);
            }
            Event::SpawnedEnded(number, end) => self.spawned_ended(number, end, now),
            Event::FromOuter(bytes) => self.outer_bytes(bytes, now),
            Event::Timer => {
                for stream in Stream::ALL {
                    self.turn(stream, now, |turns, emit| turns.tick(now, emit));
                }
            }
        }
        self.look_at_reader(now);
        self.timers(now);
        self.show_progress(now);
    }

    /// Node 0's agent does not do its work: there is nobody left to end the job.
    fn agent_failed(&mut self, failure: &Failure, now: u64) {
        self.release_said(now);
        match self.agent.outlived_stop() {
            true => self.fault(&failure.fault, now),
            false => self.cause(&failure.fault, now),
        }
        self.finish(now);
    }

    fn agent_bytes(&mut self, bytes: &[u8], now: u64) {
        let each = |root: &mut Self, frame: Frame<'_>| root.frame(frame, now);
        let answered = self.agent.answered();
        let received = child::receive(self, |root| &mut root.agent, bytes, now, each);
        if !answered && self.agent.answered() {
            self.release_said(now);
        }
        if let Err(failure) = received {
            self.agent_failed(&failure, now);
        }
    }

    fn agent_started(&mut self, started: Result<u32, String>, now: u64) {
        match started {
            Ok(pid) => self.agent.begun(pid),
            Err(what) => {
                let failure = self.agent.cannot_start(what, now);
                self.agent_failed(&failure, now);
            }
        }
    }

    fn frame(&mut self, frame: Frame<'_>, now: u64) {
        match frame {
            Frame::Ready => {
                self.moments.ready = now;
                if !self.ending {
                    self.agent.out.send(&Frame::Go);
                }
            }
            Frame::Started => {
                self.moments.started = now;
                self.tell_running();
            }
            Frame::Exited => {
                self.agent.exited = true;
                self.moments.exited = now;
                self.tell_counts();
                // Spawned jobs may still have to be told that their time is up.
                if self.jobs.is_empty() {
                    self.stop_at = None;
                }
                self.agent.out.send(&Frame::Finish);
            }
            Frame::Output { rank, stream, data } => self.turn(stream, now, |turns, emit| {
                turns.relay(LINK, rank, data, now, emit);
            }),
            Frame::StdinCredit(n) => {
                self.stdin_credit = self.stdin_credit.saturating_add(n).min(STDIN_WINDOW);
            }
            Frame::Fault(fault) => self.fault(&fault, now),
            Frame::Cause(fault) => self.cause(&fault, now),
            Frame::Stopping => self.agent.stopping = true,
            Frame::Died(fault) => self.died(&fault, now),
            Frame::Notice(notice) => self.notice(notice),
            Frame::Progress { nodes, pes } => self.note_progress(nodes, pes),
            Frame::Say(text) => self.say(&text),
            Frame::Beat => {}
            Frame::Leaving => self.leaving(now),
            Frame::Failed(loss) => self.failed(loss, now),
            Frame::Counted { number, census } => self.counted(number, &census, now),
            Frame::Traced { number, rank, text } => self.traced(number, rank, text, now),
            Frame::Ask {
                asker,
                ticket,
                question,
            } => self.ask(0, asker, ticket, question),
            Frame::Recorded {
                shift,
                sent,
                recording,
            } => {
                let shift = shift.wrapping_add(self.agent.late_by(sent, now));
                match codec::decode::<Recording>(recording) {
                    Ok(mut recording) => {
                        recording.shift(shift);
                        self.recordings.push(recording);
                    }
                    Err(e) => self.say(&format!("what a PE recorded is lost: {e}")),
                }
            }
            Frame::Done(mut report) => {
                self.agent.done(&mut report, now);
                self.tell_statuses(&report.processes.ends);
                self.report = Some(*report);
                self.finish(now);
            }
            // Frames that only go down, and PMI beyond its root: nobody sends them.
            _ => {}
        }
    }

    /// The job goes on after it was stopped. All that was to be done at some time is to be done so
    /// much later.
    fn go_on(&mut self, by: u64) {
        self.pass_on(SIGCONT);
        let times = [&mut self.deadline, &mut self.stop_at, &mut self.give_up_at];
        for at in times.into_iter().flatten() {
            *at = at.saturating_add(by);
        }
        self.agent.postpone(by);
    }

    /// Notes the cause of the end; false if there is one already.
    fn end_with(&mut self, status: u8) -> bool {
        if self.ending || self.is_over() {
            return false;
        }
        self.ending = true;
        self.status = status;
        true
    }

    /// The job ends with it, which alone frees PEs that wait for a dead one: see [`exit`],
    /// "Who frees those that wait".
    fn fault(&mut self, fault: &Fault, now: u64) {
        // What ends those who write to a stream that is no more is a consequence.
        let piped = matches!(fault.cause, Cause::Pe { end: End::Signal { signal, .. }, .. } if signal == SIGPIPE);
        if piped && self.output_lost() && self.end_with(self.status) {
            self.tell_running();
            return self.stop(self.grace_ns(), now);
        }
        // Whatever follows the loss of output may be a consequence, too.
        let status = match self.status {
            exit::OUTPUT => exit::OUTPUT,
            first if !self.losses.is_empty() => first,
            _ => fault.status(),
        };
        let unreachable = matches!(fault.cause, Cause::Unreachable { .. });
        if unreachable && self.missing.is_some() {
            return self.add_missing(fault, now);
        }
        if self.end_with(status) {
            self.blames_pe =
                fault.cause.is_of_a_pe() && !fault.is_silent() && status == fault.status();
            self.aborted = self.blames_pe && matches!(fault.cause, Cause::Abort { .. });
            // A process that fails has run, though the others may still be on their way.
            if fault.cause.is_of_a_pe() {
                self.tell_running();
            }
            if !fault.is_silent() {
                let text = fault.message(&self.setup.hosts).to_string();
                if !self.tell_refused(&text) {
                    let rest = match &fault.cause {
                        _ if self.agent.exited => "",
                        Cause::Pe { .. } if self.setup.options.keep_going => {
                            "; ending the job, because others may wait for it: it had initialised and \
                             not finalized"
                        }
                        _ => "; ending the job",
                    };
                    self.say(&format!("{text}{rest}"));
                }
            }
            if unreachable && self.await_missing(now) {
                return;
            }
            // What the others wait for tells whom a silent node holds up.
            match fault.cause {
                Cause::Silent { .. } if !self.agent.is_lost() => self.stop_with_waits(now),
                _ => self.stop(self.grace_ns(), now),
            }
        }
    }

    /// A process of the launcher's own failed before its agent knew that the job ends. If the job ends because a PE
    /// failed, the PE may have failed because of that.
    fn cause(&mut self, fault: &Fault, now: u64) {
        if !self.ending {
            return self.fault(fault, now);
        }
        if std::mem::take(&mut self.blames_pe) && !self.is_over() {
            (self.status, self.aborted) = (fault.status(), false);
            let text = fault.message(&self.setup.hosts).to_string();
            self.say(&format!(
                "{text}; this was before the job was ended, so PEs may have failed because of it"
            ));
        }
    }

    fn stop(&mut self, grace_ns: u64, now: u64) {
        self.stop_at = None;
        self.end_missing();
        self.jobs.send(&Frame::Stop { grace_ns });
        if !self.agent.answered() {
            // A host that has not answered has nothing to end, and may take its time.
            return self.finish(now);
        }
        let from = self.clock(now);
        let noticed = self.setup.options.heartbeat.as_nanos() as u64;
        let patience = grace_ns.saturating_add(noticed).saturating_add(PATIENCE_NS);
        self.give_up_at = Some(from.saturating_add(patience));
        if !self.agent.exited {
            self.agent.out.send(&Frame::Stop { grace_ns });
        }
    }

    /// Passes a signal on to all processes.
    fn pass_on(&mut self, signal: u8) {
        self.agent.out.send(&Frame::Signal(signal));
        self.jobs.send(&Frame::Signal(signal));
    }

    fn signal(&mut self, signal: u8, now: u64) {
        const SIGINT: u8 = 2;
        const SIGQUIT: u8 = 3;
        if i32::from(signal) == libc::SIGUSR1 && !self.setup.options.pass_usr1 {
            self.jobs.send(&Frame::Signal(signal));
            return self.ask_waits(Asker::User, now);
        }
        if !exit::ends(signal) {
            return self.pass_on(signal);
        }
        if self.is_over() {
            // Only text is left, and somebody does not want to wait for it to be written.
            for sink in self.sinks.iter_mut().filter(|s| !s.is_empty()) {
                (sink.taken, sink.closed) = (0, true);
                sink.clear();
                if self.status == 0 {
                    self.status = 128 + signal;
                }
            }
            return;
        }
        self.hurry(now);
        if signal == SIGINT || signal == SIGQUIT {
            self.interrupts += 1;
            if self.interrupts == 2 {
                self.end_with(128 + signal);
                self.say("killing the job");
                return self.stop(0, now);
            }
            if self.interrupts > 2 {
                // Whatever holds us up (a terminal that takes no output), the user wants to go.
                self.give_up_at = Some(now);
                return;
            }
        }
        if self.end_with(128 + signal) {
            self.say(&format!("received {}; ending the job", signal_name(signal)));
            if signal == SIGINT || signal == SIGQUIT {
                self.pass_on(signal);
                self.stop_at = Some(now.saturating_add(self.grace_ns()));
            } else {
                self.stop(self.grace_ns(), now);
            }
        }
    }

    fn timers(&mut self, now: u64) {
        let clock = self.clock(now);
        let due = |at: Option<u64>| at.is_some_and(|at| at <= clock);
        if due(self.deadline) && self.end_with(exit::TIMEOUT) {
            self.say(&format!(
                "the time limit of {} s (--timeout) is over; ending the job",
                self.setup.options.timeout_s.unwrap_or(0)
            ));
            self.stop_with_waits(now);
        }
        self.look_for_stuck(now);
        if due(self.stop_at) {
            self.stop(self.grace_ns(), now);
        }
        if due(self.give_up_at) && !self.is_over() {
            // Text that waits for a slow reader shows that the agents are not to blame.
            if self.is_reader_slow(now) && self.interrupts < 3 {
                self.give_up_at = Some(clock.saturating_add(PATIENCE_NS));
            } else {
                self.say("the agents did not end in time; leaving their processes to the kernel");
                self.jobs.give_up();
                self.finish(now);
            }
        }
        if self.finished {
            return self.look_for_answer(now);
        }
        let mut failure = self.agent.look(now);
        if failure.is_none() && self.rhythm.is_due(now) {
            failure = self.agent.look_for_life(&self.rhythm, now);
        }
        if let Some(failure) = failure {
            self.agent_failed(&failure, now);
        }
        self.look_for_answer(now);
        if !self.ending && self.agent.is_due(now) {
            self.agent.begin(now);
            self.jobs.actions.push_back(Action::StartAgent);
        }
    }

    fn finish(&mut self, now: u64) {
        if !self.finished {
            for (stream, source) in [
                (Stream::Out, LINK),
                (Stream::Err, LINK),
                (Stream::Err, SHELL),
            ] {
                self.turn(stream, now, |turns, emit| turns.close(source, now, emit));
            }
            self.finished = true;
            self.moments.done = now;
            // Of agents that are lost, too, what has come.
            self.tell_counts();
            self.tell_losses();
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod spawned_tests;
