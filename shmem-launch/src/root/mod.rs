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
//! are started again instead of ending the job, or without which the other PEs go on: `losses`.

mod census;
mod event;
mod losses;
mod missing;
mod output;
mod progress;
mod signals;
mod sink;
mod spawned;
mod timers;
mod watch;

use shmem_node::recording::Recording;

pub use event::{Action, Event, Moments, Setup};
pub use spawned::MAX_SPAWNED;

use crate::child::{self, Child, Failure};
use crate::exit::{self, Cause, End, Fault};
use crate::frame::{Frame, OutBuf, STDIN_WINDOW, Stream, codec};
use crate::pulse::Rhythm;
use crate::repeats::Repeats;
use crate::report::Reduced;
use crate::stdio::Mixer;
use losses::Losses;
use output::{LINK, Output, SHELL};
use sink::Sink;
use spawned::SpawnedJobs;
use timers::{PATIENCE_NS, Times};

/// What a program gets that writes for nobody, and its number in the status of those that it ends.
const SIGPIPE: u8 = 13;

/// Signals that interrupt programs, stop them, and continue them.
const SIGINT: u8 = 2;
const SIGQUIT: u8 = 3;
const SIGTSTP: u8 = 20;
const SIGCONT: u8 = 18;

/// How the job ends.
#[derive(Debug, Default)]
struct Outcome {
    status: u8,
    /// Whether the cause of the end is known.
    decided: bool,
    /// Whether it is the failure of a PE, which may turn out to be a consequence.
    blames_pe: bool,
    /// Whether a PE ended the job by its own request.
    aborted: bool,
    /// Whether all agents are gone.
    finished: bool,
}

/// Standard input on its way to the PEs.
#[derive(Debug)]
struct Stdin {
    /// Bytes that may be sent.
    credit: u32,
    ended: bool,
}

/// What is left of a job that is over.
#[derive(Debug, Default)]
struct Results {
    moments: Moments,
    report: Option<Reduced>,
    /// What the PEs recorded.
    recordings: Vec<Recording>,
}

/// The state machine.
#[derive(Debug)]
pub struct Root {
    setup: Setup,
    /// Node 0's agent.
    agent: Child,
    /// When the link to it is looked at.
    rhythm: Rhythm,
    outcome: Outcome,
    times: Times,
    output: Output,
    stdin: Stdin,
    /// What PEs have said.
    repeats: Repeats,
    /// Hosts that cannot be reached, while others of them are waited for.
    missing: Option<missing::Missing>,
    /// PEs that failed without ending the job.
    losses: Losses,
    jobs: SpawnedJobs,
    /// Who asks what the PEs wait for.
    asked: census::Query,
    /// Whether PEs wait for others that have left.
    watch: watch::Watch,
    results: Results,
}

impl Root {
    /// A launcher whose agent of node 0 is being started.
    pub fn new(setup: Setup) -> Self {
        Self {
            agent: Child::new(setup.agent.clone()),
            rhythm: Rhythm::new(setup.options.heartbeat, setup.options.preparation),
            outcome: Outcome::default(),
            times: Times::of(&setup),
            output: Output::new(
                Mixer::new(setup.options.label, setup.spawned_as),
                setup.options.progress,
            ),
            stdin: Stdin {
                credit: STDIN_WINDOW,
                ended: false,
            },
            repeats: Repeats::default(),
            missing: None,
            losses: Losses::default(),
            jobs: SpawnedJobs::new(setup.spawned_as.is_some()),
            asked: census::Query::default(),
            watch: watch::Watch::default(),
            results: Results::default(),
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
        if self.stdin.ended || self.results.moments.ready == 0 {
            0
        } else {
            self.stdin.credit
        }
    }

    /// The exit status, once the job is over and everything was written.
    pub fn finished(&self) -> Option<u8> {
        let written = self.output.sinks.iter().all(Sink::is_empty);
        (self.is_over() && written).then_some(self.outcome.status)
    }

    /// Whether agents and spawned jobs are gone, though text may still have to be written.
    pub fn is_over(&self) -> bool {
        self.outcome.finished && self.jobs.is_empty()
    }

    /// The exit status as far as it is known.
    pub fn status(&self) -> u8 {
        self.outcome.status
    }

    /// When things happened.
    pub fn moments(&self) -> Moments {
        self.results.moments
    }

    /// The agents' report.
    pub fn report(&self) -> Option<&Reduced> {
        self.results.report.as_ref()
    }

    /// What the PEs recorded, in no order.
    pub fn take_recordings(&mut self) -> Vec<Recording> {
        std::mem::take(&mut self.results.recordings)
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
                self.stdin.credit -= (data.len() as u32).min(self.stdin.credit);
                self.agent.out.send(&Frame::Stdin(data));
            }
            Event::StdinEnd => {
                if !std::mem::replace(&mut self.stdin.ended, true) {
                    self.agent.out.send(&Frame::StdinEnd);
                }
            }
            Event::Written(stream, n) => self.written(stream, n, now),
            Event::StreamClosed(stream, why) => self.stream_closed(stream, why, now),
            Event::StdinFailed(why) => {
                self.lose(exit::OUTPUT);
                self.print(&format!(
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
                self.results.moments.ready = now;
                if !self.outcome.decided {
                    self.agent.out.send(&Frame::Go);
                }
            }
            Frame::Started => {
                self.results.moments.started = now;
                self.report_running();
            }
            Frame::Exited => {
                self.agent.exited = true;
                self.results.moments.exited = now;
                self.print_counts();
                // Spawned jobs may still have to be told that their time is up.
                if self.jobs.is_empty() {
                    self.times.stop_at = None;
                }
                self.agent.out.send(&Frame::Finish);
            }
            Frame::Output { rank, stream, data } => self.turn(stream, now, |turns, emit| {
                turns.relay(LINK, rank, data, now, emit);
            }),
            Frame::StdinCredit(n) => {
                self.stdin.credit = self.stdin.credit.saturating_add(n).min(STDIN_WINDOW);
            }
            Frame::Fault(fault) => self.fault(&fault, now),
            Frame::Cause(fault) => self.cause(&fault, now),
            Frame::Stopping => self.agent.stopping = true,
            Frame::Died(fault) => self.died(&fault, now),
            Frame::Notice(notice) => self.notice(notice),
            Frame::Progress { nodes, pes } => {
                (self.output.progress.nodes, self.output.progress.pes) = (nodes, pes);
            }
            Frame::Print(text) => self.print(&text),
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
                        self.results.recordings.push(recording);
                    }
                    Err(e) => self.print(&format!("what a PE recorded is lost: {e}")),
                }
            }
            Frame::Done(mut report) => {
                self.agent.done(&mut report, now);
                self.print_statuses(&report.processes.ends);
                self.results.report = Some(*report);
                self.finish(now);
            }
            // Frames that only go down, and PMI beyond its root: nobody sends them.
            _ => {}
        }
    }

    /// Notes the cause of the end; false if there is one already.
    fn end_with(&mut self, status: u8) -> bool {
        if self.outcome.decided || self.is_over() {
            return false;
        }
        self.outcome.decided = true;
        self.outcome.status = status;
        true
    }

    /// The job ends with it, which alone frees PEs that wait for a dead one: see [`exit`],
    /// "Who frees those that wait".
    fn fault(&mut self, fault: &Fault, now: u64) {
        // What ends those who write to a stream that is no more is a consequence.
        let piped = matches!(fault.cause, Cause::Pe { end: End::Signal { signal, .. }, .. } if signal == SIGPIPE);
        if piped && self.output_lost() && self.end_with(self.outcome.status) {
            self.report_running();
            return self.stop(self.grace_ns(), now);
        }
        // Whatever follows the loss of output may be a consequence, too.
        let status = match self.outcome.status {
            exit::OUTPUT => exit::OUTPUT,
            first if !self.losses.is_empty() => first,
            _ => fault.status(),
        };
        let unreachable = matches!(fault.cause, Cause::Unreachable { .. });
        if unreachable && self.missing.is_some() {
            return self.add_missing(fault, now);
        }
        if self.end_with(status) {
            self.outcome.blames_pe =
                fault.cause.is_of_a_pe() && !fault.is_silent() && status == fault.status();
            self.outcome.aborted =
                self.outcome.blames_pe && matches!(fault.cause, Cause::Abort { .. });
            // A process that fails has run, though the others may still be on their way.
            if fault.cause.is_of_a_pe() {
                self.report_running();
            }
            if !fault.is_silent() {
                let text = fault.message(&self.setup.hosts).to_string();
                if !self.report_refused(&text) {
                    let rest = match &fault.cause {
                        _ if self.agent.exited => "",
                        Cause::Pe { .. } if self.setup.options.keep_going => {
                            "; ending the job, because others may wait for it: it had initialised and \
                             not finalized"
                        }
                        _ => "; ending the job",
                    };
                    self.print(&format!("{text}{rest}"));
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
        if !self.outcome.decided {
            return self.fault(fault, now);
        }
        if std::mem::take(&mut self.outcome.blames_pe) && !self.is_over() {
            (self.outcome.status, self.outcome.aborted) = (fault.status(), false);
            let text = fault.message(&self.setup.hosts).to_string();
            self.print(&format!(
                "{text}; this was before the job was ended, so PEs may have failed because of it"
            ));
        }
    }

    fn stop(&mut self, grace_ns: u64, now: u64) {
        self.times.stop_at = None;
        self.end_missing();
        self.jobs.send(&Frame::Stop { grace_ns });
        if !self.agent.answered() {
            // A host that has not answered has nothing to end, and may take its time.
            return self.finish(now);
        }
        let from = self.clock(now);
        let noticed = self.setup.options.heartbeat.as_nanos() as u64;
        let patience = grace_ns.saturating_add(noticed).saturating_add(PATIENCE_NS);
        self.times.give_up_at = Some(from.saturating_add(patience));
        if !self.agent.exited {
            self.agent.out.send(&Frame::Stop { grace_ns });
        }
    }

    /// Passes a signal on to all processes.
    fn pass_on(&mut self, signal: u8) {
        self.agent.out.send(&Frame::Signal(signal));
        self.jobs.send(&Frame::Signal(signal));
    }

    fn finish(&mut self, now: u64) {
        if !self.outcome.finished {
            for (stream, source) in [
                (Stream::Out, LINK),
                (Stream::Err, LINK),
                (Stream::Err, SHELL),
            ] {
                self.turn(stream, now, |turns, emit| turns.close(source, now, emit));
            }
            self.outcome.finished = true;
            self.results.moments.done = now;
            // Of agents that are lost, too, what has come.
            self.print_counts();
            self.print_losses();
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod spawned_tests;
