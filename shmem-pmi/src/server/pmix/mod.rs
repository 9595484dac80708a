//! Joins the PMIx servers of a job's nodes: the part of a node agent that programs use when they speak PMIx.
//!
//! A node's libpmix serves its processes by itself, as far as it can. What it asks its host for is here: to
//! join a fence with other nodes, and to get what a process of another node has put (direct modex).

mod message;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

pub use super::groups::Part;
pub use message::{Malformed, Message};

use super::groups::{Given, Groups, Joined, Name};
use super::{LinkName, NodePlace, TreeLink};
use crate::ranks::RankSet;

/// PMIx's status for what went well.
pub const SUCCESS: i32 = 0;

/// PMIx's status for what is not there.
pub const NOT_FOUND: i32 = -46;

/// Most bytes that all may give to a fence: what is longer fits no frame of a link.
pub const MAX_DATA: usize = 128 << 20;

/// What is to be done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send a message to the parent agent.
    ToParent(Arc<Vec<u8>>),
    /// Send a message to a child agent; one buffer for all children.
    ToChild {
        /// Index of the child.
        child: usize,
        /// The message.
        bytes: Arc<Vec<u8>>,
    },
    /// A fence that the node's PMIx server has joined is complete.
    Fenced {
        /// The server's number for it.
        id: u64,
        /// PMIx's status.
        status: i32,
        /// What all have given, node after node.
        data: Vec<u8>,
    },
    /// Ask the node's PMIx server for what a process of this node has put; the answer goes to
    /// [`PmixNode::put_by`].
    Lookup {
        /// Number of the question.
        id: u64,
        /// The process that has put it.
        rank: u32,
    },
    /// What a process of another node has put, or why not.
    Fetched {
        /// The server's number for its question.
        id: u64,
        /// PMIx's status.
        status: i32,
        /// What the process has put.
        data: Vec<u8>,
    },
    /// The job cannot go on.
    Failed(String),
}

/// Why a message from another agent cannot be used. The job cannot go on after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PmixError {
    /// The bytes are no message.
    #[error("link to {link}: {source}")]
    Malformed {
        /// Name of the link.
        link: LinkName,
        /// What is wrong with them.
        source: Malformed,
    },
    /// A message that does not follow from those before it.
    #[error("link to {link}: a PMIx fence of PEs {ranks} that is not expected")]
    OutOfStep {
        /// Name of the link.
        link: LinkName,
        /// Whom it is of.
        ranks: String,
    },
    /// A message in a direction in which it does not go.
    #[error("link to {link}: a PMIx message that goes the other way")]
    Direction {
        /// Name of the link.
        link: LinkName,
    },
}

/// The machine. After each call that gives it something, [`PmixNode::poll_output`] says what to do.
#[derive(Debug)]
pub struct PmixNode {
    fences: Groups,
    has_parent: bool,
    /// Questions that the node's own server has not answered: who has asked, and its number.
    asked: HashMap<u64, (u32, u64)>,
    next_id: u64,
    outputs: VecDeque<Output>,
}

impl PmixNode {
    /// The machine of an agent with this place in the tree.
    pub fn new(place: &NodePlace) -> Self {
        Self {
            fences: Groups::new(place),
            has_parent: place.has_parent,
            asked: HashMap::new(),
            next_id: 0,
            outputs: VecDeque::new(),
        }
    }

    /// What to do next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The node's server joins a fence of `ranks`, which is number `id` for it, and gives `data`.
    pub fn join(&mut self, id: u64, ranks: RankSet, data: Vec<u8>) {
        if ranks.common(&self.fences.own).is_none() {
            let status = NOT_FOUND;
            let data = Vec::new();
            return self.outputs.push_back(Output::Fenced { id, status, data });
        }
        let (name, status) = ((ranks, 0), SUCCESS);
        let joined = self.fences.join(&name, id, Given { status, data });
        self.joined(&name, joined);
    }

    /// The node's server asks, by its number `id`, for what the process `rank` of another node has put.
    pub fn fetch(&mut self, id: u64, rank: u32) {
        match self.fences.own.first() {
            Some(asker) => self.ask(asker, id, rank),
            None => self.answer_own(id, NOT_FOUND, Vec::new()),
        }
    }

    /// The answer of the node's server to [`Output::Lookup`].
    pub fn put_by(&mut self, id: u64, status: i32, data: Vec<u8>) {
        if let Some((asker, ticket)) = self.asked.remove(&id) {
            self.answer(asker, ticket, status, data);
        }
    }

    /// A whole message came from another agent.
    ///
    /// # Errors
    ///
    /// The bytes are no message, or one that cannot follow on those before.
    pub fn handle_tree(&mut self, from: TreeLink, bytes: &[u8]) -> Result<(), PmixError> {
        let link = LinkName(from);
        let malformed = |source| PmixError::Malformed { link, source };
        match (Message::decode(bytes).map_err(malformed)?, from) {
            (Message::Joined { fence }, TreeLink::Child(child)) => {
                let name = name_of(&fence, bytes).map_err(malformed)?;
                let joined = self.fences.child_joins(child, &name, given(&fence));
                let joined = joined.map_err(|()| out_of_step(link, &name))?;
                self.joined(&name, joined);
            }
            (Message::Complete { fence }, TreeLink::Parent) => {
                let name = name_of(&fence, bytes).map_err(malformed)?;
                if !self.end(&name, given(&fence)) {
                    return Err(out_of_step(link, &name));
                }
            }
            (
                Message::Ask {
                    asker,
                    ticket,
                    rank,
                },
                _,
            ) => self.ask(asker, ticket, rank),
            (
                Message::Answer {
                    asker,
                    ticket,
                    status,
                    data,
                },
                _,
            ) => self.answer(asker, ticket, status, data.to_vec()),
            _ => return Err(PmixError::Direction { link }),
        }
        Ok(())
    }

    /// This node or a child has joined a fence, with which all below may have.
    fn joined(&mut self, name: &Name, joined: Option<Joined>) {
        let (Some(Joined::Up(given)) | Some(Joined::Complete(given))) = &joined else {
            return;
        };
        if given.data.len() > MAX_DATA {
            let text = format!(
                "the processes of the job give more than {} MiB to one fence of PMIx",
                MAX_DATA >> 20
            );
            return self.outputs.push_back(Output::Failed(text));
        }
        match joined {
            Some(Joined::Up(given)) => {
                let fence = Part::new(&name.0, name.1, given.status, &given.data);
                let bytes = Message::Joined { fence }.encode();
                self.outputs.push_back(Output::ToParent(bytes.into()));
            }
            Some(Joined::Complete(given)) => {
                self.end(name, given);
            }
            None => {}
        }
    }

    /// The first fence of that name is complete. False if there is none that could be.
    fn end(&mut self, name: &Name, given: Given) -> bool {
        let Some(ended) = self.fences.end(name) else {
            return false;
        };
        let Given { status, data } = given;
        // The way down is the longer one.
        if !ended.children.is_empty() {
            let fence = Part::new(&name.0, name.1, status, &data);
            let bytes = Arc::new(Message::Complete { fence }.encode());
            for child in ended.children {
                let bytes = Arc::clone(&bytes);
                self.outputs.push_back(Output::ToChild { child, bytes });
            }
        }
        if let Some(id) = ended.own {
            self.outputs.push_back(Output::Fenced { id, status, data });
        }
        true
    }

    fn ask(&mut self, asker: u32, ticket: u64, rank: u32) {
        if self.fences.own.contains(rank) {
            let id = self.next_id;
            self.next_id += 1;
            self.asked.insert(id, (asker, ticket));
            return self.outputs.push_back(Output::Lookup { id, rank });
        }
        let question = Message::Ask {
            asker,
            ticket,
            rank,
        };
        if !self.send_towards(rank, &question) {
            self.answer(asker, ticket, NOT_FOUND, Vec::new());
        }
    }

    fn answer(&mut self, asker: u32, ticket: u64, status: i32, data: Vec<u8>) {
        if self.fences.own.contains(asker) {
            return self.answer_own(ticket, status, data);
        }
        let data = &data[..];
        let answer = Message::Answer {
            asker,
            ticket,
            status,
            data,
        };
        // Nobody asks whom the answer does not reach.
        self.send_towards(asker, &answer);
    }

    fn answer_own(&mut self, id: u64, status: i32, data: Vec<u8>) {
        self.outputs.push_back(Output::Fetched { id, status, data });
    }

    /// Sends a message to the next agent on the way to that of a PE. False if the job has no such PE.
    fn send_towards(&mut self, rank: u32, message: &Message<'_>) -> bool {
        let below = self
            .fences
            .children
            .iter()
            .position(|set| set.contains(rank));
        let output = match below {
            Some(child) => Output::ToChild {
                child,
                bytes: Arc::new(message.encode()),
            },
            None if self.has_parent => Output::ToParent(Arc::new(message.encode())),
            None => return false,
        };
        self.outputs.push_back(output);
        true
    }

    /// A number that differs when [`PmixNode::waits_for`] may say something else.
    pub fn version(&self) -> u64 {
        self.fences.version()
    }

    /// A PE for which others wait in a fence though it will not come: one of this node of which
    /// `is_gone` says that it has ended, or one below a child of which `is_empty` says that all there have.
    pub fn waits_for(
        &self,
        is_gone: impl Fn(u32) -> bool,
        is_empty: impl Fn(usize) -> bool,
    ) -> Option<u32> {
        self.fences.waits_for(is_gone, is_empty)
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.fences.is_idle() && self.asked.is_empty()
    }
}

fn name_of(fence: &Part<'_>, bytes: &[u8]) -> Result<Name, Malformed> {
    let ranks = fence.ranks().ok_or(Malformed(bytes.len()))?;
    Ok((ranks, fence.tag))
}

fn given(fence: &Part<'_>) -> Given {
    Given {
        status: fence.status,
        data: fence.data.to_vec(),
    }
}

fn out_of_step(link: LinkName, name: &Name) -> PmixError {
    let ranks = name.0.to_string();
    PmixError::OutOfStep { link, ranks }
}

#[cfg(test)]
mod tests;
