//! The calls, each described once: what it is made of and gives, as which command it is sent, and which
//! reply belongs to it. What PMI-1 sends instead of some is in `v1`.

use super::error::{ClientError, RequestId};
use super::text::{self, Rule};
use crate::question::SpawnRequest;
use crate::wire::data::{MAX_CONTRIBUTION, MAX_MESSAGE, Operation};
use crate::wire::{Command, MAX_ALLGATHER_VALUE, MAX_KEY, MAX_VALUE, Reply, Verb};

/// A call of a [`super::Client`].
pub trait Call {
    /// What the call gives.
    type Reply: Send + 'static;

    /// The command that is sent for the call.
    ///
    /// # Errors
    ///
    /// The server has no such command, or cannot carry what the call is made of.
    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError>;

    /// What a reply gives; `None` if it is no reply to this call.
    fn reply(reply: Reply<'_>) -> Option<Self::Reply>;
}

/// What client and server can carry.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub(super) extensions: bool,
    pub(super) rule: Rule,
    pub(super) value_max: usize,
}

type Bytes = std::borrow::Cow<'static, [u8]>;

impl Terms {
    fn text(&self, what: &'static str, text: &[u8], max: usize) -> Result<Bytes, ClientError> {
        text::check(self.rule, what, text, max).map(|text| text.to_vec().into())
    }

    fn key(&self, key: &str) -> Result<Bytes, ClientError> {
        self.text("key", key.as_bytes(), MAX_KEY - 1)
    }

    fn value(&self, value: &[u8]) -> Result<Bytes, ClientError> {
        self.text("value", value, self.value_max)
    }

    fn service(&self, name: &str) -> Result<Bytes, ClientError> {
        self.text("service name", name.as_bytes(), MAX_VALUE - 1)
    }

    fn need_extensions(&self, verb: Verb) -> Result<(), ClientError> {
        match self.extensions {
            true => Ok(()),
            false => Err(ClientError::NoExtensions {
                command: verb.name(),
            }),
        }
    }

    fn gather(&self, verb: Verb, value: &[u8]) -> Result<Bytes, ClientError> {
        self.need_extensions(verb)?;
        match value.len() {
            1..=MAX_ALLGATHER_VALUE => Ok(value.to_vec().into()),
            len => Err(ClientError::ValueLength { len }),
        }
    }

    fn data(&self, operation: &'static str, data: &[u8], max: usize) -> Result<Bytes, ClientError> {
        match data.len() {
            len if len > max => Err(ClientError::TooMuch {
                operation,
                len,
                max,
            }),
            _ => Ok(data.to_vec().into()),
        }
    }
}

/// Describes a call: what it is made of, what it gives, as which command it is sent on what terms, and
/// what its reply gives.
macro_rules! call {
    (
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? $(($($part:ident: $type:ty),+))? -> $gives:ty,
        $terms:pat => $command:expr,
        $reply:pat => $value:expr $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name $(<$life>)? $(($(pub $type),+))?;

        impl $(<$life>)? Call for $name $(<$life>)? {
            type Reply = $gives;

            fn command(&self, $terms: &Terms) -> Result<Command<'static>, ClientError> {
                let Self $(($($part),+))? = *self;
                Ok($command)
            }

            fn reply(reply: Reply<'_>) -> Option<$gives> {
                match reply {
                    $reply => Some($value),
                    _ => None,
                }
            }
        }
    };
}

call! {
    /// Introduces this PE; the first call, and only once.
    Initialise -> Initialised,
    terms => Command::FullInit { job_id: None, rank: None, threaded: terms.extensions },
    Reply::FullInit(facts) => Initialised {
        rank: facts.rank,
        size: facts.size,
        appnum: facts.appnum,
        spawner: facts.spawner.map(Into::into),
        restarts: facts.restarts,
        first_request: RequestId(facts.first_request),
    }
}

/// The facts that come with the reply to [`Initialise`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initialised {
    /// Rank of this PE.
    pub rank: u32,
    /// Number of PEs.
    pub size: u32,
    /// Number of the program in the job; -1 if not said.
    pub appnum: i32,
    /// The job that spawned this one.
    pub spawner: Option<String>,
    /// How often this PE's process has been started again after it died.
    pub restarts: u32,
    /// Number of this PE's next collective operation: its former processes joined all before it.
    pub first_request: RequestId,
}

call! {
    /// Asks for the job's id; with PMI-1 the name of its key-value space.
    JobId -> String,
    _ => Command::JobGetId,
    Reply::JobId(id) => id.into_owned()
}

call! {
    /// Asks for the job attribute with this name: gives its value, if there is one.
    JobAttr<'a>(key: &'a str) -> Option<Vec<u8>>,
    terms => Command::JobAttr { key: terms.key(key)? },
    Reply::JobAttr(value) => value.map(Into::into)
}

call! {
    /// Publishes a key and its value to the PEs of this node. Not with PMI-1.
    PutNodeAttr<'a>(key: &'a str, value: &'a [u8]) -> (),
    terms => Command::PutNodeAttr { key: terms.key(key)?, value: terms.value(value)? },
    Reply::NodeAttrPut => ()
}

call! {
    /// Asks for the value of a node attribute; if so wanted, waits until some PE of this node has put
    /// it. Not with PMI-1.
    NodeAttr<'a>(key: &'a str, wait: bool) -> Option<Vec<u8>>,
    terms => Command::NodeAttr { key: terms.key(key)?, wait },
    Reply::NodeAttr(value) => value.map(Into::into)
}

call! {
    /// Puts a key and its value, which the next fence makes visible.
    Put<'a>(key: &'a str, value: &'a [u8]) -> (),
    terms => Command::KvsPut { job_id: None, key: terms.key(key)?, value: terms.value(value)? },
    Reply::KvsPut => ()
}

call! {
    /// Gets the visible value of this key, if there is one.
    Get<'a>(key: &'a str) -> Option<Vec<u8>>,
    terms => Command::KvsGet { job_id: None, source: -1, key: terms.key(key)?, direct: false },
    Reply::KvsGet(value) => value.map(Into::into)
}

call! {
    /// Gets, from the PE with this rank, the value of a key that it puts, as soon as it has: no fence is
    /// needed (direct exchange). Refused if that PE ends without putting it. An extension.
    GetFrom<'a>(owner: u32, key: &'a str) -> Vec<u8>,
    terms => {
        terms.need_extensions(Verb::KvsGet)?;
        let key = terms.key(key)?;
        Command::KvsGet { job_id: None, source: owner.into(), key, direct: true }
    },
    Reply::KvsGet(Some(value)) => value.into()
}

call! {
    /// Makes all puts of all PEs visible. Collective.
    Fence -> (),
    _ => Command::KvsFence { group: None },
    Reply::KvsFence { .. } => ()
}

call! {
    /// Starts a fence, for [`Wait`]. Collective. The reply, which need not be awaited, is its number:
    /// [`super::Client::next_request`] before the call.
    ///
    /// Works with every server: without extensions a plain fence is sent, and what is called later is
    /// held back until it is complete.
    Ifence -> RequestId,
    _ => Command::Ifence,
    Reply::Ifence(request) => RequestId(request)
}

call! {
    /// Starts an allgather of a value, which must be equally long on all PEs. Collective. The reply is
    /// as for [`Ifence`]. An extension.
    Iallgather<'a>(value: &'a [u8]) -> RequestId,
    terms => Command::Iallgather { value: terms.gather(Verb::Iallgather, value)? },
    Reply::Iallgather(request) => RequestId(request)
}

call! {
    /// An allgather of a value, which must be equally long on all PEs. Collective. An extension.
    Allgather<'a>(value: &'a [u8]) -> (),
    terms => Command::Allgather { value: terms.gather(Verb::Allgather, value)? },
    Reply::Allgather(_) => ()
}

call! {
    /// Asks to be told when an operation that this PE has started is complete; refused if the operation
    /// failed.
    Wait(request: RequestId) -> (),
    _ => Command::Wait { request: request.0 },
    Reply::Wait(_) => ()
}

call! {
    /// Publishes a service name, and where it is to be found, for other jobs.
    Publish<'a>(name: &'a str, port: &'a [u8]) -> (),
    terms => Command::NamePublish { name: terms.service(name)?, port: terms.value(port)? },
    Reply::NamePublished => ()
}

call! {
    /// Asks where this service is to be found; refused if nobody has published it.
    Lookup<'a>(name: &'a str) -> Vec<u8>,
    terms => Command::NameLookup { name: terms.service(name)? },
    Reply::NameFound(port) => port.into()
}

call! {
    /// Takes a service name back.
    Unpublish<'a>(name: &'a str) -> (),
    terms => Command::NameUnpublish { name: terms.service(name)? },
    Reply::NameUnpublished => ()
}

call! {
    /// Starts another job. What cannot be sent is refused.
    Spawn<'a>(request: &'a SpawnRequest) -> Spawned,
    _ => Command::Spawn(request.clone()),
    Reply::Spawned { job_id, errcodes } => Spawned { job_id: job_id.map(Into::into), errcodes }
}

/// A job that was started on behalf of this PE.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spawned {
    /// Id of the job, if the server tells.
    pub job_id: Option<String>,
    /// For each process of the job 0 or an error; empty stands for zeros.
    pub errcodes: Vec<i32>,
}

call! {
    /// Puts the PEs in a ring and asks for the values of the neighbours (`PMIX_Ring`). Collective. For
    /// servers that know it, which nothing but their documentation tells: ours with extensions, and
    /// Slurm's with PMI-2; others end the job, or never answer.
    Ring<'a>(value: &'a [u8]) -> Neighbours,
    terms => {
        let value = terms.value(value)?;
        Command::Ring { count: 1, left: value.clone(), right: value }
    },
    Reply::Ring { rank, size, left, right } => Neighbours {
        rank,
        size,
        left: left.into(),
        right: right.into(),
    }
}

/// A PE's place in a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbours {
    /// Rank in the ring, from 0.
    pub rank: u32,
    /// Number of PEs in it, if the server tells.
    pub size: Option<u32>,
    /// The value of the PE before, cyclically.
    pub left: Vec<u8>,
    /// The value of the PE behind, cyclically.
    pub right: Vec<u8>,
}

call! {
    /// A collective operation with data of any length ([`crate::wire::data`]): which, the rank of its
    /// root or 0, and what this PE brings, at most [`MAX_CONTRIBUTION`] bytes; gives what this PE gets.
    /// An extension.
    Data<'a>(operation: Operation, root: u32, value: &'a [u8]) -> Vec<u8>,
    terms => {
        terms.need_extensions(Verb::Data)?;
        let value = terms.data(operation.name(), value, MAX_CONTRIBUTION)?;
        Command::Data { operation, root, value, more: false }
    },
    Reply::Data { value, .. } => value.into()
}

call! {
    /// Sends to the PE with this rank a message of at most [`MAX_MESSAGE`] bytes. The reply says that
    /// the node agent has taken it, which does not mean that it has been received. An extension.
    SendTo<'a>(to: u32, message: &'a [u8]) -> (),
    terms => {
        terms.need_extensions(Verb::Send)?;
        Command::Send { to, value: terms.data("send", message, MAX_MESSAGE)? }
    },
    Reply::Sent => ()
}

call! {
    /// Receives the next message that the PE with this rank sends to this one; refused if that PE ends
    /// without sending one. An extension.
    ReceiveFrom(from: u32) -> Vec<u8>,
    terms => {
        terms.need_extensions(Verb::Receive)?;
        Command::Receive { from }
    },
    Reply::Received(message) => message.into()
}

call! {
    /// Takes leave: the last call.
    Finalize -> (),
    _ => Command::Finalize,
    Reply::Finalize => ()
}
