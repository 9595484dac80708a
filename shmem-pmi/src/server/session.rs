//! The connection to one PE: its phases, its commands, its replies.

use std::borrow::Cow;

use super::collective::{Contribution, MAX_AHEAD};
use super::{NodeServer, Output, WaitKind, Waiter};
use crate::process_mapping;
use crate::wire::tree::append_pair;
use crate::wire::v2::{
    Command, Decoder, Fields, FullInitReply, Incoming, InitLine, InitReply, Reply, Response,
};
use crate::wire::{MAX_KEY, MAX_VALUE, WireError};

/// Return codes of PMI's library, for those failures that have one of their own.
mod rc {
    pub(super) const FAIL: i32 = -1;
    pub(super) const INVALID_ARG: i32 = 3;
    pub(super) const INVALID_KEY_LENGTH: i32 = 5;
    pub(super) const INVALID_VAL_LENGTH: i32 = 7;
}

/// Most bytes of puts that a PE may have before it calls fence.
const MAX_PENDING_PUTS: usize = 16 << 20;

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

/// The state of one PE's connection.
#[derive(Debug)]
pub(super) struct Session {
    rank: u32,
    phase: Phase,
    decoder: Decoder,
    replies: Vec<u8>,
    /// Whether the PE stands in the server's list of those with something to send.
    listed: bool,
    /// What to tell the driver once the replies are sent.
    after: Vec<Output>,
    /// Puts since the last fence, encoded, and their number.
    puts: Vec<u8>,
    put_count: u32,
    /// Number of collective operations joined: the number of the next one.
    started: u64,
    /// Withheld replies.
    waiting: u32,
}

impl Session {
    pub(super) fn new(rank: u32) -> Self {
        Self {
            rank,
            phase: Phase::AwaitInit,
            decoder: Decoder::new(),
            replies: Vec::new(),
            listed: false,
            after: Vec::new(),
            puts: Vec::new(),
            put_count: 0,
            started: 0,
            waiting: 0,
        }
    }

    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    pub(super) fn started(&self) -> u64 {
        self.started
    }

    pub(super) fn is_idle(&self) -> bool {
        self.decoder.pending() == 0 && self.replies.is_empty() && self.waiting == 0
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
        let mut decoder = std::mem::take(&mut session.decoder);
        decoder.push(bytes);
        loop {
            let outcome = match decoder.next_message() {
                Ok(None) => break,
                Ok(Some(Incoming::Line(line))) => self.init_line(local, line),
                Ok(Some(Incoming::Body(body))) => self.body(local, body),
                Err(error) => Err(error.to_string()),
            };
            if let Err(text) = outcome {
                self.give_up(local, text);
            }
            if self.sessions[local].phase == Phase::Over {
                return;
            }
        }
        self.sessions[local].decoder = decoder;
    }

    pub(super) fn close_session(&mut self, local: usize) {
        let session = &mut self.sessions[local];
        let lost = matches!(session.phase, Phase::AwaitFullInit | Phase::Running);
        session.phase = Phase::Over;
        session.decoder = Decoder::new();
        session.replies = Vec::new();
        session.puts = Vec::new();
        // A closed connection must not hide that the PE finalized: `after` stays.
        if lost {
            self.events.push_back(Output::Lost { local });
        }
    }

    /// Nothing more is read from this PE. What is already written to it is still sent.
    fn give_up(&mut self, local: usize, text: String) {
        let rank = self.rank(local);
        let session = &mut self.sessions[local];
        session.phase = Phase::Over;
        session.puts = Vec::new();
        session.after.push(Output::ProtocolError {
            local,
            text: format!("PE {rank}: {text}"),
        });
        self.list(local);
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
        let mut response = Response {
            thread_id: thread_id.map(Cow::Borrowed),
            reply,
        };
        if let Err(error) = response.encode(&mut session.replies) {
            response.reply = refusal(response.reply.command(), rc::FAIL, &error);
            response.thread_id = None;
            // A refusal is short: command and message are bounded.
            let _ = response.encode(&mut session.replies);
        }
        self.list(local);
    }

    fn init_line(&mut self, local: usize, line: &[u8]) -> Result<(), String> {
        let asked = InitLine::decode(line).map_err(|error| error.to_string())?;
        let served = asked == InitLine::V2;
        let reply = InitReply {
            version: InitLine::V2.version,
            subversion: InitLine::V2.subversion,
            rc: if served { 0 } else { rc::FAIL },
        };
        let session = &mut self.sessions[local];
        session
            .replies
            .extend_from_slice(reply.to_string().as_bytes());
        self.list(local);
        if !served {
            let InitLine {
                version,
                subversion,
            } = asked;
            return Err(format!(
                "it speaks PMI {version}.{subversion}, this server only PMI 2.0"
            ));
        }
        self.sessions[local].phase = Phase::AwaitFullInit;
        Ok(())
    }

    /// Serves one message. An error is fatal to the PE's connection.
    fn body(&mut self, local: usize, body: &[u8]) -> Result<(), String> {
        let fields = Fields::decode(body).map_err(|error| error.to_string())?;
        let name = || fields.command_text();
        match (self.sessions[local].phase, fields.command()) {
            (Phase::AwaitFullInit, b"fullinit" | b"abort") => {}
            (Phase::AwaitFullInit, _) => {
                return Err(format!("it sent `{}` before `fullinit`", name()));
            }
            (Phase::Finalized, _) => {
                return Err(format!("it sent `{}` after `finalize`", name()));
            }
            (_, b"fullinit") => return Err("it sent `fullinit` twice".to_owned()),
            _ => {}
        }
        let thread_id = fields.thread_id();
        let thread_id = thread_id.as_deref();
        let command = match Command::from_fields(&fields) {
            Ok(command) if command.is_extension() && !self.job.extensions => {
                Err(WireError::UnknownCommand { name: name() })
            }
            other => other,
        };
        let command = match command {
            Ok(command) => command,
            Err(error) => {
                let gathers = matches!(fields.command(), b"iallgather" | b"allgather");
                if gathers && self.job.extensions {
                    // The PE did join, so the operation is counted, and fails for all.
                    let reason = format!("PE {}: {error}", self.rank(local));
                    self.start(local, Contribution::Unusable(reason))?;
                }
                self.reply(local, thread_id, refusal(&name(), rc::INVALID_ARG, &error));
                return Ok(());
            }
        };
        self.serve(local, thread_id, command)
    }

    fn serve(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        command: Command<'_>,
    ) -> Result<(), String> {
        let name = command.name();
        match command {
            Command::FullInit { rank, .. } => self.full_init(local, thread_id, rank),
            Command::JobGetId => {
                let id = self.job.id.clone();
                self.reply(local, thread_id, Reply::JobId(id.into()));
            }
            Command::JobAttr { key } => {
                let value = self
                    .job_attribute(&key)
                    .map(|text| text.to_owned().into_bytes());
                self.reply(local, thread_id, Reply::JobAttr(value.map(Cow::Owned)));
            }
            Command::PutNodeAttr { key, value } => match check_pair(name, &key, &value) {
                Ok(()) => self.put_node_attribute(local, thread_id, &key, &value),
                Err(refusal) => self.reply(local, thread_id, refusal),
            },
            Command::NodeAttr { key, wait } => self.node_attribute(local, thread_id, &key, wait),
            Command::KvsPut { key, value } => {
                let reply = self
                    .put(local, &key, &value)
                    .unwrap_or_else(|refusal| refusal);
                self.reply(local, thread_id, reply);
            }
            Command::KvsGet { job_id, key, .. } => {
                let own = job_id.is_none_or(|id| id == self.job.id);
                let value = self.kvs.get(&key[..]).filter(|_| own).cloned();
                let value = value.map(|value| Cow::Owned(value.into_vec()));
                self.reply(local, thread_id, Reply::KvsGet(value));
            }
            Command::KvsFence => {
                let fence = self.take_puts(local);
                let request = self.start(local, fence)?;
                self.wait_for(local, thread_id, request, WaitKind::Fence);
            }
            Command::Ifence => {
                let fence = self.take_puts(local);
                let request = self.start(local, fence)?;
                self.reply(local, thread_id, Reply::Ifence(request));
            }
            Command::Iallgather { value } => {
                let request = self.start(local, Contribution::Gather(value.into_owned()))?;
                self.reply(local, thread_id, Reply::Iallgather(request));
            }
            Command::Allgather { value } => {
                let request = self.start(local, Contribution::Gather(value.into_owned()))?;
                self.wait_for(local, thread_id, request, WaitKind::Allgather);
            }
            Command::Wait { request } => {
                let started = self.sessions[local].started;
                if request < started {
                    self.wait_for(local, thread_id, request, WaitKind::Wait);
                } else {
                    let text = format!("request {request} is none of the {started} started ones");
                    self.reply(local, thread_id, refusal(name, rc::INVALID_ARG, &text));
                }
            }
            Command::Finalize => {
                self.reply(local, thread_id, Reply::Finalize);
                let session = &mut self.sessions[local];
                session.phase = Phase::Finalized;
                session.puts = Vec::new();
                session.after.push(Output::Finalized { local });
            }
            Command::Abort {
                exit_code, message, ..
            } => self.events.push_back(Output::Abort {
                local,
                exit_code: exit_code.unwrap_or(1),
                message: String::from_utf8_lossy(&message).into_owned(),
            }),
        }
        Ok(())
    }

    fn full_init(&mut self, local: usize, thread_id: Option<&[u8]>, claimed: Option<u32>) {
        let rank = self.rank(local);
        if let Some(claimed) = claimed.filter(|&claimed| claimed != rank) {
            let text = format!("this is the connection of PE {rank}, not of PE {claimed}");
            self.reply(
                local,
                thread_id,
                refusal("fullinit", rc::INVALID_ARG, &text),
            );
            self.give_up(local, format!("it calls itself PE {claimed}"));
            return;
        }
        self.sessions[local].phase = Phase::Running;
        let spawner = self.job.spawner.clone();
        let facts = FullInitReply {
            rank,
            size: self.job.size,
            appnum: self.job.appnum,
            debugged: false,
            verbose: false,
            spawner: spawner.map(Cow::Owned),
        };
        self.reply(local, thread_id, Reply::FullInit(facts));
    }

    fn job_attribute(&self, key: &[u8]) -> Option<&str> {
        if key == process_mapping::KEY.as_bytes() {
            return Some(&self.job.process_mapping);
        }
        let mut all = self.job.attributes.iter();
        all.find_map(|(name, value)| (name.as_bytes() == key).then_some(value.as_str()))
    }

    fn put_node_attribute(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        key: &[u8],
        value: &[u8],
    ) {
        self.node_attributes.insert(key.into(), value.into());
        self.reply(local, thread_id, Reply::NodeAttrPut);
        for waiter in self.attribute_waiters.remove(key).unwrap_or_default() {
            self.sessions[waiter.local].waiting -= 1;
            let reply = Reply::NodeAttr(Some(Cow::Borrowed(value)));
            self.reply(waiter.local, waiter.thread_id.as_deref(), reply);
        }
    }

    fn node_attribute(&mut self, local: usize, thread_id: Option<&[u8]>, key: &[u8], wait: bool) {
        let value = self.node_attributes.get(key).cloned();
        if value.is_none() && wait {
            self.sessions[local].waiting += 1;
            let waiter = waiter(local, thread_id, WaitKind::Attribute);
            let waiters = self.attribute_waiters.entry(key.into()).or_default();
            waiters.push(waiter);
        } else {
            let value = value.map(|value| Cow::Owned(value.into_vec()));
            self.reply(local, thread_id, Reply::NodeAttr(value));
        }
    }

    fn put(
        &mut self,
        local: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<Reply<'static>, Reply<'static>> {
        check_pair("kvs-put", key, value)?;
        let session = &mut self.sessions[local];
        if session.puts.len() > MAX_PENDING_PUTS {
            let text = format!("more than {MAX_PENDING_PUTS} bytes put without a fence");
            return Err(refusal("kvs-put", rc::FAIL, &text));
        }
        append_pair(&mut session.puts, key, value);
        session.put_count += 1;
        Ok(Reply::KvsPut)
    }

    fn take_puts(&mut self, local: usize) -> Contribution {
        let session = &mut self.sessions[local];
        let puts = std::mem::take(&mut session.puts);
        Contribution::Fence(puts, std::mem::take(&mut session.put_count))
    }

    /// The PE joins its next operation; returns the number of it.
    fn start(&mut self, local: usize, contribution: Contribution) -> Result<u64, String> {
        let completed = self.operations.completed();
        let session = &mut self.sessions[local];
        let request = session.started;
        if request - completed >= MAX_AHEAD {
            return Err(format!(
                "it started {MAX_AHEAD} collective operations which others have not joined"
            ));
        }
        session.started += 1;
        self.join(local, request, contribution);
        Ok(request)
    }

    fn wait_for(&mut self, local: usize, thread_id: Option<&[u8]>, request: u64, kind: WaitKind) {
        let waiter = waiter(local, thread_id, kind);
        if request < self.operations.completed() {
            self.answer(waiter, request);
        } else {
            self.operations.add_waiter(request, waiter);
        }
    }
}

fn waiter(local: usize, thread_id: Option<&[u8]>, kind: WaitKind) -> Waiter {
    Waiter {
        local,
        thread_id: thread_id.map(Box::from),
        kind,
    }
}

fn refusal(command: &str, rc: i32, message: &impl ToString) -> Reply<'static> {
    Reply::Refused {
        command: command.to_owned().into(),
        rc,
        message: message.to_string().into(),
    }
}

/// Whether key and value fit the limits; if not, the refusal.
fn check_pair(command: &str, key: &[u8], value: &[u8]) -> Result<(), Reply<'static>> {
    if key.is_empty() || key.len() > MAX_KEY {
        let text = format!("key of {} bytes; 1 to {MAX_KEY} are possible", key.len());
        return Err(refusal(command, rc::INVALID_KEY_LENGTH, &text));
    }
    if value.len() > MAX_VALUE {
        let text = format!("value of {} bytes; {MAX_VALUE} are possible", value.len());
        return Err(refusal(command, rc::INVALID_VAL_LENGTH, &text));
    }
    Ok(())
}
