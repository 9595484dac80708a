//! The server of one node: the part of a node launch agent that speaks PMI with the PEs of its node
//! and joins their collective operations with those of other nodes.
//!
//! * `session`: one connection to a PE, and the commands.
//! * `collective`: fences and allgathers, from the first contribution to the result.
//! * `operation`: one of them, until all have joined it.
//! * `passing`: the result of an allgather on its way through, forwarded before all of it is here.
//! * `outbox`: what the driver has to do.
//! * `groups`: fences of any set of PEs; `barriers`: those of PMI-1.2.
//! * `attributes`: those of the node.
//! * `kvs`: puts, gets, and what a fence makes visible; `cache`: the pairs that the agent holds.
//! * `data`: collective operations with data of any length; `exchange`: what one PE gives to one other.
//! * `ring`: the scan by which PEs find their neighbours.
//! * `relay`: questions and answers between the agents of single PEs.
//! * [`pmix`]: the same for programs that speak PMIx, with libpmix as the server of a node.
//! * `place`: what a server has to know of the job and of its place in the tree.

mod attributes;
mod barriers;
pub(crate) mod cache;
mod collective;
mod data;
mod exchange;
mod groups;
mod kvs;
mod operation;
mod outbox;
mod passing;
mod place;
pub mod pmix;
mod relay;
mod ring;
mod session;
mod shared;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

pub use cache::{CachePolicy, MapStore, NodeStore, StoreFull};
pub use place::{ConfigError, Job, NodePlace};
pub use shared::Shared;

use crate::question::Question;
use crate::ranks::RankSet;
use crate::wire::tree::{Body, Decoder as TreeDecoder, Direction, Message, TreeWireError};
use attributes::Attributes;
use barriers::Barriers;
use cache::whole::Cache;
use collective::Operations;
use exchange::Exchange;
use outbox::Outbox;
use relay::Asking;
use session::Session;

/// The link over which a message of the agent tree came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeLink {
    /// From the parent.
    Parent,
    /// From the child with this index, in the order of [`NodePlace::children`].
    Child(usize),
}

/// What the driver has to do. Take them in order: a result is published before the PEs that wait
/// for it are told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Send bytes to a PE. All replies to a PE that are due are in one piece.
    ToClient {
        /// Index of the PE on its node.
        local: usize,
        /// What to send.
        bytes: Vec<u8>,
    },
    /// Send bytes to the parent agent.
    ToParent(Arc<Vec<u8>>),
    /// Send bytes to a child agent; they are one shared buffer for all children. A message may come
    /// in several pieces.
    ToChild {
        /// Index of the child.
        child: usize,
        /// What to send.
        bytes: Arc<Vec<u8>>,
    },
    /// Values of an allgather have come: store them for the PEs of this node. Pieces come in order
    /// and without gaps, from offset 0 to the last, which completes the operation; until then no PE
    /// may see them.
    Publish {
        /// Number of the operation.
        request: u64,
        /// Length of each value in bytes.
        value_len: usize,
        /// Where this piece belongs among the `size * value_len` bytes of all values, which stand
        /// in the order of ranks. A piece may begin and end inside a value.
        offset: usize,
        /// The piece.
        values: Shared,
        /// Whether this was the last piece.
        last: bool,
    },
    /// A question for the launcher; only at the root. [`NodeServer::handle_answer`] takes the answer.
    Ask {
        /// The PE that asks.
        asker: u32,
        /// Number that the agent of that PE has for the question; the answer repeats the PE and the number.
        ticket: u64,
        /// What is asked.
        question: Question,
    },
    /// A PE asks for the end of the job.
    Abort {
        /// Index of the PE on its node.
        local: usize,
        /// Exit status that it asks for; 1 if it names none.
        exit_code: i32,
        /// What the PE says to it; may be empty.
        message: String,
    },
    /// A PE has finalized and got its reply; from now on it may close and exit freely.
    Finalized {
        /// Index of the PE on its node.
        local: usize,
    },
    /// A PE closed its connection after init and without finalize: collective operations that it
    /// has not joined will never complete.
    Lost {
        /// Index of the PE on its node.
        local: usize,
    },
    /// A PE does not speak the protocol. Nothing more is read from it; other PEs are not affected.
    ProtocolError {
        /// Index of the PE on its node.
        local: usize,
        /// What is wrong, for the user.
        text: String,
    },
}

/// Why bytes from another agent cannot be used. The job cannot go on after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The bytes are no messages.
    #[error("link to {link}: {source}")]
    Wire {
        /// Name of the link.
        link: LinkName,
        /// What is wrong with them.
        source: TreeWireError,
    },
    /// There is no such link.
    #[error("message from {link}, which this agent does not have")]
    NoSuchLink {
        /// Name of the link.
        link: LinkName,
    },
    /// A message that does not follow from the messages before it.
    #[error("link to {link}: message for operation {request}, expected {expected}")]
    OutOfStep {
        /// Name of the link.
        link: LinkName,
        /// Number of the operation in the message.
        request: u64,
        /// What was expected.
        expected: String,
    },
}

/// Why [`NodeServer::bring`] does not take what PEs bring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotBrought(String);

/// A [`TreeLink`] with a readable name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkName(pub TreeLink);

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            TreeLink::Parent => f.write_str("the parent agent"),
            TreeLink::Child(child) => write!(f, "child agent {child}"),
        }
    }
}

/// For whom an operation waits, as far as this agent can tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// PEs of this node that have not joined.
    pub local: RankSet,
    /// Children that have not reported: index, and all ranks below the child. Which of these are
    /// the late ones, the child knows.
    pub children: Vec<(usize, RankSet)>,
    /// All PEs below have been reported; the result has yet to come from the parent.
    pub parent: bool,
}

impl Missing {
    /// Whether nobody is missing: the operation is complete.
    pub fn is_empty(&self) -> bool {
        self.local.is_empty() && self.children.is_empty() && !self.parent
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if !self.local.is_empty() {
            write!(f, "PE {}", self.local)?;
            separator = "; ";
        }
        for (child, ranks) in &self.children {
            write!(f, "{separator}some of PE {ranks} below child agent {child}")?;
            separator = "; ";
        }
        if self.parent {
            write!(f, "{separator}nodes beyond the parent agent")?;
            separator = "; ";
        }
        if separator.is_empty() {
            f.write_str("nobody")?;
        }
        Ok(())
    }
}

/// The PMI server of one node, as a pure state machine.
///
/// Inputs are the `handle_*` methods and [`NodeServer::client_closed`]; after each, call
/// [`NodeServer::poll_output`] until it returns `None`. To batch, feed several inputs first: the
/// replies to one PE then leave in one piece. There is no clock in it; a driver that wants to know
/// why nothing happens asks [`NodeServer::who_is_missing`].
///
/// Collective operations are numbered by each PE's own count of them, and complete in that order
/// at every agent. The number of messages is one up and one down for each agent and operation,
/// however many PEs a node has; the work for one PE's contribution does not depend on their number.
/// Other caches than the default exchange more: see [`CachePolicy`].
#[derive(Debug)]
pub struct NodeServer {
    job: Job,
    place: NodePlace,
    sessions: Vec<Session>,
    operations: Operations,
    kvs: Box<dyn Cache>,
    attributes: Attributes,
    /// PEs of this node whose questions are under way, by ticket.
    asking: HashMap<u64, Asking>,
    next_ticket: u64,
    exchange: Exchange,
    barriers: Barriers,
    parent: TreeDecoder,
    children: Vec<TreeDecoder>,
    outbox: Outbox,
    /// PEs with replies to send, each once.
    dirty: VecDeque<usize>,
    /// PEs whose requests waited for a reply that is now there.
    resumed: Vec<usize>,
}

/// A request whose reply is withheld.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiter {
    local: usize,
    thread_id: Option<Box<[u8]>>,
    kind: WaitKind,
    /// Which of the PE's processes waits.
    life: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitKind {
    Attribute,
    Fence,
    Allgather,
    Wait,
    Data,
    Ring,
}

impl NodeServer {
    /// The server at `place` of `job`.
    ///
    /// # Errors
    ///
    /// The rank sets contradict each other or the size of the job.
    pub fn new(job: Job, place: NodePlace) -> Result<Self, ConfigError> {
        Self::with_store(job, place, Box::<MapStore>::default())
    }

    /// As [`NodeServer::new`], with the pairs of the key-value space in `store`, as far as this
    /// agent holds all that it gets; only under [`CachePolicy::Hcmab`] are these all there are.
    ///
    /// # Errors
    ///
    /// As for [`NodeServer::new`].
    pub fn with_store(
        job: Job,
        place: NodePlace,
        store: Box<dyn NodeStore>,
    ) -> Result<Self, ConfigError> {
        let operations = Operations::new(&job, &place)?;
        let kvs = first_pairs(&job, &place, store);
        Ok(Self {
            sessions: place.ranks.iter().map(|&rank| Session::new(rank)).collect(),
            children: place.children.iter().map(|_| TreeDecoder::new()).collect(),
            parent: TreeDecoder::new(),
            operations,
            kvs,
            attributes: Attributes::default(),
            asking: HashMap::new(),
            next_ticket: 0,
            exchange: Exchange::default(),
            barriers: Barriers::new(&place),
            outbox: Outbox::default(),
            dirty: VecDeque::new(),
            resumed: Vec::new(),
            job,
            place,
        })
    }

    /// Keeps the pairs of the key-value space in `store`, as [`NodeServer::with_store`] does, which
    /// is empty; before the first input.
    pub fn use_store(&mut self, store: Box<dyn NodeStore>) {
        self.kvs = first_pairs(&self.job, &self.place, store);
    }

    /// The facts of the job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The place of this server in the tree.
    pub fn place(&self) -> &NodePlace {
        &self.place
    }

    /// The rank of a PE of this node.
    ///
    /// # Panics
    ///
    /// If `local` is not below the number of PEs of the node; so for all methods that take it.
    pub fn rank(&self, local: usize) -> u32 {
        self.sessions[local].rank()
    }

    /// Bytes came from a PE.
    ///
    /// Whatever they are, this does not fail: garbage ends in [`Output::ProtocolError`] for that PE.
    pub fn handle_client_bytes(&mut self, local: usize, bytes: &[u8]) {
        self.read_session(local, bytes);
    }

    /// The PEs of this node from the one at position `first` on bring a value of `value_len` bytes each to an
    /// allgather, without a connection of theirs. It is their next collective operation.
    ///
    /// # Errors
    ///
    /// There are not so many of them, values of that length cannot be, or they are too far ahead of the others.
    pub fn bring(
        &mut self,
        first: usize,
        value_len: usize,
        values: &[u8],
    ) -> Result<(), NotBrought> {
        self.join_for(first, value_len, values).map_err(NotBrought)
    }

    /// The connection of a PE has ended.
    pub fn client_closed(&mut self, local: usize) {
        self.close_session(local);
    }

    /// A PE whose connection has ended lives on, so nobody will take its place, though
    /// [`Job::respawn`] says that it is possible: who waits for a key or a message of it is told.
    pub fn will_not_return(&mut self, local: usize) {
        self.give_up_return(local);
    }

    /// The process of a PE has ended and another one is about to take its place: the next bytes of
    /// `local` are the beginning of a new connection.
    ///
    /// The new process has the same rank and begins as any other, except that the server goes on
    /// counting its collective operations: those that its predecessors joined stay joined, and its
    /// first is the next after them. (The reply to `init`, with PMI-2 to `fullinit`, tells that number
    /// to clients that want to know; see [`crate::wire::v1`], [`crate::wire::v2`].) What the dead process put and no fence covers is
    /// forgotten, unless the cache policy had sent it up already; what it published, and its
    /// attributes of the node, stay. Its unanswered requests get no reply.
    ///
    /// [`NodeServer::who_is_missing`] names the PE for an operation that none of its processes has
    /// joined. [`NodeServer::client_closed`] for the dead process belongs before this call; after
    /// it, it means the new one. A PE that has finalized may be started again, too; it is then told
    /// as [`Output::Finalized`] once more.
    pub fn restart(&mut self, local: usize) {
        self.restart_session(local);
    }

    /// Bytes came from another agent.
    ///
    /// # Errors
    ///
    /// The bytes are no messages, or messages that cannot follow on those before. Both mean that the
    /// agents do not understand each other, and the job cannot go on.
    pub fn handle_tree(&mut self, from: TreeLink, bytes: &[u8]) -> Result<(), TreeError> {
        let link = LinkName(from);
        let wire = |source| TreeError::Wire { link, source };
        self.tree_decoder(from)?;
        let mut rest = bytes;
        loop {
            if from == TreeLink::Parent {
                rest = self.pass_on(rest);
            }
            let decoder = self.tree_decoder(from)?;
            // Never more than one message at a time: what follows it may have to be passed on.
            let (part, later) = rest.split_at(rest.len().min(decoder.missing().map_err(wire)?));
            rest = later;
            decoder.push(part);
            if from == TreeLink::Parent
                && let Some(header) = decoder.take_result_header().map_err(wire)?
            {
                self.begin_passing(header)?;
            } else if let Some(bytes) = decoder.next_message().map_err(wire)? {
                self.message(from, bytes)?;
            } else if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// A whole message came from another agent.
    fn message(&mut self, from: TreeLink, bytes: Vec<u8>) -> Result<(), TreeError> {
        let link = LinkName(from);
        let message = Message::decode(&bytes).map_err(|source| TreeError::Wire { link, source })?;
        let ticket = message.request;
        match (message.body, from, message.direction) {
            (Body::Ask { asker, question }, TreeLink::Child(_), Direction::Up)
            | (Body::Ask { asker, question }, TreeLink::Parent, Direction::Down) => {
                return self.question(from, asker, ticket, question);
            }
            (Body::Answer { asker, answer }, TreeLink::Child(_), Direction::Up)
            | (Body::Answer { asker, answer }, TreeLink::Parent, Direction::Down) => {
                return self.answer_from(from, asker, ticket, answer);
            }
            (Body::Group(part), TreeLink::Child(_), Direction::Up)
            | (Body::Group(part), TreeLink::Parent, Direction::Down) => {
                return self.barrier_from(from, part);
            }
            (Body::Puts(pairs), TreeLink::Child(_), Direction::Up) => {
                self.puts_from_below(ticket, pairs);
                return Ok(());
            }
            _ => {}
        }
        match (from, message.direction) {
            (TreeLink::Child(child), Direction::Up) => self.contribution(child, &message),
            (TreeLink::Parent, Direction::Down) => self.result(bytes),
            (_, direction) => Err(TreeError::OutOfStep {
                link,
                request: message.request,
                expected: format!("the other direction than {direction:?}"),
            }),
        }
    }

    fn tree_decoder(&mut self, from: TreeLink) -> Result<&mut TreeDecoder, TreeError> {
        match from {
            TreeLink::Parent => self.place.has_parent.then_some(&mut self.parent),
            TreeLink::Child(child) => self.children.get_mut(child),
        }
        .ok_or(TreeError::NoSuchLink {
            link: LinkName(from),
        })
    }

    /// The next thing that the driver has to do, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        while let Some(local) = self.resumed.pop() {
            self.read_session(local, &[]);
        }
        if let Some(event) = self.outbox.pop() {
            return Some(event);
        }
        while let Some(local) = self.dirty.pop_front() {
            let (bytes, after) = self.sessions[local].take_replies();
            self.outbox.extend(after);
            if !bytes.is_empty() {
                return Some(Output::ToClient { local, bytes });
            }
            if let Some(event) = self.outbox.pop() {
                return Some(event);
            }
        }
        None
    }

    /// The oldest operation that has begun here and is not complete.
    pub fn oldest_incomplete(&self) -> Option<u64> {
        self.operations.oldest_incomplete()
    }

    /// Number of operations, of all kinds, that are complete at this agent.
    pub fn completed(&self) -> u64 {
        self.operations.completed()
    }

    /// For whom operation `request` waits. Cost is proportional to the PEs of the node.
    pub fn who_is_missing(&self, request: u64) -> Missing {
        if request < self.operations.completed() {
            return Missing::default();
        }
        let local: RankSet = self
            .sessions
            .iter()
            .filter(|session| session.started() <= request)
            .map(Session::rank)
            .collect();
        let children: Vec<_> = self
            .operations
            .late_children(&self.place, request)
            .collect();
        let parent = local.is_empty() && children.is_empty() && self.place.has_parent;
        Missing {
            local,
            children,
            parent,
        }
    }

    /// Whether nothing is under way: no operation, no withheld reply, no incomplete message, no
    /// output.
    pub fn is_idle(&self) -> bool {
        self.operations.is_idle()
            && self.outbox.is_idle()
            && self.dirty.is_empty()
            && self.attributes.is_idle()
            && self.asking.is_empty()
            && self.exchange.is_idle()
            && self.barriers.is_idle()
            && self.parent.pending() == 0
            && self.children.iter().all(|decoder| decoder.pending() == 0)
            && self.sessions.iter().all(Session::is_idle)
    }
}

/// The pairs that a server has before any is put.
fn first_pairs(job: &Job, place: &NodePlace, store: Box<dyn NodeStore>) -> Box<dyn Cache> {
    let mut kvs = job.cache.cache(!place.has_parent, store);
    for (key, value) in &job.preputs {
        kvs.insert(key, value);
    }
    kvs
}

#[cfg(test)]
mod tests;
