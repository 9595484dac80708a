//! The calls, each described once: what it is made of, as which command of PMI-2 it is sent, and what
//! its reply is. How PMI-1 says the same, where it can, is in `v1`.

use super::error::{ClientError, RequestId};
use super::text::{self, Rule};
use crate::question::SpawnRequest;
use crate::wire::data::{MAX_CONTRIBUTION, MAX_MESSAGE, Operation};
use crate::wire::v2::{Command, Reply};
use crate::wire::{MAX_ALLGATHER_VALUE, MAX_KEY, MAX_VALUE};

/// A call of a [`super::Client`].
pub trait Call {
    /// What it gives.
    type Reply: Send + 'static;

    /// The command that is sent for it.
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

    fn need_extensions(&self, command: &'static str) -> Result<(), ClientError> {
        match self.extensions {
            true => Ok(()),
            false => Err(ClientError::NoExtensions { command }),
        }
    }

    fn gather(&self, command: &'static str, value: &[u8]) -> Result<Bytes, ClientError> {
        self.need_extensions(command)?;
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

/// The reply that belongs to a call, and what it gives.
macro_rules! reply {
    ($reply:pat => $gives:expr) => {
        fn reply(reply: Reply<'_>) -> Option<Self::Reply> {
            match reply {
                $reply => Some($gives),
                _ => None,
            }
        }
    };
}

/// Introduces this PE; the first call, and only once.
#[derive(Debug, Clone, Copy)]
pub struct Initialise;

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

impl Call for Initialise {
    type Reply = Initialised;

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        Ok(Command::FullInit {
            job_id: None,
            rank: None,
            threaded: terms.extensions,
        })
    }

    reply!(Reply::FullInit(facts) => Initialised {
        rank: facts.rank,
        size: facts.size,
        appnum: facts.appnum,
        spawner: facts.spawner.map(Into::into),
        restarts: facts.restarts,
        first_request: RequestId(facts.first_request),
    });
}

/// Asks for the job's id; with PMI-1 the name of its key-value space.
#[derive(Debug, Clone, Copy)]
pub struct JobId;

impl Call for JobId {
    type Reply = String;

    fn command(&self, _: &Terms) -> Result<Command<'static>, ClientError> {
        Ok(Command::JobGetId)
    }

    reply!(Reply::JobId(id) => id.into_owned());
}

/// Asks for the job attribute with this name: gives its value, if there is one.
#[derive(Debug, Clone, Copy)]
pub struct JobAttr<'a>(pub &'a str);

impl Call for JobAttr<'_> {
    type Reply = Option<Vec<u8>>;

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        let key = terms.key(self.0)?;
        Ok(Command::JobAttr { key })
    }

    reply!(Reply::JobAttr(value) => value.map(Into::into));
}

/// Publishes a key and its value to the PEs of this node. Not with PMI-1.
#[derive(Debug, Clone, Copy)]
pub struct PutNodeAttr<'a>(pub &'a str, pub &'a [u8]);

impl Call for PutNodeAttr<'_> {
    type Reply = ();

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        let (key, value) = (terms.key(self.0)?, terms.value(self.1)?);
        Ok(Command::PutNodeAttr { key, value })
    }

    reply!(Reply::NodeAttrPut => ());
}

/// Asks for the value of a node attribute. Not with PMI-1.
#[derive(Debug, Clone, Copy)]
pub struct NodeAttr<'a> {
    /// Its name.
    pub key: &'a str,
    /// Whether to wait until some PE of this node has put it.
    pub wait: bool,
}

impl Call for NodeAttr<'_> {
    type Reply = Option<Vec<u8>>;

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        let (key, wait) = (terms.key(self.key)?, self.wait);
        Ok(Command::NodeAttr { key, wait })
    }

    reply!(Reply::NodeAttr(value) => value.map(Into::into));
}

/// Puts a key and its value, which the next fence makes visible.
#[derive(Debug, Clone, Copy)]
pub struct Put<'a>(pub &'a str, pub &'a [u8]);

impl Call for Put<'_> {
    type Reply = ();

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        let (key, value) = (terms.key(self.0)?, terms.value(self.1)?);
        Ok(Command::KvsPut { key, value })
    }

    reply!(Reply::KvsPut => ());
}

/// Gets the visible value of this key, if there is one.
#[derive(Debug, Clone, Copy)]
pub struct Get<'a>(pub &'a str);

impl Call for Get<'_> {
    type Reply = Option<Vec<u8>>;

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        Ok(Command::KvsGet {
            job_id: None,
            source: -1,
            key: terms.key(self.0)?,
            direct: false,
        })
    }

    reply!(Reply::KvsGet(value) => value.map(Into::into));
}

/// Gets the value of a key from the PE that puts it, as soon as it has put it: no fence is needed
/// (direct exchange). Refused if that PE ends without putting it. An extension.
#[derive(Debug, Clone, Copy)]
pub struct GetFrom<'a> {
    /// Rank of the PE that puts it.
    pub owner: u32,
    /// The key.
    pub key: &'a str,
}

impl Call for GetFrom<'_> {
    type Reply = Vec<u8>;

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        terms.need_extensions("kvs-get")?;
        Ok(Command::KvsGet {
            job_id: None,
            source: self.owner.into(),
            key: terms.key(self.key)?,
            direct: true,
        })
    }

    reply!(Reply::KvsGet(Some(value)) => value.into());
}

/// Makes all puts of all PEs visible. Collective.
#[derive(Debug, Clone, Copy)]
pub struct Fence;

impl Call for Fence {
    type Reply = ();

    fn command(&self, _: &Terms) -> Result<Command<'static>, ClientError> {
        Ok(Command::KvsFence)
    }

    reply!(Reply::KvsFence => ());
}

/// Starts a fence, for [`Wait`]. Collective. The reply, which need not be awaited, is its number:
/// [`super::Client::next_request`] before the call.
///
/// Works with every server: without extensions a plain fence is sent, and what is called later is
/// held back until it is complete.
#[derive(Debug, Clone, Copy)]
pub struct Ifence;

impl Call for Ifence {
    type Reply = RequestId;

    fn command(&self, _: &Terms) -> Result<Command<'static>, ClientError> {
        Ok(Command::Ifence)
    }

    reply!(Reply::Ifence(request) => RequestId(request));
}

/// Starts an allgather of a value, which must be equally long on all PEs. Collective. The reply is as
/// for [`Ifence`]. An extension.
#[derive(Debug, Clone, Copy)]
pub struct Iallgather<'a>(pub &'a [u8]);

impl Call for Iallgather<'_> {
    type Reply = RequestId;

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        let value = terms.gather("iallgather", self.0)?;
        Ok(Command::Iallgather { value })
    }

    reply!(Reply::Iallgather(request) => RequestId(request));
}

/// An allgather of a value, which must be equally long on all PEs. Collective. An extension.
#[derive(Debug, Clone, Copy)]
pub struct Allgather<'a>(pub &'a [u8]);

impl Call for Allgather<'_> {
    type Reply = ();

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        let value = terms.gather("allgather", self.0)?;
        Ok(Command::Allgather { value })
    }

    reply!(Reply::Allgather(_) => ());
}

/// Asks to be told when an operation that this PE has started is complete; refused if the operation
/// failed.
#[derive(Debug, Clone, Copy)]
pub struct Wait(pub RequestId);

impl Call for Wait {
    type Reply = ();

    fn command(&self, _: &Terms) -> Result<Command<'static>, ClientError> {
        let RequestId(request) = self.0;
        Ok(Command::Wait { request })
    }

    reply!(Reply::Wait(_) => ());
}

/// Publishes a service name, and where it is to be found, for other jobs.
#[derive(Debug, Clone, Copy)]
pub struct Publish<'a>(pub &'a str, pub &'a [u8]);

impl Call for Publish<'_> {
    type Reply = ();

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        let (name, port) = (terms.service(self.0)?, terms.value(self.1)?);
        Ok(Command::NamePublish { name, port })
    }

    reply!(Reply::NamePublished => ());
}

/// Asks where this service is to be found; refused if nobody has published it.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a>(pub &'a str);

impl Call for Lookup<'_> {
    type Reply = Vec<u8>;

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        let name = terms.service(self.0)?;
        Ok(Command::NameLookup { name })
    }

    reply!(Reply::NameFound(port) => port.into());
}

/// Takes a service name back.
#[derive(Debug, Clone, Copy)]
pub struct Unpublish<'a>(pub &'a str);

impl Call for Unpublish<'_> {
    type Reply = ();

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        let name = terms.service(self.0)?;
        Ok(Command::NameUnpublish { name })
    }

    reply!(Reply::NameUnpublished => ());
}

/// Starts another job. What cannot be sent is refused.
#[derive(Debug, Clone, Copy)]
pub struct Spawn<'a>(pub &'a SpawnRequest);

/// A job that was started on behalf of this PE.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spawned {
    /// Its id, if the server tells.
    pub job_id: Option<String>,
    /// For each of its processes 0 or an error; empty stands for zeros.
    pub errcodes: Vec<i32>,
}

impl Call for Spawn<'_> {
    type Reply = Spawned;

    fn command(&self, _: &Terms) -> Result<Command<'static>, ClientError> {
        Ok(Command::Spawn(self.0.clone()))
    }

    reply!(Reply::Spawned { job_id, errcodes } => Spawned {
        job_id: job_id.map(Into::into),
        errcodes,
    });
}

/// Puts the PEs in a ring and asks for the values of the neighbours (`PMIX_Ring`). Collective. For
/// servers that know it, which nothing but their documentation tells: ours with extensions, and
/// Slurm's with PMI-2; others end the job, or never answer.
#[derive(Debug, Clone, Copy)]
pub struct Ring<'a>(pub &'a [u8]);

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

impl Call for Ring<'_> {
    type Reply = Neighbours;

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        let value = terms.value(self.0)?;
        Ok(Command::Ring {
            count: 1,
            left: value.clone(),
            right: value,
        })
    }

    reply!(Reply::Ring(ring) => Neighbours {
        rank: ring.rank,
        size: ring.size,
        left: ring.left.into(),
        right: ring.right.into(),
    });
}

/// A collective operation with data of any length, see [`crate::wire::data`]: gives what this PE gets.
/// An extension.
#[derive(Debug, Clone, Copy)]
pub struct Data<'a> {
    /// Which one.
    pub operation: Operation,
    /// Rank of its root; 0 where there is none.
    pub root: u32,
    /// What this PE brings, at most [`MAX_CONTRIBUTION`] bytes.
    pub value: &'a [u8],
}

impl Call for Data<'_> {
    type Reply = Vec<u8>;

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        terms.need_extensions("nla")?;
        Ok(Command::Data {
            operation: self.operation,
            root: self.root,
            value: terms.data(self.operation.name(), self.value, MAX_CONTRIBUTION)?,
            more: false,
        })
    }

    reply!(Reply::Data { value, .. } => value.into());
}

/// Sends a message of at most [`MAX_MESSAGE`] bytes to a PE. The reply says that the node agent has
/// taken it, which does not mean that it has been received. An extension.
#[derive(Debug, Clone, Copy)]
pub struct SendTo<'a> {
    /// Rank of the receiver.
    pub to: u32,
    /// The message.
    pub message: &'a [u8],
}

impl Call for SendTo<'_> {
    type Reply = ();

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        terms.need_extensions("nla-send")?;
        let value = terms.data("send", self.message, MAX_MESSAGE)?;
        Ok(Command::Send { to: self.to, value })
    }

    reply!(Reply::Sent => ());
}

/// Receives the next message that the PE with this rank sends to this one; refused if that PE ends
/// without sending one. An extension.
#[derive(Debug, Clone, Copy)]
pub struct ReceiveFrom(pub u32);

impl Call for ReceiveFrom {
    type Reply = Vec<u8>;

    fn command(&self, terms: &Terms) -> Result<Command<'static>, ClientError> {
        terms.need_extensions("nla-recv")?;
        Ok(Command::Receive { from: self.0 })
    }

    reply!(Reply::Received(message) => message.into());
}

/// Takes leave: the last call.
#[derive(Debug, Clone, Copy)]
pub struct Finalize;

impl Call for Finalize {
    type Reply = ();

    fn command(&self, _: &Terms) -> Result<Command<'static>, ClientError> {
        Ok(Command::Finalize)
    }

    reply!(Reply::Finalize => ());
}
