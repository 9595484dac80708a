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
//! spawn, and the names that they publish: `spawned`. Processes that are started again instead of ending
//! the job: `respawn`.

mod output;
mod respawn;
mod spawned;

use std::collections::BTreeMap;

pub use spawned::{Action, MAX_SPAWNED};

use crate::exit::{self, Cause, End, Fault, signal_name};
use crate::fold::Fold;
use crate::frame::{Frame, FrameReader, OutBuf, STDIN_WINDOW, Stream};
use crate::remote::Contact;
use crate::report::Reduced;
use crate::stdio::{Mixer, Turns};
use output::{LINK, SHELL, Sink};
use spawned::{Outer, Spawned};

/// How long agents may take to answer a `Stop` beyond the grace period.
const PATIENCE_NS: u64 = 10_000_000_000;

/// What a program gets that writes for nobody, and its number in the status of those that it ends.
const SIGPIPE: u8 = 13;

/// What stops PEs, and continues them.
const SIGTSTP: u8 = 20;
const SIGCONT: u8 = 18;

/// How long the death of node 0's agent may take to follow the end of its link.
const AGENT_DEATH_NS: u64 = 300_000_000;

/// What the launcher needs to know of the job.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// PEs of the job.
    pub n_pes: u32,
    /// Whether lines carry the rank.
    pub label: bool,
    /// Time between asking a PE to end and killing it.
    pub grace_ns: u64,
    /// When the time limit is over.
    pub deadline: Option<u64>,
    /// The time limit in seconds, for the message.
    pub timeout_s: u64,
    /// Process id of node 0's agent, or of the remote shell that leads to it.
    pub agent_pid: u32,
    /// How node 0's agent was called, if it is on another host.
    pub contact: Option<Contact>,
    /// Names of the nodes' hosts, if they have their own.
    pub hosts: Vec<String>,
    /// Id of the job.
    pub job_id: String,
    /// Its number, if another job has spawned it.
    pub spawned: Option<u32>,
    /// How often processes that die may be started again, all together.
    pub respawns: u32,
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
    /// A stream can be written no more: nobody reads it, or for this reason.
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
    pub spawned: u64,
    /// All PEs had ended.
    pub exited: u64,
    /// Nothing was left.
    pub done: u64,
}

impl Setup {
    /// Name of a node's host, if it has one of its own.
    fn host(&self, node: u32) -> &str {
        let first = self.contact.as_ref().filter(|_| node == 0);
        let named = self.hosts.get(node as usize).map(String::as_str);
        first.map(Contact::host).or(named).unwrap_or("")
    }
}

/// The state machine.
#[derive(Debug)]
pub struct Root {
    setup: Setup,
    reader: FrameReader,
    down: OutBuf,
    mixer: Mixer,
    /// Whose line is open, per stream.
    turns: [Turns; 2],
    /// What PEs have said.
    fold: Fold,
    sinks: [Sink; 2],
    credit: u32,
    stdin_credit: u32,
    stdin_ended: bool,
    status: u8,
    /// Whether the cause of the end is known.
    ending: bool,
    interrupts: u32,
    stop_at: Option<u64>,
    give_up_at: Option<u64>,
    exited: bool,
    finished: bool,
    closed_at: Option<u64>,
    agent_end: Option<End>,
    moments: Moments,
    report: Option<Reduced>,
    spawned: Spawned,
    outer: Option<Outer>,
    /// How often each PE was started again.
    respawned: BTreeMap<u32, u32>,
}

impl Root {
    /// A launcher whose agent of node 0 is being started.
    pub fn new(setup: Setup) -> Self {
        Self {
            mixer: Mixer::new(setup.n_pes, setup.label, setup.spawned),
            fold: Fold::default(),
            outer: setup.spawned.map(|_| Outer::default()),
            spawned: Spawned::default(),
            respawned: BTreeMap::new(),
            setup,
            reader: FrameReader::default(),
            turns: Default::default(),
            down: OutBuf::default(),
            sinks: Default::default(),
            credit: 0,
            stdin_credit: STDIN_WINDOW,
            stdin_ended: false,
            status: 0,
            ending: false,
            interrupts: 0,
            stop_at: None,
            give_up_at: None,
            exited: false,
            finished: false,
            closed_at: None,
            agent_end: None,
            moments: Moments::default(),
            report: None,
        }
    }

    /// Bytes for node 0's agent; the driver consumes what it has written.
    pub fn outgoing(&mut self) -> &mut OutBuf {
        &mut self.down
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
        self.finished && self.spawned.is_empty()
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

    /// When [`Event::Timer`] is due at the latest.
    pub fn next_timeout(&self) -> Option<u64> {
        if self.is_over() {
            return None;
        }
        let deadline = self.setup.deadline.filter(|_| !self.ending);
        let of_pes = [deadline, self.stop_at, self.give_up_at];
        let of_pes = of_pes
            .into_iter()
            .filter(|_| self.clock(u64::MAX) == u64::MAX);
        let death = self.closed_at.map(|at| at + AGENT_DEATH_NS);
        let contact = self.setup.contact.as_ref().and_then(Contact::deadline);
        let turns = self.turns.iter().filter_map(Turns::deadline).min();
        let others = [death, contact, turns];
        of_pes.chain(others).flatten().min()
    }

    /// Takes note of an event.
    pub fn handle(&mut self, event: Event<'_>, now: u64) {
        match event {
            Event::FromAgent(bytes) => self.agent_bytes(bytes, now),
            Event::AgentClosed => {
                self.closed_at.get_or_insert(now);
            }
            Event::ShellText(text) => self.shell_text(text, now),
            Event::AgentReaped(end) => self.agent_end = Some(end),
            Event::Signal(signal) => self.signal(signal, now),
            Event::Stdin(data) => {
                self.stdin_credit -= (data.len() as u32).min(self.stdin_credit);
                self.down.send(&Frame::Stdin(data));
            }
            Event::StdinEnd => {
                if !std::mem::replace(&mut self.stdin_ended, true) {
                    self.down.send(&Frame::StdinEnd);
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
        self.timers(now);
    }

    /// Whether node 0's agent has begun to work: one that was forked has, another says so first.
    fn answered(&self) -> bool {
        self.setup.contact.as_ref().is_none_or(Contact::greeted)
    }

    /// Something is wrong with node 0 itself.
    fn node_0(&mut self, what: String, now: u64) {
        let fault = Fault {
            node: 0,
            pid: self.setup.agent_pid,
            cause: Cause::Node { what },
        };
        self.fault(&fault, now);
    }

    fn agent_bytes(&mut self, bytes: &[u8], now: u64) {
        let mut bytes = bytes;
        if let Some(contact) = &mut self.setup.contact
            && !contact.greeted()
            && let Err(what) = contact.take_greeting(&mut bytes)
        {
            self.node_0(what, now);
            // Nothing of the job runs there.
            return self.finish(now);
        }
        let mut reader = std::mem::take(&mut self.reader);
        loop {
            let frame = match reader.next_frame(&mut bytes) {
                Ok(None) => break,
                Ok(Some(content)) => Frame::decode(content),
                Err(e) => Err(e),
            };
            match frame {
                Ok(frame) => self.frame(frame, now),
                Err(e) => {
                    let what = format!("its agent sent what cannot be understood: {e}");
                    self.node_0(what, now);
                    self.closed_at.get_or_insert(now);
                    break;
                }
            }
        }
        self.reader = reader;
    }

    fn frame(&mut self, frame: Frame<'_>, now: u64) {
        match frame {
            Frame::Ready => {
                self.moments.ready = now;
                if !self.ending {
                    self.down.send(&Frame::Go);
                }
            }
            Frame::Spawned => {
                self.moments.spawned = now;
                self.tell_running();
            }
            Frame::Exited => {
                self.exited = true;
                self.moments.exited = now;
                self.tell_counts();
                // Spawned jobs may still have to be told that their time is up.
                if self.spawned.is_empty() {
                    self.stop_at = None;
                }
                self.down.send(&Frame::Finish);
            }
            Frame::Output { rank, stream, data } => self.turn(stream, now, |turns, emit| {
                turns.relay(LINK, rank, data, now, emit);
            }),
            Frame::StdinCredit(n) => {
                self.stdin_credit = self.stdin_credit.saturating_add(n).min(STDIN_WINDOW);
            }
            Frame::Fault(fault) => self.fault(&fault, now),
            Frame::Died(fault) => self.died(&fault, now),
            Frame::Told(told) => self.told(told),
            Frame::Ask {
                asker,
                ticket,
                question,
            } => self.ask(0, asker, ticket, question),
            Frame::Done(body) => {
                self.report = Reduced::decode(body).ok().map(|mut report| {
                    if self.setup.contact.is_some() {
                        report.bring_to(now);
                    }
                    report
                });
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
        let times = [
            &mut self.setup.deadline,
            &mut self.stop_at,
            &mut self.give_up_at,
            &mut self.closed_at,
        ];
        for at in times.into_iter().flatten() {
            *at = at.saturating_add(by);
        }
        if let Some(contact) = &mut self.setup.contact {
            contact.postpone(by);
        }
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

    fn fault(&mut self, fault: &Fault, now: u64) {
        // What ends those who write to a stream that is no more is a consequence.
        let piped = matches!(fault.cause, Cause::Pe { end: End::Signal { signal, .. }, .. } if signal == SIGPIPE);
        if piped && self.status != 0 && self.end_with(self.status) {
            self.tell_running();
            return self.stop(self.setup.grace_ns, now);
        }
        // Whatever follows the loss of output may be a consequence, too.
        let status = match self.status {
            exit::OUTPUT => exit::OUTPUT,
            _ => fault.status(),
        };
        if self.end_with(status) {
            // A process that fails has run, though the others may still be on their way.
            if fault.cause.is_of_a_pe() {
                self.tell_running();
            }
            if !fault.is_silent() {
                let text = fault.told(&self.setup.hosts).to_string();
                if !self.tell_refused(&text) {
                    let rest = if self.exited { "" } else { "; ending the job" };
                    self.say(&format!("{text}{rest}"));
                }
            }
            self.stop(self.setup.grace_ns, now);
        }
    }

    fn stop(&mut self, grace_ns: u64, now: u64) {
        self.stop_at = None;
        self.spawned.send(&Frame::Stop { grace_ns });
        if !self.answered() {
            // A host that has not answered has nothing to end, and may take its time.
            return self.finish(now);
        }
        let from = self.clock(now);
        self.give_up_at = Some(from.saturating_add(grace_ns).saturating_add(PATIENCE_NS));
        if !self.exited {
            self.down.send(&Frame::Stop { grace_ns });
        }
    }

    /// Passes a signal on to all processes.
    fn pass_on(&mut self, signal: u8) {
        self.down.send(&Frame::Signal(signal));
        self.spawned.send(&Frame::Signal(signal));
    }

    fn signal(&mut self, signal: u8, now: u64) {
        const SIGINT: u8 = 2;
        const SIGQUIT: u8 = 3;
        if !exit::ends(signal) {
            return self.pass_on(signal);
        }
        if self.is_over() {
            // Only text is left, and somebody does not want to wait for it to be written.
            for sink in self.sinks.iter_mut().filter(|s| !s.is_empty()) {
                (sink.taken, sink.closed) = (0, true);
                sink.text.clear();
                if self.status == 0 {
                    self.status = 128 + signal;
                }
            }
            return;
        }
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
                self.stop_at = Some(now.saturating_add(self.setup.grace_ns));
            } else {
                self.stop(self.setup.grace_ns, now);
            }
        }
    }

    fn timers(&mut self, now: u64) {
        let clock = self.clock(now);
        let due = |at: Option<u64>| at.is_some_and(|at| at <= clock);
        if due(self.setup.deadline) && self.end_with(exit::TIMEOUT) {
            self.say(&format!(
                "the time limit of {} s (--timeout) is over; ending the job",
                self.setup.timeout_s
            ));
            self.stop(self.setup.grace_ns, now);
        }
        if due(self.stop_at) {
            self.stop(self.setup.grace_ns, now);
        }
        if due(self.give_up_at) && !self.is_over() {
            // Text that waits for a slow reader shows that the agents are not to blame.
            let unwritten = !self.sinks.iter().all(Sink::is_empty);
            let waiting = unwritten && self.interrupts < 3;
            if waiting {
                self.give_up_at = Some(now.saturating_add(PATIENCE_NS));
            } else {
                self.say("the agents did not end in time; leaving their processes to the kernel");
                self.spawned.give_up();
                self.finish(now);
            }
        }
        let overdue = self.setup.contact.as_ref().and_then(|c| c.overdue(now));
        if let Some(what) = overdue.filter(|_| !self.finished) {
            self.node_0(what, now);
            self.finish(now);
        }
        if let Some(at) = self.closed_at
            && !self.finished
            && (self.agent_end.is_some() || now >= at + AGENT_DEATH_NS)
        {
            let cause = match &self.setup.contact {
                Some(contact) => Cause::Node {
                    what: contact.lost(self.agent_end),
                },
                None => Cause::Agent {
                    end: self.agent_end,
                },
            };
            let fault = Fault {
                node: 0,
                pid: self.setup.agent_pid,
                cause,
            };
            self.fault(&fault, now);
            self.finish(now);
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
            for stream in Stream::ALL {
                let sink = &mut self.sinks[stream as usize];
                if !sink.closed {
                    self.mixer.finish(stream, &mut sink.text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod spawned_tests;
