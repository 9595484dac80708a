//! Joins the PMIx servers of a job's nodes: the part of a node agent that programs use when they speak PMIx.
//!
//! A node's libpmix serves its processes by itself, as far as it can. What it asks its host for is here: to
//! join a fence with other nodes, and to get what a process of another node has put (direct modex).
//!
//! A fence is of any set of processes. Once all of a node who belong to it have joined, libpmix gives what
//! they have put; an agent adds what comes from below, and passes it up, until an agent has below it all
//! whom the fence is of. From there it goes down again, to those nodes only. Fences of the same set are
//! told apart by their order, which is the same everywhere: nobody joins the second before the first.

mod message;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

pub use message::{Malformed, Message, Part};

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
        /// Whose.
        rank: u32,
    },
    /// What a process of another node has put, or why not.
    Fetched {
        /// The server's number for its question.
        id: u64,
        /// PMIx's status.
        status: i32,
        /// It.
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

/// A fence of which the end has not come.
#[derive(Debug)]
struct Fence {
    /// What has come: from this node, and from each child.
    parts: Vec<Option<Vec<u8>>>,
    /// How many of those have not come that will.
    missing: usize,
    status: i32,
    /// This node's number for it, if it belongs to it.
    own: Option<u64>,
}

impl Fence {
    /// Whether all below have joined, and the end has to come from above.
    fn is_up(&self) -> bool {
        self.missing == 0
    }
}

/// The machine. After each call that gives it something, [`PmixNode::poll_output`] says what to do.
#[derive(Debug)]
pub struct PmixNode {
    own: RankSet,
    children: Vec<RankSet>,
    subtree: RankSet,
    has_parent: bool,
    /// By whom they are of; those of the same in order.
    fences: HashMap<RankSet, VecDeque<Fence>>,
    /// Questions that the node's own server has not answered: who has asked, and its number.
    asked: HashMap<u64, (u32, u64)>,
    next_id: u64,
    outputs: VecDeque<Output>,
    /// Counts what has changed among the fences.
    version: u64,
}

impl PmixNode {
    /// The machine of an agent with this place in the tree.
    pub fn new(place: &NodePlace) -> Self {
        let own: RankSet = place.ranks.iter().copied().collect();
        let sets = std::iter::once(&own).chain(&place.children);
        let all = sets.clone().flat_map(RankSet::iter);
        let subtree = RankSet::disjoint_union(sets.clone());
        Self {
            subtree: subtree.unwrap_or_else(|_| all.collect()),
            own,
            children: place.children.clone(),
            has_parent: place.has_parent,
            fences: HashMap::new(),
            asked: HashMap::new(),
            next_id: 0,
            outputs: VecDeque::new(),
            version: 0,
        }
    }

    /// What to do next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The node's server joins a fence of `ranks`, which is number `id` for it, and gives `data`.
    pub fn join(&mut self, id: u64, ranks: RankSet, data: Vec<u8>) {
        if ranks.common(&self.own).is_none() {
            let status = NOT_FOUND;
            let data = Vec::new();
            return self.outputs.push_back(Output::Fenced { id, status, data });
        }
        self.add(None, ranks, Some(id), (SUCCESS, data));
    }

    /// The node's server asks, by its number `id`, for what the process `rank` of another node has put.
    pub fn fetch(&mut self, id: u64, rank: u32) {
        match self.own.first() {
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
    /// When it is none, or cannot follow on those before.
    pub fn handle_tree(&mut self, from: TreeLink, bytes: &[u8]) -> Result<(), PmixError> {
        let link = LinkName(from);
        let malformed = |source| PmixError::Malformed { link, source };
        match (Message::decode(bytes).map_err(malformed)?, from) {
            (Message::Joined { fence }, TreeLink::Child(child)) => {
                let ranks = fence.ranks().map_err(malformed)?;
                let expected = self.children.get(child).and_then(|c| c.common(&ranks));
                if expected.is_none() {
                    let ranks = ranks.to_string();
                    return Err(PmixError::OutOfStep { link, ranks });
                }
                let given = (fence.status, fence.data.to_vec());
                self.add(Some(child), ranks, None, given);
            }
            (Message::Complete { fence }, TreeLink::Parent) => {
                let ranks = fence.ranks().map_err(malformed)?;
                let up = self.fences.get(&ranks).and_then(VecDeque::front);
                if !up.is_some_and(Fence::is_up) {
                    let ranks = ranks.to_string();
                    return Err(PmixError::OutOfStep { link, ranks });
                }
                self.complete(&ranks, fence.status, fence.data.to_vec());
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

    /// This node or a child has joined a fence.
    fn add(
        &mut self,
        child: Option<usize>,
        ranks: RankSet,
        id: Option<u64>,
        (status, data): (i32, Vec<u8>),
    ) {
        self.version += 1;
        let slot = child.map_or(0, |child| child + 1);
        let open = self.fences.entry(ranks.clone()).or_default();
        let first = open.iter().position(|fence| fence.parts[slot].is_none());
        let at = first.unwrap_or_else(|| {
            let all = std::iter::once(&self.own).chain(&self.children);
            open.push_back(Fence {
                missing: all.filter(|set| set.common(&ranks).is_some()).count(),
                parts: vec![None; 1 + self.children.len()],
                status: SUCCESS,
                own: None,
            });
            open.len() - 1
        });
        let fence = &mut open[at];
        fence.parts[slot] = Some(data);
        fence.missing -= 1;
        fence.own = fence.own.or(id);
        if fence.status == SUCCESS {
            fence.status = status;
        }
        if !fence.is_up() {
            return;
        }
        let status = fence.status;
        // The memory that each has given is free from here on.
        let parts = fence.parts.iter_mut().flatten();
        let data = parts.map(std::mem::take).collect::<Vec<_>>().concat();
        if data.len() > MAX_DATA {
            let text = format!(
                "the processes of the job give more than {} MiB to one fence of PMIx",
                MAX_DATA >> 20
            );
            return self.outputs.push_back(Output::Failed(text));
        }
        if self.has_parent && !ranks.is_within(&self.subtree) {
            let fence = Part::new(&ranks, status, &data);
            let bytes = Message::Joined { fence }.encode();
            self.outputs.push_back(Output::ToParent(bytes.into()));
        } else {
            self.complete(&ranks, status, data);
        }
    }

    /// The first fence of these is complete.
    fn complete(&mut self, ranks: &RankSet, status: i32, data: Vec<u8>) {
        self.version += 1;
        let Some(open) = self.fences.get_mut(ranks) else {
            return;
        };
        let own = open.pop_front().and_then(|fence| fence.own);
        if open.is_empty() {
            self.fences.remove(ranks);
        }
        // The way down is the longer one.
        let mut message = None;
        for (child, below) in self.children.iter().enumerate() {
            if below.common(ranks).is_none() {
                continue;
            }
            let bytes = message.get_or_insert_with(|| {
                let fence = Part::new(ranks, status, &data);
                Arc::new(Message::Complete { fence }.encode())
            });
            let bytes = Arc::clone(bytes);
            self.outputs.push_back(Output::ToChild { child, bytes });
        }
        if let Some(id) = own {
            self.outputs.push_back(Output::Fenced { id, status, data });
        }
    }

    fn ask(&mut self, asker: u32, ticket: u64, rank: u32) {
        if self.own.contains(rank) {
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
        if self.own.contains(asker) {
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
        let below = self.children.iter().position(|set| set.contains(rank));
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
        self.version
    }

    /// A PE for which others wait in a fence though it will not come: one of this node of which
    /// `is_gone` says that it has ended, or one below a child of which `is_empty` says that all there have.
    pub fn waits_for(
        &self,
        is_gone: impl Fn(u32) -> bool,
        is_empty: impl Fn(usize) -> bool,
    ) -> Option<u32> {
        let waiting = |(ranks, open): (&RankSet, &VecDeque<Fence>)| {
            let fence = open.iter().find(|fence| !fence.is_up())?;
            let own = || {
                let missing = fence.parts[0].is_none();
                let mut here = self.own.iter().filter(|&rank| ranks.contains(rank));
                here.find(|&rank| missing && is_gone(rank))
            };
            let below = || {
                let mut below = self.children.iter().enumerate();
                below.find_map(|(child, set)| {
                    let missing = fence.parts[child + 1].is_none() && is_empty(child);
                    set.common(ranks).filter(|_| missing)
                })
            };
            own().or_else(below)
        };
        self.fences.iter().filter_map(waiting).min()
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.fences.is_empty() && self.asked.is_empty()
    }
}

#[cfg(test)]
mod tests;
