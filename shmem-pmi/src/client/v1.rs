//! How the client speaks PMI-1.1.
//!
//! Before anything else it learns what later requests need: in the port model its rank and the
//! size of the job, then the lengths that the server accepts, the name of the key-value space, and
//! the number of the program. One request is under way at a time, also here.

use std::collections::VecDeque;

use super::call::{Call, Name};
use super::queue::Pending;
use super::{ClientError, Event, Heard, Initialised, Place, Refusal, RequestId, Spawned, not_sent};
use crate::wire::excerpt;
use crate::wire::v1::{Command, Decoder, Fact, Incoming, InitLine, Reply, encode_spawn};

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
    kvsname: Vec<u8>,
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
    pub(super) fn new(place: Place) -> Self {
        let (id, step, rank, size) = match place {
            Place::Known { rank, size } => (None, Step::Init, Some(rank), Some(size)),
            Place::Asked { id } => (Some(id), Step::Set, None, None),
        };
        let facts = Facts {
            step,
            rank,
            size,
            value_max: MAX_VALUE,
            kvsname: Vec::new(),
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
        Ok(first.encode(output)?)
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
    pub(super) fn say(&self, call: &Call, output: &mut Vec<u8>) -> Option<Event> {
        let kvsname = &self.facts.kvsname[..];
        let command = match call {
            Call::JobId => {
                let name = String::from_utf8_lossy(kvsname).into_owned();
                return Some(Event::JobId(name));
            }
            Call::Spawn(request) => {
                let error = encode_spawn(request, output).err()?;
                return Some(Event::Error(not_sent(call, &error)));
            }
            Call::JobAttr { key } if key == UNIVERSE_SIZE => Command::GetUniverseSize,
            Call::JobAttr { key } | Call::Get { key } => Command::Get { kvsname, key },
            Call::Put { key, value } => Command::Put {
                kvsname,
                key,
                value,
            },
            Call::Fence => Command::Barrier,
            Call::Publish { name, port } => Command::Publish {
                service: name,
                port,
            },
            Call::Lookup { name } => Command::Lookup { service: name },
            Call::Unpublish { name } => Command::Unpublish { service: name },
            Call::Finalize => Command::Finalize,
            _ => {
                debug_assert!(!offers(call), "refused before");
                return Some(Event::Error(not_sent(call, &"PMI-1 has no such command")));
            }
        };
        let error = command.encode(output).err()?;
        Some(Event::Error(not_sent(call, &error)))
    }

    pub(super) fn hear(
        &mut self,
        pending: &VecDeque<Pending>,
        output: &mut Vec<u8>,
    ) -> Result<Option<Heard>, ClientError> {
        let reply = match self.decoder.next_message()? {
            None => return Ok(None),
            Some(Incoming::Line(line)) => Reply::decode(line)?,
            Some(Incoming::Block(block)) => {
                let command = excerpt(block);
                return Err(ClientError::Unexpected { command });
            }
        };
        let event = if self.facts.step == Step::Done {
            let pending = pending.front();
            let event = pending.and_then(|pending| outcome(pending.command, &reply));
            event.ok_or_else(|| unexpected(&reply))?
        } else {
            match self.facts.learn(&reply)? {
                Next::Await => return Ok(Some(Heard::Nothing)),
                Next::Ask(command) => {
                    command.encode(output)?;
                    return Ok(Some(Heard::Nothing));
                }
                Next::Open { appnum } => Event::Initialised(Initialised {
                    rank: self.facts.rank.unwrap_or(0),
                    size: self.facts.size.unwrap_or(1),
                    appnum,
                    spawner: None,
                    restarts: self.facts.restarts,
                    first_request: RequestId(self.facts.first_request),
                }),
            }
        };
        Ok(Some(Heard::Outcome { index: 0, event }))
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
                (Step::KvsName, Next::Ask(Command::GetMyKvsName))
            }
            (Step::KvsName, Reply::MyKvsName(name)) => {
                self.kvsname = name.to_vec();
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
        command: excerpt(reply.name().as_bytes()),
    }
}

/// Whether PMI-1 has a command for a call.
pub(super) fn offers(call: &Call) -> bool {
    !matches!(
        call,
        Call::PutNodeAttr { .. }
            | Call::NodeAttr { .. }
            | Call::Ifence
            | Call::Iallgather { .. }
            | Call::Allgather { .. }
            | Call::Wait { .. }
            | Call::Ring { .. }
            | Call::GetFrom { .. }
            | Call::Nla { .. }
            | Call::NlaSend { .. }
            | Call::NlaRecv { .. }
    )
}

/// Appends the request for the end of the job to `output`.
pub(super) fn abort(exit_code: i32, message: &str, output: &mut Vec<u8>) {
    let with = |message: &str, output: &mut Vec<u8>| {
        let exit_code = Some(exit_code);
        let message = message.as_bytes();
        Command::Abort { exit_code, message }.encode(output)
    };
    // A message that does not fit is not worth losing the code for.
    if with(message, output).is_err() {
        let _ = with("", output);
    }
}

/// What a reply means for the call that it answers; `None` if it is no answer to that.
fn outcome(command: Name, reply: &Reply<'_>) -> Option<Event> {
    Some(match (command, reply) {
        ("info-getjobattr", Reply::Get(value)) => Event::JobAttr(value.map(<[u8]>::to_vec)),
        ("info-getjobattr", Reply::UniverseSize(size)) => {
            let known = (*size >= 0).then(|| size.to_string().into_bytes());
            Event::JobAttr(known)
        }
        ("kvs-get", Reply::Get(value)) => Event::Got(value.map(<[u8]>::to_vec)),
        ("kvs-put", Reply::Put) => Event::Put,
        ("kvs-fence", Reply::Barrier) => Event::FenceDone,
        ("name-publish", Reply::Publish) => Event::Published,
        ("name-lookup", Reply::Lookup(port)) => Event::LookedUp(port.to_vec()),
        ("name-unpublish", Reply::Unpublish) => Event::Unpublished,
        ("spawn", Reply::Spawn { job_id, errcodes }) => Event::Spawned(Spawned {
            job_id: job_id.map(|id| String::from_utf8_lossy(id).into_owned()),
            errcodes: errcodes.clone(),
        }),
        ("finalize", Reply::Finalize) => Event::Finalized,
        (
            _,
            Reply::Refused {
                reply: _,
                rc,
                message,
            },
        ) => Event::Error(Refusal {
            command: command.to_owned(),
            rc: *rc,
            message: message.replace('_', " "),
        }),
        _ => return None,
    })
}
