//! A PE that speaks PMI-1.
//!
//! PMI-1 has no marks that join a reply to its request, so a PE is served one request at a time:
//! what it sends while a reply is withheld waits, unread, until that reply is there.

use std::borrow::Cow;

use super::{NodeServer, Phase, Session, rc, refusal};
use crate::question::{MAX_LEN, Question, SpawnRequest};
use crate::wire::v1::{Decoder, Incoming, MAX_BLOCKS, SpawnBlock};
use crate::wire::{Command, Fact, Fields, Reply, Verb, WireError, excerpt};

/// Most bytes that a PE may send while a reply to it is withheld.
const MAX_HELD: usize = 256 * 1024;

/// What a session of PMI-1 has beside what all have.
#[derive(Debug, Default)]
pub(super) struct LineState {
    /// A request is being served.
    busy: bool,
    /// PMI-1.2 was agreed on: replies to barriers have tags.
    pub(super) has_tags: bool,
    /// The key that it asks for.
    key: Vec<u8>,
    /// The blocks of a spawn request of which the last has not come.
    spawn: Option<Collecting>,
}

/// A spawn request while its blocks come.
#[derive(Debug)]
struct Collecting {
    request: SpawnRequest,
    /// Number of the last block, and of all.
    number: u32,
    total: u32,
    bytes: usize,
    /// Why it will be refused when its last block is here: it has but one reply.
    failure: Option<String>,
}

impl NodeServer {
    /// The next line or block of a PE, unless it has to wait.
    pub(super) fn next_line<'d>(
        &self,
        local: usize,
        decoder: &'d mut Decoder,
    ) -> Result<Option<Incoming<'d>>, String> {
        match self.sessions[local].lines.busy {
            false => decoder.next_message().map_err(|error| error.to_string()),
            // Another thread of the PE gives up: that waits for nobody, and has no reply.
            true if decoder.next_begins_with(b"cmd=abort") => {
                decoder.next_message().map_err(|error| error.to_string())
            }
            true if decoder.pending() <= MAX_HELD => Ok(None),
            true => Err(format!(
                "it sent more than {MAX_HELD} bytes without waiting for a reply"
            )),
        }
    }

    /// Serves one message. An error is fatal to the PE's connection.
    pub(super) fn line_message(
        &mut self,
        local: usize,
        message: Incoming<'_>,
    ) -> Result<(), String> {
        let phase = self.sessions[local].phase;
        match (message, phase) {
            (Incoming::Line(line), Phase::AwaitInit) => self.first_line(local, line),
            (Incoming::Block(block), Phase::AwaitInit) => Err(not_init(block)),
            (Incoming::Line(line) | Incoming::Block(line), Phase::Finalized) => {
                Err(format!("it sent `{}` after `finalize`", excerpt(line)))
            }
            (Incoming::Line(line), _) => self.line(local, line),
            (Incoming::Block(block), _) => {
                self.block(local, block);
                Ok(())
            }
        }
    }

    fn first_line(&mut self, local: usize, line: &[u8]) -> Result<(), String> {
        match Command::decode_line(line) {
            Ok(Command::Init(asked)) => self.init_line(local, asked),
            Ok(Command::InitAck { id }) => self.introduce(local, id),
            Ok(Command::Abort {
                exit_code, message, ..
            }) => {
                self.abort(local, exit_code, &message);
                Ok(())
            }
            _ => Err(not_init(line)),
        }
    }

    /// The beginning of the port model: the PE has no environment that tells rank and size.
    fn introduce(&mut self, local: usize, id: u32) -> Result<(), String> {
        let rank = self.rank(local);
        if id != rank {
            let message = format!("this is the connection of PE {rank}, not of PE {id}");
            self.line_reply(local, refusal(Verb::InitAck, rc::INVALID_ARG, &message));
            return Err(format!("it calls itself PE {id}"));
        }
        self.line_reply(local, Reply::InitAck);
        for fact in [Fact::Size(self.job.size), Fact::Rank(rank), Fact::Debug(0)] {
            self.line_reply(local, Reply::Set(fact));
        }
        Ok(())
    }

    fn line(&mut self, local: usize, line: &[u8]) -> Result<(), String> {
        let fields = Fields::of_line(line).map_err(|error| error.to_string())?;
        let name = || fields.command_text();
        if self.sessions[local].lines.spawn.is_some() {
            return Err(format!("it sent `{}` within a spawn request", name()));
        }
        if matches!(fields.command(), b"init" | b"initack") {
            return Err(format!("it sent `{}` twice", name()));
        }
        match Command::from_fields(&fields) {
            Ok(Command::Abort {
                exit_code, message, ..
            }) => {
                self.abort(local, exit_code, &message);
                Ok(())
            }
            Ok(command) => {
                self.sessions[local].lines.busy = true;
                self.serve_line(local, command)
            }
            Err(error) => {
                let refused = Reply::Refused {
                    command: name().into(),
                    rc: rc::FAIL,
                    message: error.to_string().into(),
                };
                self.line_reply(local, refused);
                Ok(())
            }
        }
    }

    fn serve_line(&mut self, local: usize, command: Command<'_>) -> Result<(), String> {
        let verb = command.verb();
        let refused = match &command {
            Command::KvsPut { job_id, .. } | Command::KvsGet { job_id, .. }
                if job_id.as_deref() != Some(&self.job.id) =>
            {
                let name = excerpt(job_id.as_deref().unwrap_or_default().as_bytes());
                format!("kvsname {name} not found")
            }
            Command::KvsGet { key, .. } => {
                self.sessions[local].lines.key = key.to_vec();
                let attribute = self.job_attribute(key).map(|text| text.as_bytes().to_vec());
                if attribute.is_some() {
                    self.reply(local, None, Reply::KvsGet(attribute.map(Cow::Owned)));
                    return Ok(());
                }
                return self.serve(local, None, command);
            }
            Command::KvsFence { group: Some(group) } => match self.join_barrier(local, group) {
                Ok(()) => {
                    // What other threads of the PE ask for does not wait for it.
                    self.sessions[local].lines.busy = false;
                    return Ok(());
                }
                Err(text) => text,
            },
            _ => return self.serve(local, None, command),
        };
        self.line_reply(local, refusal(verb, rc::FAIL, &refused));
        Ok(())
    }

    /// One program of a spawn request.
    fn block(&mut self, local: usize, block: &[u8]) {
        let state = &mut self.sessions[local].lines;
        let (number, total) = SpawnBlock::numbers(block).unwrap_or((1, 1));
        let mut spawn = match state.spawn.take() {
            Some(spawn) => spawn,
            None => Collecting {
                request: SpawnRequest::default(),
                number: 0,
                total,
                bytes: 0,
                failure: None,
            },
        };
        spawn.number += 1;
        spawn.bytes += block.len();
        if let Err(text) = spawn.add(block, number, total) {
            spawn.failure.get_or_insert(text);
            spawn.request = SpawnRequest::default();
        }
        if spawn.number < spawn.total {
            state.spawn = Some(spawn);
            return;
        }
        state.busy = true;
        match spawn.failure {
            None => self.ask_for(local, None, Verb::Spawn, &Question::Spawn(spawn.request)),
            Some(text) => self.line_reply(local, refusal(Verb::Spawn, rc::FAIL, &text)),
        }
    }

    /// Queues a reply; then the PE's next request may be served.
    pub(super) fn line_reply(&mut self, local: usize, mut reply: Reply<'_>) {
        let session = &mut self.sessions[local];
        match &mut reply {
            Reply::KvsGet(None) => {
                let text = format!("key_{}_not_found", excerpt(&session.lines.key));
                reply = refusal(Verb::KvsGet, rc::FAIL, &text);
            }
            Reply::KvsFence { tag } => *tag = session.lines.has_tags.then_some(0),
            _ => {}
        }
        if let Err(error) = reply.encode_line(&mut session.replies) {
            let refused = refusal(reply.verb().unwrap_or(Verb::Init), rc::FAIL, &error);
            // A refusal has legible text of bounded length, so it can be sent.
            let _ = refused.encode_line(&mut session.replies);
        }
        if session.end_of_request() {
            self.resumed.push(local);
        }
        self.list(local);
    }

    /// Queues a reply to a request behind which others may have been served, or are being served.
    pub(in crate::server) fn late_line_reply(&mut self, local: usize, reply: &Reply<'_>) {
        let session = &mut self.sessions[local];
        if session.phase != Phase::Over && reply.encode_line(&mut session.replies).is_ok() {
            self.list(local);
        }
    }
}

impl Session {
    /// Whether requests have come that could not be served before.
    fn end_of_request(&mut self) -> bool {
        self.lines.busy = false;
        // While its own requests are being read, these are not here but with the reader.
        self.speaker.pending() > 0
    }
}

impl Collecting {
    fn add(&mut self, block: &[u8], number: u32, total: u32) -> Result<(), String> {
        let block = SpawnBlock::decode(block).map_err(|error| error.to_string())?;
        if (number, total) != (self.number, self.total) {
            return Err(format!(
                "block {number} of {total} of a spawn request, expected {} of {}",
                self.number, self.total
            ));
        }
        if self.total as usize > MAX_BLOCKS || self.bytes > MAX_LEN {
            return Err(format!(
                "a spawn request has at most {MAX_BLOCKS} programs and {MAX_LEN} bytes"
            ));
        }
        if self.failure.is_none() {
            self.request.commands.push(block.command);
            if self.number == 1 {
                self.request.preputs = block.preputs;
            }
        }
        Ok(())
    }
}

fn not_init(line: &[u8]) -> String {
    let line = excerpt(line);
    WireError::NotInit { line }.to_string()
}
