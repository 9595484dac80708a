//! The PE's end: a pure state machine that turns calls into bytes, and bytes into their replies.
//!
//! # Three ways of speaking
//!
//! *PMI-1.1* and *plain PMI-2*, as foreign process managers serve them: one request is under way at
//! a time, the next is held back until the reply has come. That is what every server accepts, and
//! it makes a `put`, `fence`, `get` queued at once mean what it says. [`Client::take_output`] never
//! has more than one request: there are servers that lose what comes with another in one read, or
//! in two. PMI-1 has no node attributes, and values of at most [`Client::value_max`] bytes.
//!
//! *PMI-2 with extensions*, at a server that offers them ([`crate::wire::EXTENSIONS_ENV`]):
//! everything is sent at once, so that init, fullinit and a first `iallgather` leave in one write,
//! and replies are read whenever it suits. Requests whose reply the server withholds carry the
//! ticket's mark as thread mark, so that several threads of a PE can wait for different things. The
//! caller must await what it depends on: a `get` queued behind an unfinished `fence` sees the old
//! values.

pub mod calls;
mod error;
mod queue;
mod text;
mod ticket;
mod v1;
mod v2;

use std::borrow::Cow;
use std::sync::Arc;

pub use calls::{Call, Initialised};
pub use error::{ClientError, Refusal, RequestId};
pub use ticket::{Outcome, Ticket};

use crate::wire::v2::Request;
use crate::wire::{Command, MAX_VALUE, Reply, Verb};
use calls::Terms;
use queue::{Pending, Queue};
pub(crate) use text::check_pair;
use ticket::Settle;

/// What a PE learns from its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// Rank of the PE (`PMI_RANK` or `PMI_ID`).
    pub rank: u32,
    /// Job id (`PMI_JOBID`); some servers insist on it.
    pub job_id: Option<String>,
    /// Whether the server offers the extension commands.
    pub extensions: bool,
}

/// How a PMI-1 process learns its rank and the size of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankFrom {
    /// The environment says so (`PMI_RANK`, `PMI_SIZE`): the process has a connected socket, `PMI_FD`.
    Environment {
        /// Rank.
        rank: u32,
        /// Number of processes.
        size: u32,
    },
    /// The process asks the server, which knows it by a number (`PMI_ID`): it has an address to connect to,
    /// `PMI_PORT`.
    Server {
        /// The number.
        id: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Fresh,
    Open,
    Finalizing,
}

#[derive(Debug)]
enum Speaker {
    V1(v1::Speaker),
    V2(v2::Speaker),
}

/// What a message from the server means.
enum Heard<'m> {
    /// Part of a dialogue that goes on.
    Nothing,
    /// PMI-2: the init line was answered; requests may follow.
    Accepted,
    /// The pending call at this index has ended.
    Outcome(usize, Outcome<Reply<'m>>),
}

/// The PMI client of one PE.
///
/// [`Client::call`] queues a request and gives its [`Ticket`]; [`Client::take_output`] yields the bytes
/// to send, and [`Client::handle_bytes`] takes what came: then tickets have their outcomes. In
/// plain mode replies release held requests, so look for output again after each input.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    speaker: Speaker,
    phase: Phase,
    /// One at a time: whether the server takes requests.
    open: bool,
    output: Vec<u8>,
    queue: Queue,
    next_mark: u64,
    /// Number of collective operations started.
    started: u64,
    broken: Option<ClientError>,
}

impl Client {
    /// A PMI-2 client that has not spoken yet.
    pub fn new(config: ClientConfig) -> Self {
        Self::with(config, Speaker::V2(v2::Speaker::default()))
    }

    /// A PMI-1 client that has not spoken yet.
    pub fn pmi1(rank_from: RankFrom) -> Self {
        let rank = match rank_from {
            RankFrom::Environment { rank, .. } => rank,
            RankFrom::Server { id } => id,
        };
        let config = ClientConfig {
            rank,
            job_id: None,
            extensions: false,
        };
        Self::with(config, Speaker::V1(v1::Speaker::new(rank_from)))
    }

    fn with(config: ClientConfig, speaker: Speaker) -> Self {
        Self {
            config,
            speaker,
            phase: Phase::Fresh,
            open: false,
            output: Vec::new(),
            queue: Queue::default(),
            next_mark: 0,
            started: 0,
            broken: None,
        }
    }

    /// What the client was made with, or has learnt since: in PMI-1's port model, its rank.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// The version that the client speaks: `"PMI-1"` or `"PMI-2"`.
    pub fn version(&self) -> &'static str {
        match self.speaker {
            Speaker::V1(_) => "PMI-1",
            Speaker::V2(_) => "PMI-2",
        }
    }

    /// Longest value that can be put, in bytes. With PMI-1 it may shrink until the reply to
    /// [`calls::Initialise`], when the server has told its limits.
    pub fn value_max(&self) -> usize {
        match &self.speaker {
            Speaker::V1(speaker) => speaker.value_max(),
            Speaker::V2(_) => MAX_VALUE - 1, // a NUL takes one
        }
    }

    /// Number of the next collective operation that this PE starts.
    pub fn next_request(&self) -> RequestId {
        RequestId(self.started)
    }

    /// Number of requests without reply, those held back included.
    pub fn outstanding(&self) -> usize {
        self.queue.outstanding()
    }

    /// Number of received bytes that wait for the rest of their message.
    pub fn incomplete_input(&self) -> usize {
        match &self.speaker {
            Speaker::V1(speaker) => speaker.incomplete_input(),
            Speaker::V2(speaker) => speaker.incomplete_input(),
        }
    }

    /// Makes a call; the [`calls`] say what each is, and gives.
    ///
    /// # Errors
    ///
    /// The server has no such command or cannot carry what the call is made of; it is called before
    /// [`calls::Initialise`] or after [`calls::Finalize`]; or [`calls::Wait`] for an operation that was
    /// not started.
    pub fn call<C: Call>(&mut self, call: &C) -> Result<Ticket<C::Reply>, ClientError> {
        let terms = Terms {
            extensions: self.config.extensions,
            rule: match self.speaker {
                Speaker::V1(_) => text::Rule::V1,
                Speaker::V2(_) if self.config.extensions => text::Rule::V2Escaped,
                Speaker::V2(_) => text::Rule::V2,
            },
            value_max: self.value_max(),
        };
        let command = call.command(&terms)?;
        let mark = self.next_mark + 1;
        let ticket = Ticket::of::<C>(mark);
        self.request(command, mark, ticket.other_end())?;
        self.next_mark = mark;
        Ok(ticket)
    }

    fn request(
        &mut self,
        command: Command<'static>,
        mark: u64,
        caller: Arc<dyn Settle>,
    ) -> Result<(), ClientError> {
        let name = command.name();
        match command {
            Command::FullInit { .. } => self.begin()?,
            Command::Wait { request } if request >= self.started => {
                return Err(ClientError::UnknownRequest {
                    request: RequestId(request),
                    started: self.started,
                });
            }
            Command::Wait { request } if !self.config.extensions => {
                self.queue.wait(caller, RequestId(request));
                return Ok(());
            }
            Command::Ifence if !self.config.extensions => {
                // A plain fence, which nobody waits for until somebody asks.
                let request = self.started;
                self.send(Command::KvsFence { group: None }, mark, None)?;
                caller.settle(Ok(Reply::Ifence(request)));
                return Ok(());
            }
            _ => self.check_state(name)?,
        }
        self.send(command, mark, Some(caller))
    }

    fn send(
        &mut self,
        command: Command<'static>,
        mark: u64,
        caller: Option<Arc<dyn Settle>>,
    ) -> Result<(), ClientError> {
        let name = command.name();
        self.check_state(name)?;
        if matches!(self.speaker, Speaker::V1(_)) && !v1::offers(&command) {
            let (command, version) = (name, self.version());
            return Err(ClientError::Unsupported { command, version });
        }
        let collective = command.is_collective();
        let request = match command {
            Command::Wait { request } => Some(RequestId(request)),
            _ => collective.then_some(RequestId(self.started)),
        };
        let finalizes = matches!(command, Command::Finalize);
        let pending = Pending {
            mark,
            verb: command.verb(),
            request,
            caller,
        };
        if matches!(
            (&self.speaker, &command),
            (Speaker::V1(_), Command::FullInit { .. })
        ) {
            // What PMI-1 says instead is under way.
            self.queue.pending.push_back(pending);
        } else if self.config.extensions {
            v2::say(&self.config, command, mark, &mut self.output)?;
            self.queue.pending.push_back(pending);
        } else {
            self.queue.held.push_back((command, pending));
            self.release()?;
        }
        self.started += u64::from(collective);
        if finalizes {
            self.phase = Phase::Finalizing;
        }
        Ok(())
    }

    /// Opens the connection, in the words of the version.
    fn begin(&mut self) -> Result<(), ClientError> {
        if self.phase != Phase::Fresh {
            return Err(ClientError::WrongState {
                command: "init",
                state: "twice",
            });
        }
        match &self.speaker {
            Speaker::V1(speaker) => speaker.begin(&mut self.output)?,
            Speaker::V2(_) => {
                v2::begin(&mut self.output);
                self.open = self.config.extensions;
            }
        }
        self.phase = Phase::Open;
        Ok(())
    }

    /// Asks for the end of the job. Sent ahead of whatever is held back; has no reply.
    ///
    /// # Errors
    ///
    /// Not initialised, or finalized; or the message is too long.
    pub fn abort(&mut self, exit_code: i32, message: &str) -> Result<(), ClientError> {
        self.check_state("abort")?;
        let clean: String = message
            .chars()
            .map(|c| if c == ';' || c.is_control() { ' ' } else { c })
            .collect();
        if !self.config.extensions {
            // One request in a write; what has not been sent is of no use any more.
            self.output.clear();
        }
        if let Speaker::V1(_) = self.speaker {
            v1::abort(exit_code, &clean, &mut self.output);
            return Ok(());
        }
        let request = Request::new(Command::Abort {
            is_world: true,
            exit_code: Some(exit_code),
            message: Cow::Borrowed(clean.as_bytes()),
        });
        Ok(request.encode(&mut self.output)?)
    }

    /// The bytes to send; empty if there are none.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Whether there are bytes to send.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Takes in what the server sent.
    ///
    /// # Errors
    ///
    /// The server does not follow the protocol. The connection is of no use after that.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let outcome = self.take_in(bytes);
        self.broken = outcome.as_ref().err().cloned();
        outcome
    }

    fn take_in(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        match &mut self.speaker {
            Speaker::V1(speaker) => speaker.push(bytes),
            Speaker::V2(speaker) => speaker.push(bytes),
        }
        loop {
            let pending = &self.queue.pending;
            let heard = match &mut self.speaker {
                Speaker::V1(speaker) => speaker.hear(pending, &mut self.output)?,
                Speaker::V2(speaker) => speaker.hear(pending)?,
            };
            match heard {
                None => return Ok(()),
                Some(Heard::Nothing) => continue,
                Some(Heard::Accepted) => self.open = true,
                Some(Heard::Outcome(index, outcome)) => {
                    if let Ok(Reply::FullInit(facts)) = &outcome {
                        self.open = true;
                        self.config.rank = facts.rank;
                        // Nothing can have been counted in a process that was started again, unless
                        // its caller did not wait for this.
                        self.started = self.started.max(facts.first_request);
                    }
                    self.queue.settle(index, outcome)?;
                }
            }
            self.release()?;
        }
    }

    /// One at a time: sends the next held request if none is under way.
    fn release(&mut self) -> Result<(), ClientError> {
        while self.open && self.queue.pending.is_empty() {
            let Some((command, pending)) = self.queue.held.pop_front() else {
                break;
            };
            let (verb, mark) = (command.verb(), pending.mark);
            self.queue.pending.push_back(pending);
            // There is an outcome at once if there is nothing to send.
            let outcome = match &self.speaker {
                Speaker::V1(speaker) => speaker.say(command, &mut self.output),
                Speaker::V2(_) => {
                    let said = v2::say(&self.config, command, mark, &mut self.output);
                    said.err().map(|error| Err(not_sent(verb, &error)))
                }
            };
            if let Some(outcome) = outcome {
                self.queue.settle(0, outcome)?;
            }
        }
        Ok(())
    }

    fn check_state(&self, command: &'static str) -> Result<(), ClientError> {
        let state = match self.phase {
            Phase::Fresh => "before init",
            Phase::Finalizing => "after finalize",
            Phase::Open => return Ok(()),
        };
        Err(ClientError::WrongState { command, state })
    }
}

/// The refusal of a request that the server never saw.
fn not_sent(verb: Verb, why: &dyn std::fmt::Display) -> Refusal {
    Refusal {
        command: verb.name().to_owned(),
        rc: -1,
        message: format!("it cannot be sent: {why}"),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_v1;
