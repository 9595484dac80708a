//! What the user reads: the output of all, put in order, with the launcher's own words behind what was
//! said before.
//!
//! A stream that can no longer be written is closed for the PEs, too, who go on as they see fit: most end
//! by SIGPIPE at their next write, which is then not told as a failure of theirs. The status is that of
//! a program that SIGPIPE ends where the reader has gone, and a status of its own, with a message, where
//! output is lost for another reason, even if all PEs end well. Input that cannot be read is told and
//! counted in the same way.

use super::progress::Progress;
use super::sink::Sink;
use super::timers::PATIENCE_NS;
use super::{Root, SIGPIPE};
use crate::exit;
use crate::frame::{CREDIT_STEP, Frame, OUTPUT_OVERHEAD, Stream};
use crate::repeats::{Notice, Passed};
use crate::report::Ends;
use crate::stdio::{Mixer, Said, Separate, Speaker, Turns};

/// How long output may wait for its reader before the agents get more time to end.
const SLOW_NS: u64 = 1_000_000_000;

/// Bytes that may wait for their turn where no credit bounds them.
const ROOM: usize = 1 << 20;

/// Sources of output: the link to node 0's agent, its remote shell, and spawned jobs from their numbers
/// on.
pub(super) const LINK: u32 = 0;
pub(super) const SHELL: u32 = 1;
pub(super) const SPAWNED: u32 = 2;

/// All that the user reads, on its way out.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) mixer: Mixer,
    /// Whose line is open, per stream.
    pub(super) turns: [Turns; 2],
    pub(super) sinks: [Sink; 2],
    pub(super) progress: Progress,
    /// Bytes that may be granted to node 0's agent.
    credit: u32,
    /// Since when there is output that was not read.
    unread_since: Option<u64>,
}

impl Output {
    pub(super) fn new(mixer: Mixer, shows_progress: bool) -> Self {
        Self {
            mixer,
            turns: Default::default(),
            sinks: Default::default(),
            progress: Progress::new(shows_progress),
            credit: 0,
            unread_since: None,
        }
    }

    fn end_progress(&mut self) {
        self.progress.end(&mut self.sinks[Stream::Err as usize]);
    }
}

impl Root {
    /// Takes the text of a stream to be written; the driver reports it with [`Event::Written`](super::Event::Written).
    pub fn take_text(&mut self, stream: Stream) -> Vec<u8> {
        let Output {
            progress, sinks, ..
        } = &mut self.output;
        let erases = progress.is_being_erased(&sinks[Stream::Err as usize]);
        if erases && stream == Stream::Out {
            return Vec::new();
        }
        let sink = &mut sinks[stream as usize];
        sink.taken += sink.text.len();
        sink.frames_taken += std::mem::take(&mut sink.frames);
        std::mem::take(&mut sink.text)
    }

    /// Shows what the start has come to, until all PEs run or the job ends.
    pub(super) fn show_progress(&mut self, now: u64) {
        if self.results.moments.started != 0 || self.outcome.decided || self.outcome.finished {
            return self.output.end_progress();
        }
        let sink = &mut self.output.sinks[Stream::Err as usize];
        self.output.progress.show(sink, &self.setup, now);
    }

    /// Whether what was written of a stream ends within a line.
    pub fn ends_within_line(&self, stream: Stream) -> bool {
        self.output.mixer.is_open(stream)
    }

    /// Takes what is for the files of PEs; reported together with the text, as one.
    pub fn take_files(&mut self, stream: Stream) -> Separate {
        let sink = &mut self.output.sinks[stream as usize];
        sink.taken += sink.files.len();
        sink.frames_taken += std::mem::take(&mut sink.frames);
        std::mem::take(&mut sink.files)
    }

    /// Has the turns of a stream do something, and adds what they give to its text.
    pub(super) fn turn(
        &mut self,
        stream: Stream,
        now: u64,
        act: impl FnOnce(&mut Turns, &mut dyn FnMut(Said<'_>)),
    ) {
        let Self { output, setup, .. } = self;
        let Output {
            turns,
            mixer,
            sinks,
            credit,
            ..
        } = output;
        let sink = &mut sinks[stream as usize];
        let turns = &mut turns[stream as usize];
        let before = sink.text.len();
        act(turns, &mut |said| {
            let n = said.head.len() + said.tail.len();
            if said.source == LINK {
                let frame = (OUTPUT_OVERHEAD + n) as u32;
                let counts = if sink.closed {
                    &mut *credit
                } else {
                    &mut sink.frames
                };
                *counts += frame;
            }
            if sink.closed {
                return;
            }
            for data in [said.head, said.tail] {
                let is_of_pe = said.source == LINK && said.tag < setup.n_pes;
                if is_of_pe && setup.options.separate {
                    sink.files.add(said.tag, data);
                } else if let Some(number) = said.source.checked_sub(SPAWNED) {
                    mixer.add(stream, Speaker::Spawned(number), data, &mut sink.text);
                } else if let Some(node) = said.tag.checked_sub(setup.n_pes) {
                    let host = setup.host(node);
                    mixer.add_of_host(stream, host, data, &mut sink.text);
                } else {
                    mixer.add(stream, Speaker::Pe(said.tag), data, &mut sink.text);
                }
            }
        });
        if sink.text.len() > before {
            let said = sink.text.split_off(before);
            self.output.end_progress();
            self.output.sinks[stream as usize].text.extend(said);
        }
        let blocked = !self.output.sinks[stream as usize].is_empty();
        self.output.turns[stream as usize].set_blocked(blocked, now);
        self.return_credit();
    }

    pub(super) fn shell_text(&mut self, text: &[u8], now: u64) {
        let said = self.agent.shell_text(text);
        self.pass_said(&said, now);
    }

    /// Tells what the remote shell has said that was held back.
    pub(super) fn release_said(&mut self, now: u64) {
        let said = self.agent.take_said();
        self.pass_said(&said, now);
    }

    fn pass_said(&mut self, text: &[u8], now: u64) {
        if text.is_empty() {
            return;
        }
        let number = self.setup.n_pes;
        self.turn(Stream::Err, now, |turns, emit| {
            turns.write(SHELL, number, text, now, emit);
        });
    }

    /// Whether node 0's remote shell may be heard: not while what it said waits for a blocked
    /// terminal.
    pub fn may_read_shell(&self) -> bool {
        self.may_read(Stream::Err)
    }

    /// Whether there is room for what is not bounded by credit.
    pub(super) fn may_read(&self, stream: Stream) -> bool {
        let at = stream as usize;
        let sink = &self.output.sinks[at];
        sink.text.is_empty() && sink.files.is_empty() && self.output.turns[at].stored() < ROOM
    }

    pub(super) fn written(&mut self, stream: Stream, n: usize, now: u64) {
        let sink = &mut self.output.sinks[stream as usize];
        sink.taken -= n.min(sink.taken);
        if sink.taken == 0 {
            self.output.credit += std::mem::take(&mut sink.frames_taken);
            if sink.closed {
                self.output.credit += std::mem::take(&mut sink.frames);
            }
            self.output.turns[stream as usize].set_blocked(!sink.is_empty(), now);
            self.return_credit();
        }
    }

    /// Agents end when their output was read. Where that took long, they have the full time for it again.
    pub(super) fn look_at_reader(&mut self, now: u64) {
        if !self.output.sinks.iter().all(Sink::is_empty) {
            self.output.unread_since.get_or_insert(now);
            return;
        }
        let slow = self.is_reader_slow(now);
        self.output.unread_since = None;
        let from = self.clock(now);
        if let Some(at) = self
            .times
            .give_up_at
            .as_mut()
            .filter(|_| slow && self.times.interrupts < 3)
        {
            *at = (*at).max(from.saturating_add(PATIENCE_NS));
        }
    }

    pub(super) fn is_reader_slow(&self, now: u64) -> bool {
        self.output
            .unread_since
            .is_some_and(|since| now.saturating_sub(since) >= SLOW_NS)
    }

    /// What is not yet written of a stream will not be, nor what comes.
    pub(super) fn stream_closed(&mut self, stream: Stream, why: Option<String>, now: u64) {
        let sink = &mut self.output.sinks[stream as usize];
        sink.closed = true;
        sink.clear();
        let taken = sink.taken;
        if !self.outcome.finished {
            self.agent.out.send(&Frame::CloseOutput(stream));
        }
        self.written(stream, taken, now);
        match why {
            None => self.lose(128 + SIGPIPE),
            Some(why) => {
                self.lose(exit::OUTPUT);
                self.print(&format!("cannot write to {why}; output is lost"));
            }
        }
    }

    /// Output or input was lost: that is what the status tells if nothing else has failed before.
    pub(super) fn lose(&mut self, status: u8) {
        if !self.outcome.decided && self.outcome.status == 0 {
            self.outcome.status = status;
        }
    }

    pub(super) fn return_credit(&mut self) {
        if self.output.credit >= CREDIT_STEP && !self.outcome.finished {
            self.agent
                .out
                .send(&Frame::Credit(std::mem::take(&mut self.output.credit)));
        }
    }

    /// Says something to the user, behind what PEs said before.
    pub(super) fn print(&mut self, text: &str) {
        self.print_as("shmrun", text);
    }

    /// A PE says something to the user.
    pub(super) fn notice(&mut self, notice: Notice) {
        let (Passed::On(notice) | Passed::Unknown(notice)) = self.repeats.add(notice) else {
            return;
        };
        let line = notice.line(&self.setup.hosts).to_string();
        self.print_as("shmem", &line);
        if notice.count > 1 {
            let count = notice.count - 1;
            let again = Notice { count, ..notice };
            self.print_as("shmem", &again.repetition());
        }
    }

    /// Says how often PEs have said the same.
    pub(super) fn print_counts(&mut self) {
        for notice in self.repeats.take_counts() {
            let text = match self.repeats.told_one(notice.rank) {
                true => notice.repetition(),
                false => notice.repetition_with_excerpt(),
            };
            self.print_as("shmem", &text);
        }
    }

    /// Reports how all PEs ended, if the user asked for it, or if PEs failed in different ways.
    pub(super) fn print_statuses(&mut self, ends: &Ends) {
        let by_pe = self.outcome.aborted.then_some(self.outcome.status);
        if self.setup.options.all_statuses || (self.outcome.status != 0 && ends.differ(by_pe)) {
            self.print(&format!("how all PEs ended: {}", ends.line()));
        }
    }

    pub(super) fn print_as(&mut self, who: &str, text: &str) {
        self.output.end_progress();
        let sink = &mut self.output.sinks[Stream::Err as usize];
        if !sink.closed {
            self.output.mixer.end_line(Stream::Err, &mut sink.text);
            sink.text.extend_from_slice(who.as_bytes());
            sink.text.extend_from_slice(b": ");
            if let Some(number) = self.setup.spawned_as {
                let job = format!("spawned job {number}: ");
                sink.text.extend_from_slice(job.as_bytes());
            }
            sink.text.extend_from_slice(text.as_bytes());
            sink.text.push(b'\n');
        }
    }
}
