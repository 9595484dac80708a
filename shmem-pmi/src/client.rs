//! The PE's end: a pure state machine that turns calls into bytes, and bytes into events.
//!
//! # Two ways of speaking
//!
//! *Plain PMI-2*, as foreign process managers serve it: one request is under way at a time, the
//! next is held back until the reply has come. That is what every server accepts, and it makes a
//! `put`, `fence`, `get` queued at once mean what it says.
//!
//! *With extensions*, at a server that offers them ([`crate::wire::EXTENSIONS_ENV`]): everything is
//! sent at once, so that init, fullinit and a first `iallgather` leave in one write, and replies
//! are read whenever it suits. Requests whose reply the server withholds carry the ticket as
//! thread mark, so that several threads of a PE can wait for different things. The caller must
//! await what it depends on: a `get` queued behind an unfinished `fence` sees the old values.

mod event;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

pub use event::{ClientError, Event, Initialised, Refusal, RequestId, Started, Ticket};

use crate::wire::v2::{Command, Decoder, Incoming, InitLine, InitReply, Reply, Request, Response};
use crate::wire::{MAX_ALLGATHER_VALUE, MAX_KEY, MAX_VALUE, excerpt};

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Fresh,
    /// Plain: the init line is sent, everything else is held back.
    AwaitInitReply,
    Open,
    Finalizing,
}

/// A request that has been sent or is held back, and what its reply means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pending {
    ticket: Ticket,
    command: &'static str,
    /// For collective operations and waits.
    request: Option<RequestId>,
    /// A plain fence under an `ifence`: its completion is told to those who wait.
    emulated: bool,
}

/// The PMI client of one PE.
///
/// Calls queue a request and return its [`Ticket`]; [`Client::take_output`] yields the bytes to
/// send, [`Client::handle_bytes`] takes what came, [`Client::poll_event`] tells the outcome. In
/// plain mode replies release held requests, so look for output again after each input.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    phase: Phase,
    output: Vec<u8>,
    held: VecDeque<(Vec<u8>, Pending)>,
    pending: VecDeque<Pending>,
    events: VecDeque<(Ticket, Event)>,
    decoder: Decoder,
    next_ticket: u64,
    /// Number of collective operations started.
    started: u64,
    /// Plain mode: calls of `wait` for a fence that is under way.
    waits: Vec<(Ticket, RequestId)>,
    /// Plain mode: fences that failed.
    failed: HashMap<RequestId, Refusal>,
}

impl Client {
    /// A client that has not spoken yet.
    pub fn new(config: ClientConfig) -> Self {
        Self {
            config,
            phase: Phase::Fresh,
            output: Vec::new(),
            held: VecDeque::new(),
            pending: VecDeque::new(),
            events: VecDeque::new(),
            decoder: Decoder::new(),
            next_ticket: 0,
            started: 0,
            waits: Vec::new(),
            failed: HashMap::new(),
        }
    }

    /// What the client was made with.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Number of requests without reply, those held back included.
    pub fn outstanding(&self) -> usize {
        self.pending.len() + self.held.len() + self.waits.len()
    }

    /// Number of received bytes that wait for the rest of their message.
    pub fn incomplete_input(&self) -> usize {
        self.decoder.pending()
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
        self.output
            .extend_from_slice(InitLine::V2.to_string().as_bytes());
        self.phase = if self.config.extensions {
            Phase::Open
        } else {
            Phase::AwaitInitReply
        };
        let job_id = self.config.job_id.clone();
        self.send(Command::FullInit {
            job_id: job_id.map(Cow::Owned),
            rank: Some(self.config.rank),
            threaded: self.config.extensions,
        })
    }

    /// Asks for the job's id. Event: [`Event::JobId`].
    ///
    /// # Errors
    ///
    /// This and all calls below: not initialised, or finalized.
    pub fn job_id(&mut self) -> Result<Ticket, ClientError> {
        self.send(Command::JobGetId)
    }

    /// Asks for a job attribute. Event: [`Event::JobAttr`].
    ///
    /// # Errors
    ///
    /// A key that cannot be sent.
    pub fn job_attr(&mut self, key: &str) -> Result<Ticket, ClientError> {
        let key = check("key", key.as_bytes(), MAX_KEY)?;
        self.send(Command::JobAttr { key })
    }

    /// Publishes a key to the PEs of this node. Event: [`Event::NodeAttrPut`].
    ///
    /// # Errors
    ///
    /// A key or value that cannot be sent.
    pub fn put_node_attr(&mut self, key: &str, value: &[u8]) -> Result<Ticket, ClientError> {
        let key = check("key", key.as_bytes(), MAX_KEY)?;
        let value = check("value", value, MAX_VALUE)?;
        self.send(Command::PutNodeAttr { key, value })
    }

    /// Asks for a node attribute; with `wait`, the event comes when some PE of this node has put
    /// it. Event: [`Event::NodeAttr`].
    ///
    /// # Errors
    ///
    /// A key that cannot be sent.
    pub fn node_attr(&mut self, key: &str, wait: bool) -> Result<Ticket, ClientError> {
        let key = check("key", key.as_bytes(), MAX_KEY)?;
        self.send(Command::NodeAttr { key, wait })
    }

    /// Puts a pair that the next fence makes visible. Event: [`Event::Put`].
    ///
    /// # Errors
    ///
    /// A key or value that cannot be sent.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<Ticket, ClientError> {
        let key = check("key", key.as_bytes(), MAX_KEY)?;
        let value = check("value", value, MAX_VALUE)?;
        self.send(Command::KvsPut { key, value })
    }

    /// Gets a value. Event: [`Event::Got`].
    ///
    /// # Errors
    ///
    /// A key that cannot be sent.
    pub fn get(&mut self, key: &str) -> Result<Ticket, ClientError> {
        let key = check("key", key.as_bytes(), MAX_KEY)?;
        let job_id = self.config.job_id.clone().map(Cow::Owned);
        self.send(Command::KvsGet {
            job_id,
            source: -1,
            key,
        })
    }

    /// Makes all puts of all PEs visible. Collective. Event: [`Event::FenceDone`].
    ///
    /// # Errors
    ///
    /// As all calls.
    pub fn fence(&mut self) -> Result<Ticket, ClientError> {
        self.send(Command::KvsFence)
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
            let ticket = self.send(Command::Ifence)?;
            return Ok(Started { ticket, request });
        }
        let ticket = self.enqueue(Command::KvsFence, true)?;
        self.events
            .push_back((ticket, Event::RequestStarted(request)));
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
        let ticket = self.send(Command::Iallgather { value })?;
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
        let ticket = self.send(Command::Allgather { value })?;
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
            return self.send(Command::Wait { request: request.0 });
        }
        let ticket = self.ticket();
        let held = self.held.iter().map(|(_, pending)| pending);
        if self
            .pending
            .iter()
            .chain(held)
            .any(|pending| pending.request == Some(request))
        {
            self.waits.push((ticket, request));
        } else {
            self.tell_wait(ticket, request);
        }
        Ok(ticket)
    }

    /// Takes leave. Event: [`Event::Finalized`]; nothing can be called after this.
    ///
    /// # Errors
    ///
    /// As all calls.
    pub fn finalize(&mut self) -> Result<Ticket, ClientError> {
        let ticket = self.send(Command::Finalize)?;
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

    /// The outcome of some call.
    pub fn poll_event(&mut self) -> Option<(Ticket, Event)> {
        self.events.pop_front()
    }

    /// Takes in what the server sent.
    ///
    /// # Errors
    ///
    /// It does not follow the protocol. The connection is of no use after that.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        // Taken out while its messages are read; after an error it stays out.
        let mut decoder = std::mem::take(&mut self.decoder);
        decoder.push(bytes);
        while let Some(message) = decoder.next_message()? {
            match message {
                Incoming::Line(line) => self.init_reply(InitReply::decode(line)?)?,
                Incoming::Body(body) => self.response(Response::decode(body)?)?,
            }
            self.release();
        }
        self.decoder = decoder;
        Ok(())
    }

    fn init_reply(&mut self, reply: InitReply) -> Result<(), ClientError> {
        let InitReply {
            version,
            subversion,
            rc,
        } = reply;
        if rc != 0 || version != InitLine::V2.version {
            return Err(ClientError::Version {
                version,
                subversion,
                rc,
            });
        }
        if self.phase == Phase::AwaitInitReply {
            self.phase = Phase::Open;
        }
        Ok(())
    }

    fn response(&mut self, response: Response<'_>) -> Result<(), ClientError> {
        let command = response.reply.command();
        let ticket = response
            .thread_id
            .as_deref()
            .and_then(|id| std::str::from_utf8(id).ok()?.parse().ok())
            .map(Ticket);
        // A reply with our mark belongs to the call with that ticket; one without it to the oldest
        // call of its name. Servers which do not repeat marks only ever have one to answer.
        let mut candidates = self.pending.iter();
        let index = candidates.position(|pending| {
            pending.command == command && ticket.is_none_or(|ticket| ticket == pending.ticket)
        });
        let Some(pending) = index.and_then(|index| self.pending.remove(index)) else {
            let command = excerpt(command.as_bytes());
            return Err(ClientError::Unexpected { command });
        };
        let outcome = self.outcome(&pending, response.reply)?;
        if !pending.emulated {
            self.events.push_back((pending.ticket, outcome));
            return Ok(());
        }
        if let (Some(request), Event::Error(refusal)) = (pending.request, outcome) {
            self.failed.insert(request, refusal);
        }
        let waits = std::mem::take(&mut self.waits);
        for (ticket, request) in waits {
            if pending.request == Some(request) {
                self.tell_wait(ticket, request);
            } else {
                self.waits.push((ticket, request));
            }
        }
        Ok(())
    }

    fn outcome(&self, pending: &Pending, reply: Reply<'_>) -> Result<Event, ClientError> {
        let own = |value: Option<Cow<'_, [u8]>>| value.map(Cow::into_owned);
        let counted = |theirs: u64| match pending.request {
            Some(RequestId(ours)) if ours != theirs => Err(ClientError::OutOfStep { theirs, ours }),
            _ => Ok(RequestId(theirs)),
        };
        Ok(match reply {
            Reply::FullInit(facts) => Event::Initialised(Initialised {
                rank: facts.rank,
                size: facts.size,
                appnum: facts.appnum,
                spawner: facts.spawner.map(Cow::into_owned),
            }),
            Reply::JobId(id) => Event::JobId(id.into_owned()),
            Reply::JobAttr(value) => Event::JobAttr(own(value)),
            Reply::NodeAttrPut => Event::NodeAttrPut,
            Reply::NodeAttr(value) => Event::NodeAttr(own(value)),
            Reply::KvsPut => Event::Put,
            Reply::KvsGet(value) => Event::Got(own(value)),
            Reply::KvsFence => Event::FenceDone,
            Reply::Iallgather(request) | Reply::Ifence(request) => {
                Event::RequestStarted(counted(request)?)
            }
            Reply::Allgather(request) | Reply::Wait(request) => {
                Event::RequestDone(counted(request)?)
            }
            Reply::Finalize => Event::Finalized,
            Reply::Refused {
                command,
                rc,
                message,
            } => Event::Error(Refusal {
                command: command.into_owned(),
                rc,
                message: message.into_owned(),
            }),
        })
    }

    /// Plain mode: the fence `request` is over, and `ticket` waits for it.
    fn tell_wait(&mut self, ticket: Ticket, request: RequestId) {
        let event = match self.failed.get(&request) {
            Some(refusal) => Event::Error(refusal.clone()),
            None => Event::RequestDone(request),
        };
        self.events.push_back((ticket, event));
    }

    /// Plain mode: sends the next held request if none is under way.
    fn release(&mut self) {
        if self.phase != Phase::AwaitInitReply
            && self.pending.is_empty()
            && let Some((bytes, pending)) = self.held.pop_front()
        {
            self.output.extend_from_slice(&bytes);
            self.pending.push_back(pending);
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
            Phase::AwaitInitReply | Phase::Open => return Ok(()),
        };
        Err(ClientError::WrongState { command, state })
    }

    fn check_gather<'v>(
        &self,
        command: &'static str,
        value: &'v [u8],
    ) -> Result<Cow<'v, [u8]>, ClientError> {
        if !self.config.extensions {
            return Err(ClientError::NoExtensions { command });
        }
        if value.is_empty() || value.len() > MAX_ALLGATHER_VALUE {
            return Err(ClientError::ValueLength { len: value.len() });
        }
        Ok(Cow::Borrowed(value))
    }

    fn send(&mut self, command: Command<'_>) -> Result<Ticket, ClientError> {
        self.enqueue(command, false)
    }

    fn enqueue(&mut self, command: Command<'_>, emulated: bool) -> Result<Ticket, ClientError> {
        let name = command.name();
        self.check_state(name)?;
        let request = match command {
            Command::Wait { request } => Some(RequestId(request)),
            Command::KvsFence
            | Command::Ifence
            | Command::Iallgather { .. }
            | Command::Allgather { .. } => Some(RequestId(self.started)),
            _ => None,
        };
        let withheld = matches!(
            command,
            Command::KvsFence
                | Command::Allgather { .. }
                | Command::Wait { .. }
                | Command::NodeAttr { wait: true, .. }
        );
        let collective = request.is_some() && !matches!(command, Command::Wait { .. });
        let ticket = self.ticket();
        let marked = self.config.extensions && withheld;
        let message = Request {
            thread_id: marked.then(|| Cow::Owned(ticket.0.to_string().into_bytes())),
            command,
        };
        let pending = Pending {
            ticket,
            command: name,
            request,
            emulated,
        };
        if self.config.extensions {
            message.encode(&mut self.output)?;
            self.pending.push_back(pending);
        } else {
            let mut bytes = Vec::new();
            message.encode(&mut bytes)?;
            self.held.push_back((bytes, pending));
            self.release();
        }
        self.started += u64::from(collective);
        Ok(ticket)
    }
}

/// Texts that every server and client in the field carries unchanged.
fn check<'t>(what: &'static str, text: &'t [u8], max: usize) -> Result<Cow<'t, [u8]>, ClientError> {
    let bad = |rule| ClientError::BadText {
        what,
        text: excerpt(text),
        rule,
    };
    if text.is_empty() {
        return Err(bad("it is empty"));
    }
    // The limits of the field count the NUL at the end.
    if text.len() >= max {
        return Err(bad(match what {
            "key" => "it is longer than 63 bytes",
            _ => "it is longer than 1023 bytes",
        }));
    }
    if text.iter().any(|byte| matches!(byte, b';' | b'\n' | 0)) {
        return Err(bad("`;`, newline and NUL are not allowed; encode it"));
    }
    Ok(Cow::Borrowed(text))
}

#[cfg(test)]
mod tests;
