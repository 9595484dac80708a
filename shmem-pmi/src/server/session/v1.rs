//! A PE that speaks PMI-1.
//!
//! PMI-1 has no marks that join a reply to its request, so a PE is served one request at a time:
//! what it sends while a reply is withheld waits, unread, until that reply is there.

use std::borrow::Cow;

use super::service::check_pair;
use super::{NodeServer, Phase, Session, rc};
use crate::question::{MAX_LEN, Question, SpawnRequest};
use crate::wire::v1::{
    Command, Decoder, Fact, Fields, Incoming, MAX_BLOCKS, Maxes, Reply, SpawnBlock,
};
use crate::wire::{InitLine, WireError, excerpt, v2};

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
        match Command::decode(line) {
            Ok(Command::Init(asked)) => self.init_line(local, asked),
            Ok(Command::InitAck { id }) => self.introduce(local, id),
            Ok(Command::Abort { exit_code, message }) => {
                self.abort(local, exit_code, message);
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
            self.refuse_line(local, "initack", rc::INVALID_ARG, message);
            return Err(format!("it calls itself PE {id}"));
        }
        self.line_reply(local, &Reply::InitAck);
        for fact in [Fact::Size(self.job.size), Fact::Rank(rank), Fact::Debug(0)] {
            self.line_reply(local, &Reply::Set(fact));
        }
        Ok(())
    }

    fn line(&mut self, local: usize, line: &[u8]) -> Result<(), String> {
        let fields = Fields::decode(line).map_err(|error| error.to_string())?;
        let name = || fields.command_text();
        if self.sessions[local].lines.spawn.is_some() {
            return Err(format!("it sent `{}` within a spawn request", name()));
        }
        if matches!(fields.command(), b"init" | b"initack") {
            return Err(format!("it sent `{}` twice", name()));
        }
        match Command::from_fields(&fields) {
            Ok(Command::Abort { exit_code, message }) => {
                self.abort(local, exit_code, message);
                Ok(())
            }
            Ok(command) => {
                self.sessions[local].lines.busy = true;
                self.serve_line(local, command)
            }
            Err(error) => {
                self.refuse_line(local, &name(), rc::FAIL, error.to_string());
                Ok(())
            }
        }
    }

    fn serve_line(&mut self, local: usize, command: Command<'_>) -> Result<(), String> {
        match command {
            Command::GetMaxes => self.line_reply(local, &Reply::Maxes(Maxes::OURS)),
            Command::GetAppnum => {
                let appnum = self.job.appnum_of(self.rank(local));
                self.line_reply(local, &Reply::Appnum(appnum));
            }
            Command::GetUniverseSize => {
                let size = self.job_attribute(b"universeSize");
                let size = size.and_then(|size| size.parse().ok()).unwrap_or(-1);
                self.line_reply(local, &Reply::UniverseSize(size));
            }
            Command::GetMyKvsName => {
                let id = self.job.id.clone();
                self.line_reply(local, &Reply::MyKvsName(id.as_bytes()));
            }
            Command::Put { kvsname, .. } | Command::Get { kvsname, .. }
                if kvsname != self.job.id.as_bytes() =>
            {
                let message = format!("kvsname {} not found", excerpt(kvsname));
                self.refuse_line(local, command.name(), rc::FAIL, message);
            }
            Command::Put { key, value, .. } => {
                let outcome = check_pair("kvs-put", key, value);
                let reply = match outcome.and_then(|()| self.put(local, key, value)) {
                    Ok(reply) | Err(reply) => reply,
                };
                self.reply(local, None, reply);
            }
            Command::Get { key, .. } => {
                self.sessions[local].lines.key = key.to_vec();
                let attribute = self.job_attribute(key).map(|text| text.as_bytes().to_vec());
                if attribute.is_some() {
                    self.reply(local, None, v2::Reply::KvsGet(attribute.map(Cow::Owned)));
                } else {
                    let asking = self.asking_of(local, None, "kvs-get");
                    self.kvs_get(asking, key);
                }
            }
            Command::Barrier { group: None } => self.fence(local, None)?,
            Command::Barrier { group: Some(group) } => match self.join_barrier(local, group) {
                // What other threads of the PE ask for does not wait for it.
                Ok(()) => self.sessions[local].lines.busy = false,
                Err(text) => self.refuse_line(local, "barrier_in", rc::FAIL, text),
            },
            Command::Publish { service, port } => {
                let (name, port) = (service.to_vec(), port.to_vec());
                let question = Question::Publish { name, port };
                self.ask_for_name(local, None, "name-publish", &question);
            }
            Command::Lookup { service } => {
                let name = service.to_vec();
                self.ask_for_name(local, None, "name-lookup", &Question::LookupName { name });
            }
            Command::Unpublish { service } => {
                let name = service.to_vec();
                self.ask_for_name(local, None, "name-unpublish", &Question::Unpublish { name });
            }
            Command::Finalize => self.finalize(local, None),
            // Dealt with before.
            Command::Init(InitLine { .. }) | Command::InitAck { .. } | Command::Abort { .. } => {}
        }
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
            None => self.ask_for(local, None, "spawn", &Question::Spawn(spawn.request)),
            Some(text) => self.refuse_line(local, "spawn", rc::FAIL, text),
        }
    }

    /// Queues a reply of PMI-2 as one of PMI-1.
    pub(super) fn reply_in_line(&mut self, local: usize, reply: v2::Reply<'_>) {
        let (command, rc, message) = match reply {
            v2::Reply::KvsPut => return self.line_reply(local, &Reply::Put),
            v2::Reply::KvsGet(Some(value)) => {
                return self.line_reply(local, &Reply::Get(Some(&value)));
            }
            v2::Reply::KvsGet(None) => {
                let key = excerpt(&self.sessions[local].lines.key);
                ("get", rc::FAIL, format!("key_{key}_not_found"))
            }
            v2::Reply::KvsFence => {
                let tag = self.sessions[local].lines.has_tags.then_some(0);
                return self.line_reply(local, &Reply::Barrier(tag));
            }
            v2::Reply::NamePublished => return self.line_reply(local, &Reply::Publish),
            v2::Reply::NameFound(port) => return self.line_reply(local, &Reply::Lookup(&port)),
            v2::Reply::NameUnpublished => return self.line_reply(local, &Reply::Unpublish),
            v2::Reply::Spawned { job_id, errcodes } => {
                let job_id = job_id.as_deref().map(str::as_bytes);
                return self.line_reply(local, &Reply::Spawn { job_id, errcodes });
            }
            v2::Reply::Finalize => return self.line_reply(local, &Reply::Finalize),
            v2::Reply::Refused {
                command,
                rc,
                message,
            } => {
                let command = match &command[..] {
                    "kvs-put" => "put",
                    "kvs-get" => "get",
                    "kvs-fence" => "barrier_in",
                    "name-publish" => "publish_name",
                    "name-lookup" => "lookup_name",
                    "name-unpublish" => "unpublish_name",
                    _ => "spawn",
                };
                (command, rc, message.into_owned())
            }
            // What PMI-1 cannot ask is not answered.
            _ => return,
        };
        self.refuse_line(local, command, rc, message);
    }

    fn refuse_line(&mut self, local: usize, command: &str, rc: i32, message: String) {
        let reply = Reply::Refused {
            reply: Reply::name_for(command).into(),
            rc,
            message: message.into(),
        };
        self.line_reply(local, &reply);
    }

    /// Queues a reply; then the PE's next request may be served.
    fn line_reply(&mut self, local: usize, reply: &Reply<'_>) {
        let session = &mut self.sessions[local];
        if let Err(error) = reply.encode(&mut session.replies) {
            let refused = Reply::Refused {
                reply: reply.name().into(),
                rc: rc::FAIL,
                message: error.to_string().into(),
            };
            // A refusal has legible text of bounded length, so it can be sent.
            let _ = refused.encode(&mut session.replies);
        }
        if session.end_of_request() {
            self.resumed.push(local);
        }
        self.list(local);
    }

    /// Queues a reply to a request behind which others may have been served, or are being served.
    pub(in crate::server) fn late_line_reply(&mut self, local: usize, reply: &Reply<'_>) {
        let session = &mut self.sessions[local];
        if session.phase != Phase::Over && reply.encode(&mut session.replies).is_ok() {
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
