//! What PEs ask the launcher for, and the jobs that they spawn.
//!
//! A spawned job has a launcher of its own, `shmrun --spawned`, which is started by the launcher that
//! the user started, and by no other: a launcher of a spawned job passes on whatever its PEs ask. So
//! names are kept in one place, all jobs are known in one place, and a job can spawn others whether or
//! not it was spawned itself.
//!
//! The launcher of a spawned job says once whether the job runs. From then on the job is a part of
//! the whole: the whole ends when all its jobs have ended, and if one fails or is aborted, all are
//! ended and its status is that of `shmrun`.

use std::collections::VecDeque;

use shmem_pmi::question::{Answer, Question, SpawnRequest};

use super::Root;
use super::event::Action;
use super::output::SPAWNED;
use super::{SIGCONT, SIGINT, SIGQUIT, SIGTSTP};
use crate::exit::{self, End};
use crate::frame::{Frame, FrameReader, OutBuf, SpawnedJob, Stream, each_frame};
use crate::names::Names;
use shmem_node::contract::MAX_PES;

/// Most spawned jobs that run at a time.
pub const MAX_SPAWNED: usize = 64;

/// Return code of a job that cannot be spawned.
const FAIL: i32 = 1;

/// Who waits to hear that a job runs.
#[derive(Debug, Clone, Copy)]
struct SpawnAsker {
    /// Number of the spawned job that the PE belongs to; 0 for this one.
    job: u32,
    asker: u32,
    ticket: u64,
}

/// A job that was spawned, from the request to the end of its launcher.
#[derive(Debug)]
struct Child {
    number: u32,
    /// Until it is known whether the job runs.
    asked: Option<SpawnAsker>,
    /// Once it runs.
    job_id: Option<String>,
    reader: FrameReader,
    out: OutBuf,
}

/// All of them, and what they share.
#[derive(Debug, Default)]
pub(super) struct SpawnedJobs {
    children: Vec<Child>,
    /// Number of the last one.
    last: u32,
    names: Names,
    pub(super) actions: VecDeque<Action>,
    /// The launcher that started this one, if this is that of a spawned job.
    outer: Option<Outer>,
}

impl SpawnedJobs {
    /// Of a job that was itself spawned, or was not.
    pub(super) fn new(is_spawned: bool) -> Self {
        Self {
            outer: is_spawned.then(Outer::default),
            ..Self::default()
        }
    }

    /// Whether no spawned job is left.
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Nothing more is expected of them.
    pub(super) fn give_up(&mut self) {
        self.children.clear();
    }

    /// Sends a frame to all their launchers.
    pub(super) fn send(&mut self, frame: &Frame<'_>) {
        for child in &mut self.children {
            child.out.send(frame);
        }
    }

    fn child(&mut self, number: u32) -> Option<&mut Child> {
        self.children.iter_mut().find(|c| c.number == number)
    }
}

/// The link of the launcher of a spawned job to the launcher that started it.
#[derive(Debug, Default)]
struct Outer {
    reader: FrameReader,
    out: OutBuf,
    /// Whether it was answered that the job runs, or that it does not.
    answered: bool,
    /// Since when it has the job stopped; this launcher is not stopped itself.
    stopped: Option<u64>,
}

impl Outer {
    fn answer(&mut self, answer: &Answer) {
        self.answered = true;
        self.out.send(&Frame::Answer {
            asker: 0,
            ticket: 0,
            answer: &answer.encode(),
        });
    }
}

impl Root {
    /// What to do next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.jobs.actions.pop_front()
    }

    /// Bytes for the launcher of a spawned job, while there is one of this number.
    pub fn outgoing_spawned(&mut self, number: u32) -> Option<&mut OutBuf> {
        self.jobs.child(number).map(|c| &mut c.out)
    }

    /// Bytes for the launcher that started this one, if this is that of a spawned job.
    pub fn outgoing_outer(&mut self) -> Option<&mut OutBuf> {
        self.jobs.outer.as_mut().map(|o| &mut o.out)
    }

    /// Whether output of spawned jobs may be read: not while older text waits to be written.
    pub fn may_read_spawned(&self, stream: Stream) -> bool {
        self.may_read(stream)
    }

    /// A PE asks something.
    pub(super) fn ask(&mut self, job: u32, asker: u32, ticket: u64, question: &[u8]) {
        if let Some(outer) = &mut self.jobs.outer {
            return outer.out.send(&Frame::Ask {
                asker,
                ticket,
                question,
            });
        }
        let names = &mut self.jobs.names;
        let answer = match Question::decode(question) {
            Ok(Question::Publish { name, port }) => names.publish(job, name, port),
            Ok(Question::LookupName { name }) => names.lookup(&name),
            Ok(Question::Unpublish { name }) => names.unpublish(&name),
            Ok(Question::Spawn(request)) => {
                let asked = SpawnAsker { job, asker, ticket };
                match self.spawn(asked, request) {
                    Ok(()) => return,
                    Err(reason) => Answer::Refused { rc: FAIL, reason },
                }
            }
            Ok(other) => Answer::Refused {
                rc: FAIL,
                reason: format!("the launcher does not answer {other:?}"),
            },
            Err(e) => Answer::Refused {
                rc: FAIL,
                reason: e.to_string(),
            },
        };
        self.answer(SpawnAsker { job, asker, ticket }, &answer);
    }

    fn answer(&mut self, asked: SpawnAsker, answer: &Answer) {
        let SpawnAsker { job, asker, ticket } = asked;
        let out = match job {
            0 => Some(&mut self.agent.out),
            job => self.jobs.child(job).map(|c| &mut c.out),
        };
        if let Some(out) = out {
            out.send(&Frame::Answer {
                asker,
                ticket,
                answer: &answer.encode(),
            });
        }
    }

    fn spawn(&mut self, asked: SpawnAsker, request: SpawnRequest) -> Result<(), String> {
        let procs = request.commands.iter().map(|c| u64::from(c.procs));
        let total: u64 = procs.sum();
        if total == 0 || request.commands.iter().any(|c| c.procs == 0) {
            return Err("a program with 0 processes starts nothing".into());
        }
        if total > MAX_PES.into() {
            return Err(format!("{total} processes; at most {MAX_PES} are possible"));
        }
        if self.outcome.decided {
            return Err("the job is being ended".into());
        }
        if self.jobs.children.len() >= MAX_SPAWNED {
            return Err(format!("{MAX_SPAWNED} spawned jobs run already"));
        }
        let spawner = match asked.job {
            0 => Some(self.setup.job_id.clone()),
            job => self.jobs.child(job).and_then(|c| c.job_id.clone()),
        };
        self.jobs.last += 1;
        let number = self.jobs.last;
        let job = SpawnedJob {
            number,
            spawner: spawner.unwrap_or_default(),
            request,
        };
        let mut out = OutBuf::default();
        out.send(&Frame::Job(&job.encode()));
        self.jobs.children.push(Child {
            number,
            asked: Some(asked),
            job_id: None,
            reader: FrameReader::default(),
            out,
        });
        self.jobs.actions.push_back(Action::StartJob { number });
        Ok(())
    }

    /// Bytes came from the launcher of a spawned job.
    pub(super) fn spawned_bytes(&mut self, number: u32, bytes: &[u8], now: u64) {
        let each = |root: &mut Self, frame: Frame<'_>| root.spawned_frame(number, &frame);
        let understood = each_frame(
            self,
            |root| root.jobs.child(number).map(|c| &mut c.reader),
            bytes,
            each,
        );
        if let Err(e) = understood
            && self.end_with(exit::LAUNCHER)
        {
            self.print(&format!(
                "the launcher of spawned job {number} sent what cannot be understood: {e}; \
                 ending the job"
            ));
            self.stop(self.grace_ns(), now);
        }
    }

    fn spawned_frame(&mut self, number: u32, frame: &Frame<'_>) {
        match *frame {
            Frame::Ask {
                asker,
                ticket,
                question,
            } => self.ask(number, asker, ticket, question),
            Frame::Answer { answer, .. } => {
                let answer = Answer::decode(answer).unwrap_or_else(|e| Answer::Refused {
                    rc: FAIL,
                    reason: e.to_string(),
                });
                let Some(child) = self.jobs.child(number) else {
                    return;
                };
                if let Answer::Spawned { job_id } = &answer {
                    child.job_id = Some(job_id.clone());
                }
                if let Some(asked) = child.asked.take() {
                    self.answer(asked, &answer);
                }
            }
            // Nothing else comes from there.
            _ => {}
        }
    }

    /// A spawned job wrote something, labels and all. Its launcher has put lines in order.
    pub(super) fn spawned_text(&mut self, number: u32, stream: Stream, text: &[u8], now: u64) {
        self.turn(stream, now, |turns, emit| {
            turns.relay(SPAWNED + number, 0, text, now, emit);
        });
    }

    /// The launcher of a spawned job has ended, and all that it wrote is here; `None` if it could not
    /// be started, for this reason.
    pub(super) fn spawned_ended(&mut self, number: u32, end: Result<End, String>, now: u64) {
        for stream in Stream::ALL {
            let source = SPAWNED + number;
            self.turn(stream, now, |turns, emit| turns.close(source, now, emit));
        }
        let Some(child) = self.jobs.child(number) else {
            return;
        };
        let (asked, ran) = (child.asked.take(), child.job_id.is_some());
        let reason = match &end {
            Ok(end) => format!("the launcher of the job {end}"),
            Err(e) => format!("the launcher of the job cannot be started: {e}"),
        };
        let status = match &end {
            // It has told why.
            Ok(End::Code(code)) => *code,
            _ => exit::LAUNCHER,
        };
        // A job that never ran was refused, and whoever asked for it decides what follows. Before it is
        // forgotten: it may be the last, and what has ended cannot fail.
        let fails = ran && status != 0 && self.end_with(status);
        self.jobs.children.retain(|c| c.number != number);
        self.jobs.names.forget(number);
        if let Some(asked) = asked {
            let answer = Answer::Refused { rc: FAIL, reason };
            self.answer(asked, &answer);
        }
        if fails {
            if let Ok(end @ End::Signal { .. }) = end {
                self.print(&format!(
                    "the launcher of spawned job {number} {end}; ending the job"
                ));
            }
            self.stop(self.grace_ns(), now);
        }
    }

    /// Bytes came from the launcher that started this one.
    pub(super) fn outer_bytes(&mut self, bytes: &[u8], now: u64) {
        let each = |root: &mut Self, frame: Frame<'_>| root.outer_frame(&frame, now);
        let understood = each_frame(
            self,
            |root| root.jobs.outer.as_mut().map(|outer| &mut outer.reader),
            bytes,
            each,
        );
        if let Err(e) = understood
            && self.end_with(exit::LAUNCHER)
        {
            self.print(&format!(
                "shmrun sent what cannot be understood: {e}; ending the job"
            ));
            self.stop(self.grace_ns(), now);
        }
    }

    fn outer_frame(&mut self, frame: &Frame<'_>, now: u64) {
        match *frame {
            Frame::Answer { .. } => self.agent.out.send(frame),
            Frame::Signal(SIGCONT) => {
                let stopped = self
                    .jobs
                    .outer
                    .as_mut()
                    .and_then(|outer| outer.stopped.take());
                self.go_on(now.saturating_sub(stopped.unwrap_or(now)));
            }
            Frame::Signal(signal) => {
                if i32::from(signal) == libc::SIGUSR1 && !self.setup.options.pass_usr1 {
                    return self.signal(signal, now);
                }
                if let Some(outer) = self.jobs.outer.as_mut().filter(|_| signal == SIGTSTP) {
                    outer.stopped.get_or_insert(now);
                }
                // The other launcher has said that it came, and will say when time is up.
                if matches!(signal, SIGINT | SIGQUIT) {
                    self.end_with(128 + signal);
                }
                self.agent.out.send(frame);
            }
            Frame::Stop { grace_ns } => {
                self.end_with(128 + 15);
                self.stop(grace_ns, now);
            }
            _ => {}
        }
    }

    /// When the job was stopped, while it is; or else now. What PEs and agents have time for is counted by this.
    pub(super) fn clock(&self, now: u64) -> u64 {
        let stopped = self.jobs.outer.as_ref().and_then(|outer| outer.stopped);
        stopped.unwrap_or(now)
    }

    /// Tells the launcher that started this one, if any, that the job runs.
    pub(super) fn report_running(&mut self) {
        if let Some(outer) = self.jobs.outer.as_mut().filter(|o| !o.answered) {
            outer.answer(&Answer::Spawned {
                job_id: self.setup.job_id.clone(),
            });
        }
    }

    /// Tells it that the job does not, unless it was told already that it does: false then, or if this
    /// job was not spawned, and the user has to be told.
    pub(super) fn report_refused(&mut self, reason: &str) -> bool {
        let outer = self.jobs.outer.as_mut().filter(|o| !o.answered);
        outer.is_some_and(|outer| {
            outer.answer(&Answer::Refused {
                rc: FAIL,
                reason: reason.to_owned(),
            });
            true
        })
    }
}
