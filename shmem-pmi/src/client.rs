//! The PE's end: a pure state machine that turns calls into bytes, and bytes into events.
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
//! ticket as thread mark, so that several threads of a PE can wait for different things. The caller
//! must await what it depends on: a `get` queued behind an unfinished `fence` sees the old values.

mod call;
mod event;
mod queue;
mod text;
mod v1;
mod v2;

use std::borrow::Cow;

pub use event::{
    ClientError, Event, Initialised, Neighbours, Refusal, RequestId, Spawned, Started, Ticket,
};

use crate::nla::{MAX_CONTRIBUTION, MAX_MESSAGE, Operation};
use crate::question::SpawnRequest;
use crate::wire::v2::{Command, Request};
use crate::wire::{MAX_ALLGATHER_VALUE, MAX_KEY, MAX_TOLD, MAX_VALUE};
use call::Call;
use queue::{Pending, Queue};
pub(crate) use text::check_pair;

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
pub enum Place {
    /// Its environment says so (`PMI_RANK`, `PMI_SIZE`): it has a connected socket, `PMI_FD`.
    Known {
        /// Rank.
        rank: u32,
        /// Number of processes.
        size: u32,
    },
    /// It asks the server, which knows it by a number (`PMI_ID`): it has an address to connect to,
    /// `PMI_PORT`.
    Asked {
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
enum Heard {
    /// Part of a dialogue that goes on.
    Nothing,
    /// PMI-2: the init line was answered; requests may follow.
    Accepted,
    /// A call has ended.
    Outcome { index: usize, event: Event },
}

/// The PMI client of one PE.
///
/// Calls queue a request and return its [`Ticket`]; [`Client::take_output`] yields the bytes to
/// send, [`Client::handle_bytes`] takes what came, [`Client::poll_event`] tells the outcome. In
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
    next_ticket: u64,
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
    pub fn pmi1(place: Place) -> Self {
        let rank = match place {
            Place::Known { rank, .. } => rank,
            Place::Asked { id } => id,
        };
        let config = ClientConfig {
            rank,
            job_id: None,
            extensions: false,
        };
        Self::with(config, Speaker::V1(v1::Speaker::new(place)))
    }

    fn with(config: ClientConfig, speaker: Speaker) -> Self {
        Self {
            config,
            speaker,
            phase: Phase::Fresh,
            open: false,
            output: Vec::new(),
            queue: Queue::default(),
            next_ticket: 0,
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

    /// Longest value that can be put, in bytes. With PMI-1 it may shrink until
    /// [`Event::Initialised`], when the server has told its limits.
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

    /// Introduces this PE. Event: [`Event::Initialised`].
    ///
    /// # Errors
    ///
    /// It has been called before.
    pub fn initialise(&mut self) -> Result<Ticket, ClientError> {
        if self.phase != Phase::Fresh {
            return Err(ClientError::WrongState {
                command: "init",
                state: "twice",
            });
        }
        let now = match &self.speaker {
            Speaker::V1(speaker) => {
                speaker.begin(&mut self.output)?;
                self.phase = Phase::Open;
                let ticket = self.ticket();
                self.queue.pending.push_back(Pending {
                    ticket,
                    command: Call::Introduce.name(),
                    request: None,
                    emulated: false,
                });
                return Ok(ticket);
            }
            Speaker::V2(_) => {
                v2::begin(&mut self.output);
                self.config.extensions
            }
        };
        self.open = now;
        self.phase = Phase::Open;
        self.send(Call::Introduce)
    }

    /// Asks for the job's id; with PMI-1 the name of its key-value space. Event: [`Event::JobId`].
    ///
    /// # Errors
    ///
    /// This and all calls below: not initialised, or finalized.
    pub fn job_id(&mut self) -> Result<Ticket, ClientError> {
        self.send(Call::JobId)
    }

    /// Asks for a job attribute. Event: [`Event::JobAttr`].
    ///
    /// # Errors
    ///
    /// A key that cannot be sent.
    pub fn job_attr(&mut self, key: &str) -> Result<Ticket, ClientError> {
        let key = self.check_key(key)?;
        self.send(Call::JobAttr { key })
    }

    /// Publishes a key to the PEs of this node. Event: [`Event::NodeAttrPut`].
    ///
    /// # Errors
    ///
    /// A key or value that cannot be sent.
    pub fn put_node_attr(&mut self, key: &str, value: &[u8]) -> Result<Ticket, ClientError> {
        let (key, value) = (self.check_key(key)?, self.check_value(value)?);
        self.send(Call::PutNodeAttr { key, value })
    }

    /// Asks for a node attribute; with `wait`, the event comes when some PE of this node has put
    /// it. Event: [`Event::NodeAttr`].
    ///
    /// # Errors
    ///
    /// A key that cannot be sent.
    pub fn node_attr(&mut self, key: &str, wait: bool) -> Result<Ticket, ClientError> {
        let key = self.check_key(key)?;
        self.send(Call::NodeAttr { key, wait })
    }

    /// Puts a pair that the next fence makes visible. Event: [`Event::Put`].
    ///
    /// # Errors
    ///
    /// A key or value that cannot be sent.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<Ticket, ClientError> {
        let (key, value) = (self.check_key(key)?, self.check_value(value)?);
        self.send(Call::Put { key, value })
    }

    /// Gets a value. Event: [`Event::Got`].
    ///
    /// # Errors
    ///
    /// A key that cannot be sent.
    pub fn get(&mut self, key: &str) -> Result<Ticket, ClientError> {
        let key = self.check_key(key)?;
        self.send(Call::Get { key })
    }

    /// Makes all puts of all PEs visible. Collective. Event: [`Event::FenceDone`].
    ///
    /// # Errors
    ///
    /// As all calls.
    pub fn fence(&mut self) -> Result<Ticket, ClientError> {
        self.send(Call::Fence)
    }

    /// Starts a fence. Collective. Event: [`Event::RequestStarted`].
    ///
    /// Works with every server: without extensions a plain fence is sent, and what is called
    /// later is held back until it is complete.
    ///
    /// # Errors
    ///
    /// As all calls.
    pub fn ifence(&mut self) -> Result<Started, ClientError> {
        let request = RequestId(self.started);
        if self.config.extensions {
            let ticket = self.send(Call::Ifence)?;
            return Ok(Started { ticket, request });
        }
        let ticket = self.enqueue(Call::Fence, true)?;
        let events = &mut self.queue.events;
        events.push_back((ticket, Event::RequestStarted(request)));
        Ok(Started { ticket, request })
    }

    /// Starts an allgather of `value`, which must be equally long on all PEs. Collective. Event:
    /// [`Event::RequestStarted`], which need not be awaited.
    ///
    /// # Errors
    ///
    /// The server has no extensions, or the value is empty or longer than
    /// [`MAX_ALLGATHER_VALUE`].
    pub fn iallgather(&mut self, value: &[u8]) -> Result<Started, ClientError> {
        let request = RequestId(self.started);
        let value = self.check_gather("iallgather", value)?;
        let ticket = self.send(Call::Iallgather { value })?;
        Ok(Started { ticket, request })
    }

    /// An allgather of `value`, which must be equally long on all PEs. Collective. Event:
    /// [`Event::RequestDone`].
    ///
    /// # Errors
    ///
    /// As [`Client::iallgather`].
    pub fn allgather(&mut self, value: &[u8]) -> Result<Started, ClientError> {
        let request = RequestId(self.started);
        let value = self.check_gather("allgather", value)?;
        let ticket = self.send(Call::Allgather { value })?;
        Ok(Started { ticket, request })
    }

    /// Asks to be told when an operation is complete; at once if it is. Event:
    /// [`Event::RequestDone`], or [`Event::Error`] if the operation failed.
    ///
    /// # Errors
    ///
    /// The operation has not been started by this PE.
    pub fn wait(&mut self, request: RequestId) -> Result<Ticket, ClientError> {
        if request.0 >= self.started {
            return Err(ClientError::UnknownRequest {
                request,
                started: self.started,
            });
        }
        if self.config.extensions {
            return self.send(Call::Wait { request: request.0 });
        }
        let ticket = self.ticket();
        self.queue.wait(ticket, request);
        Ok(ticket)
    }

    /// Gets the value of a key from the PE that puts it, as soon as it has put it: no fence is
    /// needed (direct exchange). Event: [`Event::Got`] with the value, or [`Event::Error`] if that PE
    /// ends without putting it.
    ///
    /// # Errors
    ///
    /// The server has no extensions, or the key cannot be sent.
    pub fn get_from(&mut self, owner: u32, key: &str) -> Result<Ticket, ClientError> {
        self.need_extensions("kvs-get")?;
        let key = self.check_key(key)?;
        self.send(Call::GetFrom { owner, key })
    }

    /// A collective operation of the NLA layer, see [`crate::nla`]. Collective. Event:
    /// [`Event::Received`] with what this PE gets.
    ///
    /// # Errors
    ///
    /// The server has no extensions, or the value is longer than
    /// [`crate::nla::MAX_CONTRIBUTION`].
    pub fn nla(
        &mut self,
        operation: Operation,
        root: u32,
        value: &[u8],
    ) -> Result<Ticket, ClientError> {
        self.need_extensions("nla")?;
        check_len(operation.name(), value, MAX_CONTRIBUTION)?;
        self.send(Call::Nla {
            operation,
            root,
            value: value.to_vec(),
        })
    }

    /// Sends a message to a PE (`NLA_Send`). Event: [`Event::Sent`] when the node agent has taken
    /// it, which does not mean that it has been received.
    ///
    /// # Errors
    ///
    /// The server has no extensions, or the message is longer than [`crate::nla::MAX_MESSAGE`].
    pub fn nla_send(&mut self, to: u32, message: &[u8]) -> Result<Ticket, ClientError> {
        self.need_extensions("nla-send")?;
        check_len("send", message, MAX_MESSAGE)?;
        self.send(Call::NlaSend {
            to,
            value: message.to_vec(),
        })
    }

    /// Receives the next message that a PE sends to this one (`NLA_Recv`). Event:
    /// [`Event::Received`], or [`Event::Error`] if that PE ends without sending one.
    ///
    /// # Errors
    ///
    /// The server has no extensions.
    pub fn nla_recv(&mut self, from: u32) -> Result<Ticket, ClientError> {
        self.need_extensions("nla-recv")?;
        self.send(Call::NlaRecv { from })
    }

    /// Publishes a service name for other jobs. Event: [`Event::Published`].
    ///
    /// # Errors
    ///
    /// A name or port that cannot be sent.
    pub fn publish(&mut self, name: &str, port: &[u8]) -> Result<Ticket, ClientError> {
        let name = self.check("service name", name.as_bytes(), MAX_VALUE - 1)?;
        let port = self.check_value(port)?;
        self.send(Call::Publish { name, port })
    }

    /// Asks where a service is to be found. Event: [`Event::LookedUp`], or [`Event::Error`] if
    /// nobody has published it.
    ///
    /// # Errors
    ///
    /// A name that cannot be sent.
    pub fn lookup(&mut self, name: &str) -> Result<Ticket, ClientError> {
        let name = self.check("service name", name.as_bytes(), MAX_VALUE - 1)?;
        self.send(Call::Lookup { name })
    }

    /// Takes a service name back. Event: [`Event::Unpublished`].
    ///
    /// # Errors
    ///
    /// A name that cannot be sent.
    pub fn unpublish(&mut self, name: &str) -> Result<Ticket, ClientError> {
        let name = self.check("service name", name.as_bytes(), MAX_VALUE - 1)?;
        self.send(Call::Unpublish { name })
    }

    /// Starts another job. Event: [`Event::Spawned`].
    ///
    /// # Errors
    ///
    /// As all calls. What cannot be sent is told by [`Event::Error`].
    pub fn spawn(&mut self, request: SpawnRequest) -> Result<Ticket, ClientError> {
        self.send(Call::Spawn(request))
    }

    /// Puts the PEs in a ring and asks for the values of the neighbours (`PMIX_Ring`). Collective.
    /// Event: [`Event::Ring`]. For servers that know it, which nothing but their documentation tells:
    /// ours with extensions, and Slurm's; others end the job, or never answer.
    ///
    /// # Errors
    ///
    /// A value that cannot be sent; PMI-1.
    pub fn ring(&mut self, value: &[u8]) -> Result<Ticket, ClientError> {
        let value = self.check_value(value)?;
        self.send(Call::Ring { value })
    }

    /// Takes leave. Event: [`Event::Finalized`]; nothing can be called after this.
    ///
    /// # Errors
    ///
    /// As all calls.
    pub fn finalize(&mut self) -> Result<Ticket, ClientError> {
        let ticket = self.send(Call::Finalize)?;
        self.phase = Phase::Finalizing;
        Ok(ticket)
    }

    /// Asks for the end of the job. Sent ahead of whatever is held back; has no event.
    ///
    /// # Errors
    ///
    /// As all calls; or the message is too long.
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

    /// Tells the user something, behind whatever was sent before; has no event. Of a long text the
    /// first [`MAX_TOLD`] bytes. `adds`: it only adds to what was said before.
    ///
    /// # Errors
    ///
    /// As all calls; or the server has no extensions.
    pub fn tell(&mut self, text: &str, adds: bool) -> Result<(), ClientError> {
        self.check_state("tell")?;
        self.need_extensions("tell")?;
        let mut ends = (0..=text.len().min(MAX_TOLD)).rev();
        let end = ends.find(|&at| text.is_char_boundary(at));
        let text = &text[..end.unwrap_or(0)];
        let request = Request::new(Command::Tell {
            text: Cow::Borrowed(text.as_bytes()),
            adds,
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

    /// The outcome of some call.
    pub fn poll_event(&mut self) -> Option<(Ticket, Event)> {
        self.queue.events.pop_front()
    }

    /// Takes in what the server sent.
    ///
    /// # Errors
    ///
    /// It does not follow the protocol. The connection is of no use after that.
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
                Some(Heard::Outcome { index, event }) => {
                    if let Event::Initialised(facts) = &event {
                        self.open = true;
                        self.config.rank = facts.rank;
                        // Nothing can have been counted in a process that was started again, unless
                        // its caller did not wait for this.
                        self.started = self.started.max(facts.first_request.0);
                    }
                    self.queue.settle(index, event);
                }
            }
            self.release();
        }
    }

    /// One at a time: sends the next held request if none is under way.
    fn release(&mut self) {
        while self.open && self.queue.pending.is_empty() {
            let Some((call, pending)) = self.queue.held.pop_front() else {
                return;
            };
            let answer = self.say(&call, pending.ticket);
            self.queue.pending.push_back(pending);
            if let Some(event) = answer {
                self.queue.settle(0, event);
            }
        }
    }

    /// Appends a request to the output, or gives its outcome if there is nothing to send.
    fn say(&mut self, call: &Call, ticket: Ticket) -> Option<Event> {
        match &self.speaker {
            Speaker::V1(speaker) => speaker.say(call, &mut self.output),
            Speaker::V2(_) => {
                let said = v2::say(&self.config, call, ticket, &mut self.output);
                said.err().map(|error| Event::Error(not_sent(call, &error)))
            }
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn check_state(&self, command: &'static str) -> Result<(), ClientError> {
        let state = match self.phase {
            Phase::Fresh => "before init",
            Phase::Finalizing => "after finalize",
            Phase::Open => return Ok(()),
        };
        Err(ClientError::WrongState { command, state })
    }

    fn need_extensions(&self, command: &'static str) -> Result<(), ClientError> {
        match self.config.extensions {
            true => Ok(()),
            false => Err(ClientError::NoExtensions { command }),
        }
    }

    fn check_gather(&self, command: &'static str, value: &[u8]) -> Result<Vec<u8>, ClientError> {
        self.need_extensions(command)?;
        if value.is_empty() || value.len() > MAX_ALLGATHER_VALUE {
            return Err(ClientError::ValueLength { len: value.len() });
        }
        Ok(value.to_vec())
    }

    fn check_key(&self, key: &str) -> Result<Vec<u8>, ClientError> {
        self.check("key", key.as_bytes(), MAX_KEY - 1)
    }

    fn check_value(&self, value: &[u8]) -> Result<Vec<u8>, ClientError> {
        self.check("value", value, self.value_max())
    }

    fn check(&self, what: &'static str, text: &[u8], max: usize) -> Result<Vec<u8>, ClientError> {
        let rule = match self.speaker {
            Speaker::V1(_) => text::Rule::V1,
            Speaker::V2(_) => text::Rule::V2,
        };
        text::check(rule, what, text, max).map(<[u8]>::to_vec)
    }

    fn send(&mut self, call: Call) -> Result<Ticket, ClientError> {
        self.enqueue(call, false)
    }

    fn enqueue(&mut self, call: Call, emulated: bool) -> Result<Ticket, ClientError> {
        let command = call.name();
        self.check_state(command)?;
        let offered = match self.speaker {
            Speaker::V1(_) => v1::offers(&call),
            Speaker::V2(_) => true,
        };
        if !offered {
            let version = self.version();
            return Err(ClientError::Unsupported { command, version });
        }
        let ticket = self.ticket();
        let request = match call {
            Call::Wait { request } => Some(RequestId(request)),
            _ if call.is_collective() => Some(RequestId(self.started)),
            _ => None,
        };
        let pending = Pending {
            ticket,
            command,
            request,
            emulated,
        };
        if self.config.extensions {
            v2::say(&self.config, &call, ticket, &mut self.output)?;
            self.queue.pending.push_back(pending);
        } else {
            self.queue.held.push_back((call, pending));
            self.release();
        }
        self.started += u64::from(request.is_some() && command != "wait");
        Ok(ticket)
    }
}

fn check_len(operation: &'static str, value: &[u8], max: usize) -> Result<(), ClientError> {
    let len = value.len();
    match len <= max {
        true => Ok(()),
        false => Err(ClientError::TooMuch {
            operation,
            len,
            max,
        }),
    }
}

/// The refusal of a request that the server never saw.
fn not_sent(call: &Call, why: &dyn std::fmt::Display) -> Refusal {
    Refusal {
        command: call.name().to_owned(),
        rc: -1,
        message: format!("it cannot be sent: {why}"),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_v1;
