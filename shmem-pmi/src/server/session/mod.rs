//! The connection to one PE: its phases, and what all versions of PMI have in common.
//!
//! A session begins with lines. The init line says which version the rest is: `v1` goes on with
//! lines, `v2` with bodies behind a length. Both make of what they read the same commands, which
//! `commands` serves with what is in `service`; and both send the same replies.

mod commands;
mod service;
mod v1;
mod v2;

use std::borrow::Cow;
use std::collections::VecDeque;

use super::{NodeServer, Output};
use crate::wire::tree::append_pair;
use crate::wire::v2::Response;
use crate::wire::{InitLine, InitReply, Reply, Verb, excerpt};
use crate::wire::{v1 as wire1, v2 as wire2};
use v1::LineState;

/// Return codes of PMI's library, for those failures that have one of their own.
mod rc {
    pub(super) const FAIL: i32 = -1;
    pub(super) const INVALID_ARG: i32 = 3;
    pub(super) const INVALID_KEY_LENGTH: i32 = 5;
    pub(super) const INVALID_VAL_LENGTH: i32 = 7;
}

/// Most bytes of puts that a PE may have before it calls fence.
const MAX_PENDING_PUTS: usize = 16 << 20;

/// Most bytes that a PE may bring to operations which others have not joined.
const MAX_AHEAD_BYTES: usize = 32 << 20;

/// Most bytes of results of allgathers that others have not joined, if all of them are as long as the last. The first PE
/// that joins one has the agent make room for the values of all.
const MAX_GATHERED: u64 = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing heard yet.
    AwaitInit,
    /// The init line is answered.
    AwaitFullInit,
    /// Commands are served.
    Running,
    /// Finalized; nothing may come any more.
    Finalized,
    /// Spoke nonsense, or its connection has ended: nothing is read from it or sent to it.
    Over,
}

/// What makes messages of the bytes of a connection.
#[derive(Debug)]
enum Speaker {
    /// Everything up to the end of the init line, and PMI-1.
    Lines(wire1::Decoder),
    /// PMI-2 behind the init line.
    Bodies(wire2::Decoder),
}

impl Default for Speaker {
    fn default() -> Self {
        Self::Lines(wire1::Decoder::new())
    }
}

impl Speaker {
    fn pending(&self) -> usize {
        match self {
            Self::Lines(decoder) => decoder.pending(),
            Self::Bodies(decoder) => decoder.pending(),
        }
    }
}

/// Puts since the last fence.
#[derive(Debug, Default)]
struct Puts {
    /// Encoded.
    pairs: Vec<u8>,
    count: u32,
}

impl Puts {
    /// Adds a pair, unless the PE has put too many bytes.
    fn add(&mut self, key: &[u8], value: &[u8]) -> bool {
        let fits = self.pairs.len() <= MAX_PENDING_PUTS;
        if fits {
            append_pair(&mut self.pairs, key, value);
            self.count += 1;
        }
        fits
    }
}

/// The collective operations that a PE has joined, and bytes that it brought to those which others have yet to join:
/// they are kept until then.
#[derive(Debug, Default)]
struct Started {
    /// Number of the operations: the number of the next one.
    count: u64,
    /// Operation and bytes, the oldest first.
    brought: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Started {
    /// Counts the next operation with so many bytes, unless that is too much. Operations before `completed` keep none.
    fn begin_next(&mut self, completed: u64, bytes: usize) -> bool {
        while let Some(&(old, bytes)) = self.brought.front()
            && old < completed
        {
            self.bytes -= bytes;
            self.brought.pop_front();
        }
        // One operation may be as large as it may be, however large.
        let fits = self.bytes == 0 || self.bytes + bytes <= MAX_AHEAD_BYTES;
        if fits && bytes > 0 {
            self.bytes += bytes;
            self.brought.push_back((self.count, bytes));
        }
        self.count += u64::from(fits);
        fits
    }
}

/// The state of one PE's connection.
#[derive(Debug)]
pub(super) struct Session {
    rank: u32,
    phase: Phase,
    /// Whether the init line asked for PMI-2.
    is_v2: bool,
    speaker: Speaker,
    lines: LineState,
    replies: Vec<u8>,
    /// Whether the PE stands in the server's list of those with something to send.
    listed: bool,
    /// What to tell the driver once the replies are sent.
    after: Vec<Output>,
    puts: Puts,
    started: Started,
    /// Withheld replies of which a PE could have any number: to requests for attributes, to `wait`,
    /// and to what others answer.
    withheld: u32,
    /// Attributes of the node that the PE was the first to put.
    attributes: u32,
    /// How often the process of the PE has been started again. Replies to requests of an earlier
    /// one are dropped.
    life: u32,
    /// The connection has ended, and another process may take its place.
    may_return: bool,
}

impl Session {
    pub(super) fn new(rank: u32) -> Self {
        Self {
            rank,
            phase: Phase::AwaitInit,
            is_v2: false,
            speaker: Speaker::default(),
            lines: LineState::default(),
            replies: Vec::new(),
            listed: false,
            after: Vec::new(),
            puts: Puts::default(),
            started: Started::default(),
            withheld: 0,
            attributes: 0,
            life: 0,
            may_return: false,
        }
    }

    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    pub(super) fn started(&self) -> u64 {
        self.started.count
    }

    /// The puts since the last fence, encoded.
    pub(super) fn puts(&self) -> &[u8] {
        &self.puts.pairs
    }

    /// Whether nothing will come from the PE any more.
    pub(super) fn has_left(&self) -> bool {
        matches!(self.phase, Phase::Finalized | Phase::Over) && !self.may_return
    }

    pub(super) fn life(&self) -> u32 {
        self.life
    }

    pub(super) fn is_idle(&self) -> bool {
        self.speaker.pending() == 0 && self.replies.is_empty()
    }

    /// Nothing is read from it or sent to it any more.
    fn end(&mut self) {
        self.phase = Phase::Over;
        self.speaker = Speaker::default();
        self.lines = LineState::default();
        self.replies = Vec::new();
        self.puts = Puts::default();
    }

    pub(super) fn take_replies(&mut self) -> (Vec<u8>, Vec<Output>) {
        self.listed = false;
        (
            std::mem::take(&mut self.replies),
            std::mem::take(&mut self.after),
        )
    }
}

impl NodeServer {
    pub(super) fn read_session(&mut self, local: usize, bytes: &[u8]) {
        let session = &mut self.sessions[local];
        if session.phase == Phase::Over {
            return;
        }
        // Taken out while its messages are lent to the commands.
        let mut speaker = std::mem::take(&mut session.speaker);
        match &mut speaker {
            Speaker::Lines(decoder) => decoder.push(bytes),
            Speaker::Bodies(decoder) => decoder.push(bytes),
        }
        loop {
            let outcome = match &mut speaker {
                Speaker::Lines(decoder) => match self.next_line(local, decoder) {
                    Ok(None) => break,
                    Ok(Some(message)) => self.line_message(local, message),
                    Err(text) => Err(text),
                },
                Speaker::Bodies(decoder) => match decoder.next_message() {
                    Ok(None) => break,
                    Ok(Some(wire2::Incoming::Body(body))) => self.body(local, body),
                    // Not reached: the decoder begins behind the line.
                    Ok(Some(wire2::Incoming::Line(line))) => Err(excerpt(line)),
                    Err(error) => Err(error.to_string()),
                },
            };
            if let Err(text) = outcome {
                self.give_up(local, text);
            }
            let session = &self.sessions[local];
            if session.phase == Phase::Over {
                return;
            }
            speaker = match speaker {
                Speaker::Lines(decoder) if session.is_v2 => {
                    Speaker::Bodies(wire2::Decoder::behind_init(decoder.into_rest()))
                }
                same => same,
            };
        }
        self.sessions[local].speaker = speaker;
    }

    pub(super) fn close_session(&mut self, local: usize) {
        let session = &mut self.sessions[local];
        let lost = matches!(session.phase, Phase::AwaitFullInit | Phase::Running);
        session.end();
        session.may_return = lost && self.job.respawn;
        // A closed connection must not hide that the PE finalized: `after` stays.
        if lost {
            self.outbox.push(Output::Lost { local });
        }
        self.attributes.forget(local);
        self.pe_left(local);
    }

    /// Nobody takes this PE's place: who waits for what it gives waits in vain.
    pub(super) fn give_up_return(&mut self, local: usize) {
        if std::mem::take(&mut self.sessions[local].may_return) {
            self.pe_left(local);
        }
    }

    /// Begins anew with the same rank and count of operations.
    pub(super) fn restart_session(&mut self, local: usize) {
        self.attributes.forget(local);
        let old = &mut self.sessions[local];
        let mut new = Session::new(old.rank);
        new.started.count = old.started.count;
        new.life = old.life + 1;
        new.listed = old.listed;
        let old = std::mem::replace(old, new);
        // What the dead process had done is still told.
        self.outbox.extend(old.after);
    }

    /// Nothing more is read from this PE. What is already written to it is still sent.
    fn give_up(&mut self, local: usize, text: String) {
        let rank = self.rank(local);
        let session = &mut self.sessions[local];
        session.phase = Phase::Over;
        session.speaker = Speaker::default();
        session.puts = Puts::default();
        session.after.push(Output::ProtocolError {
            local,
            text: format!("PE {rank}: {text}"),
        });
        self.list(local);
        self.pe_left(local);
    }

    fn list(&mut self, local: usize) {
        let session = &mut self.sessions[local];
        if !session.listed {
            session.listed = true;
            self.dirty.push_back(local);
        }
    }

    /// Queues a reply, unless the PE's connection has ended.
    pub(super) fn reply(&mut self, local: usize, thread_id: Option<&[u8]>, reply: Reply<'_>) {
        let session = &mut self.sessions[local];
        if session.phase == Phase::Over {
            return;
        }
        if !session.is_v2 {
            return self.line_reply(local, reply);
        }
        let mut response = Response {
            thread_id: thread_id.map(Cow::Borrowed),
            reply,
        };
        if let Err(error) = response.encode(&mut session.replies) {
            let verb = response.reply.verb().unwrap_or(Verb::FullInit);
            response.reply = refusal(verb, rc::FAIL, &error);
            response.thread_id = None;
            // A refusal is short: command and message are bounded.
            let _ = response.encode(&mut session.replies);
        }
        self.list(local);
    }

    /// The line that decides the version. An error is fatal to the PE's connection.
    fn init_line(&mut self, local: usize, asked: InitLine) -> Result<(), String> {
        let mut reply = InitReply::to_init(asked);
        let tags = self.has_group_barriers();
        let session = &mut self.sessions[local];
        if (asked.version, asked.subversion) == (1, 2) && tags {
            reply.subversion = asked.subversion;
            session.lines.has_tags = true;
        }
        if reply.version == InitLine::V1.version && reply.rc == 0 {
            (reply.restarts, reply.first_request) = (session.life, session.started());
        }
        reply.encode(&mut session.replies);
        self.list(local);
        if reply.rc != 0 {
            let InitLine {
                version,
                subversion,
            } = asked;
            return Err(format!(
                "it speaks PMI {version}.{subversion}, this server PMI 1.1, 1.2 and 2.0"
            ));
        }
        let session = &mut self.sessions[local];
        session.is_v2 = reply.version == InitLine::V2.version;
        session.phase = match session.is_v2 {
            true => Phase::AwaitFullInit,
            false => Phase::Running,
        };
        Ok(())
    }

    fn finalize(&mut self, local: usize, thread_id: Option<&[u8]>) {
        self.reply(local, thread_id, Reply::Finalize);
        let session = &mut self.sessions[local];
        session.phase = Phase::Finalized;
        session.puts = Puts::default();
        session.after.push(Output::Finalized { local });
        self.pe_left(local);
    }

    fn abort(&mut self, local: usize, exit_code: Option<i32>, message: &[u8]) {
        self.outbox.push(Output::Abort {
            local,
            exit_code: exit_code.unwrap_or(1),
            message: String::from_utf8_lossy(message).into_owned(),
        });
    }
}

fn refusal(verb: Verb, rc: i32, message: &impl ToString) -> Reply<'static> {
    Reply::Refused {
        command: verb.name().into(),
        rc,
        message: message.to_string().into(),
    }
}
