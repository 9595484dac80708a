//! How the client speaks PMI-1.1.
//!
//! Before anything else it learns what later requests need: in the port model its rank and the
//! size of the job, then the lengths that the server accepts, the name of the key-value space, and
//! the number of the program. One request is under way at a time, also here.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::queue::Pending;
use super::{ClientError, Heard, Outcome, RankFrom, Refusal, not_sent};
use crate::wire::v1::{Decoder, Incoming};
use crate::wire::{Command, Fact, FullInitReply, InitLine, Reply, Verb, Version, excerpt};

/// Longest value that is put, in bytes, whatever the server says: a request is one line of at most
/// 1024 bytes, and there are servers that lose values of more than 960 bytes, or cut those over
/// 1023, without a word.
pub(super) const MAX_VALUE: usize = 600;

/// The job attribute that PMI-1 has a command for.
const UNIVERSE_SIZE: &[u8] = b"universeSize";

/// What is awaited before requests can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Size and rank, in the port model.
    Set,
    Init,
    Maxes,
    KvsName,
    Appnum,
    Done,
}

#[derive(Debug)]
pub(super) struct Speaker {
    decoder: Decoder,
    /// Number for `initack`; present in the port model.
    id: Option<u32>,
    facts: Facts,
}

/// What the server has said about itself and the job.
#[derive(Debug)]
struct Facts {
    step: Step,
    rank: Option<u32>,
    size: Option<u32>,
    value_max: usize,
    kvsname: String,
    restarts: u32,
    first_request: u64,
}

/// What follows from a reply before requests can be sent.
enum Next {
    Ask(Command<'static>),
    Await,
    Open { appnum: i32 },
}

impl Speaker {
    /// For a process that knows its rank and the size of the job, or has a number to ask with.
    pub(super) fn new(rank_from: RankFrom) -> Self {
        let (id, step, rank, size) = match rank_from {
            RankFrom::Environment { rank, size } => (None, Step::Init, Some(rank), Some(size)),
            RankFrom::Server { id } => (Some(id), Step::Set, None, None),
        };
        let facts = Facts {
            step,
            rank,
            size,
            value_max: MAX_VALUE,
            kvsname: String::new(),
            restarts: 0,
            first_request: 0,
        };
        Self {
            decoder: Decoder::new(),
            id,
            facts,
        }
    }

    pub(super) fn begin(&self, output: &mut Vec<u8>) -> Result<(), ClientError> {
        let first = match self.id {
            Some(id) => Command::InitAck { id },
            None => Command::Init(InitLine::V1),
        };
        Ok(first.encode_line(output)?)
    }

    pub(super) fn incomplete_input(&self) -> usize {
        self.decoder.pending()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
    }

    pub(super) fn value_max(&self) -> usize {
        self.facts.value_max
    }

    /// Appends the request to `output`, or gives the outcome if there is nothing to send.
    pub(super) fn say<'a>(
        &'a self,
        mut command: Command<'a>,
        output: &mut Vec<u8>,
    ) -> Option<Outcome<Reply<'static>>> {
        let kvsname = &self.facts.kvsname;
        let verb = command.verb();
        match &mut command {
            Command::JobGetId => return Some(Ok(Reply::JobId(kvsname.clone().into()))),
            Command::JobAttr { key } if **key == *UNIVERSE_SIZE => {
                command = Command::GetUniverseSize;
            }
            Command::JobAttr { key } => {
                command = Command::KvsGet {
                    job_id: Some(kvsname.into()),
                    source: -1,
                    key: std::mem::take(key),
                    direct: false,
                };
            }
            Command::KvsGet { job_id, .. } | Command::KvsPut { job_id, .. } => {
                *job_id = Some(kvsname.into());
            }
            _ => {}
        }
        let sent = command.encode_line(output);
        sent.err().map(|error| Err(not_sent(verb, &error)))
    }

    pub(super) fn hear(
        &mut self,
        pending: &VecDeque<Pending>,
        output: &mut Vec<u8>,
    ) -> Result<Option<Heard<'_>>, ClientError> {
        let reply = match self.decoder.next_message()? {
            None => return Ok(None),
            Some(Incoming::Line(line)) => Reply::decode_line(line)?,
            Some(Incoming::Block(block)) => {
                let command = excerpt(block);
                return Err(ClientError::Unexpected { command });
            }
        };
        if self.facts.step == Step::Done {
            let name = unexpected(&reply);
            let pending = pending.front();
            let outcome = pending.and_then(|pending| outcome(pending.verb, reply));
            return Ok(Some(Heard::Outcome(0, outcome.ok_or(name)?)));
        }
        let appnum = match self.facts.learn(&reply)? {
            Next::Await => return Ok(Some(Heard::Nothing)),
            Next::Ask(command) => {
                command.encode_line(output)?;
                return Ok(Some(Heard::Nothing));
            }
            Next::Open { appnum } => appnum,
        };
        let facts = Reply::FullInit(FullInitReply {
            rank: self.facts.rank.unwrap_or(0),
            size: self.facts.size.unwrap_or(1),
            appnum,
            debugged: false,
            verbose: false,
            spawner: None,
            restarts: self.facts.restarts,
            first_request: self.facts.first_request,
        });
        Ok(Some(Heard::Outcome(0, Ok(facts))))
    }
}

impl Facts {
    /// Takes in a reply, one step after the other.
    fn learn(&mut self, reply: &Reply<'_>) -> Result<Next, ClientError> {
        let (step, next) = match (self.step, reply) {
            (Step::Set, Reply::InitAck) => return Ok(Next::Await),
            (Step::Set | Step::Init, Reply::Set(fact)) => {
                match fact {
                    Fact::Size(size) => self.size = Some(*size),
                    Fact::Rank(rank) => self.rank = Some(*rank),
                    _ => {}
                }
                // The debug level, of no interest, may follow.
                if self.step == Step::Init || self.size.is_none() || self.rank.is_none() {
                    return Ok(Next::Await);
                }
                (Step::Init, Next::Ask(Command::Init(InitLine::V1)))
            }
            (Step::Init, Reply::Init(init)) => {
                if init.rc != 0 || init.version != InitLine::V1.version {
                    return Err(ClientError::Version {
                        wanted: "1.1",
                        version: init.version,
                        subversion: init.subversion,
                        rc: init.rc,
                    });
                }
                (self.restarts, self.first_request) = (init.restarts, init.first_request);
                (Step::Maxes, Next::Ask(Command::GetMaxes))
            }
            (Step::Maxes, Reply::Maxes(maxes)) => {
                let room = maxes.value.saturating_sub(1) as usize; // a NUL takes one
                self.value_max = room.min(MAX_VALUE);
                (Step::KvsName, Next::Ask(Command::JobGetId))
            }
            (Step::KvsName, Reply::JobId(name)) => {
                self.kvsname = name.to_string();
                (Step::Appnum, Next::Ask(Command::GetAppnum))
            }
            (Step::Appnum, Reply::Appnum(appnum)) => (Step::Done, Next::Open { appnum: *appnum }),
            _ => return Err(unexpected(reply)),
        };
        self.step = step;
        Ok(next)
    }
}

fn unexpected(reply: &Reply<'_>) -> ClientError {
    ClientError::Unexpected {
        command: reply.line_name().to_owned(),
    }
}

/// Whether PMI-1 has a command, or another way to the same.
pub(super) fn offers(command: &Command<'_>) -> bool {
    match command {
        Command::KvsGet { direct, .. } => !direct,
        Command::FullInit { .. } | Command::JobAttr { .. } => true,
        command => command.verb().is_in(Version::V1),
    }
}

/// Appends the request for the end of the job to `output`.
pub(super) fn abort(exit_code: i32, message: &str, output: &mut Vec<u8>) {
    let with = |message: &str, output: &mut Vec<u8>| {
        let abort = Command::Abort {
            is_world: true,
            exit_code: Some(exit_code),
            message: message.as_bytes().into(),
        };
        abort.encode_line(output)
    };
    // A message that does not fit is not worth losing the code for.
    if with(message, output).is_err() {
        let _ = with("", output);
    }
}

/// What a reply says to a command; `None` if it is no reply to that.
fn outcome(verb: Verb, reply: Reply<'_>) -> Option<Outcome<Reply<'_>>> {
    Some(Ok(match (verb, reply) {
        (Verb::JobAttr, Reply::KvsGet(value)) => Reply::JobAttr(value),
        (Verb::JobAttr, Reply::UniverseSize(size)) => {
            let known = (size >= 0).then(|| size.to_string().into_bytes());
            Reply::JobAttr(known.map(Cow::Owned))
        }
        (_, Reply::Refused { rc, message, .. }) => {
            return Some(Err(Refusal {
                command: verb.name().to_owned(),
                rc,
                message: message.replace('_', " "),
            }));
        }
        (_, reply) if reply.verb() == Some(verb) => reply,
        _ => return None,
    }))
}
