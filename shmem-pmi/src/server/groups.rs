//! Fences of any set of PEs: as PMIx has them, and the group barriers of PMI-1.2.
//!
//! Once all of a node who belong to one have joined it, the node joins it, with what they give. An agent adds
//! what comes from below, and passes it up, until it has below it all whom the fence is of. From there it goes
//! down again, to those nodes only. Fences of the same set with the same tag are told apart by their order,
//! which is the same everywhere: nobody joins the second before the first.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize, Serializer};

use super::NodePlace;
use crate::ranks::RankSet;

/// A fence on the wire, and what comes with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part<'a> {
    /// Ranks of those whom it is of, as runs.
    runs: Vec<Range<u32>>,
    /// Tells those of the same set apart that may be open at once.
    pub tag: u32,
    /// Status: that of the first who could not join as he should, or 0.
    pub status: i32,
    /// What was given, node after node.
    #[serde(serialize_with = "bytes")]
    pub data: &'a [u8],
}

/// As one run, which is quicker than byte by byte and the same.
pub(super) fn bytes<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

impl<'a> Part<'a> {
    /// Of a fence of `ranks`.
    pub fn new(ranks: &RankSet, tag: u32, status: i32, data: &'a [u8]) -> Self {
        Self {
            runs: ranks.runs().to_vec(),
            tag,
            status,
            data,
        }
    }

    /// The bytes of the message.
    pub(super) fn encode(&self) -> Vec<u8> {
        // Cannot fail: the type has no map, and no sequence of unknown length.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Reads all of the bytes.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (part, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(part)
    }

    /// Whom the fence is of; none if that is no set of ranks.
    pub fn ranks(&self) -> Option<RankSet> {
        RankSet::from_runs(&self.runs)
    }
}

/// A fence, among those that are open: whom it is of, and its tag.
pub(super) type Name = (RankSet, u32);

/// A fence of which the end has not come.
#[derive(Debug)]
struct Fence {
    /// What has come: from this node, and from each child.
    parts: Vec<Option<Vec<u8>>>,
    /// How many of those have not come that will.
    missing: usize,
    status: i32,
    /// Number that this node has for the fence, if the node belongs to it.
    own: Option<u64>,
}

impl Fence {
    /// Whether all below have joined, and the end has to come from above.
    fn is_up(&self) -> bool {
        self.missing == 0
    }
}

/// What somebody gives to a fence, or what all have given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) status: i32,
    pub(super) data: Vec<u8>,
}

/// All of this subtree who belong to a fence have joined it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// Other subtrees belong to the fence: this goes to the parent.
    Up(Given),
    /// The fence is complete.
    Complete(Given),
}

/// Who has to hear of the end of a fence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Children, by index.
    pub(super) children: Vec<usize>,
    /// This node, by its number for the fence.
    pub(super) own: Option<u64>,
}

/// The fences that are under way at one agent.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) own: RankSet,
    pub(super) children: Vec<RankSet>,
    subtree: RankSet,
    has_parent: bool,
    /// Fences by name, and those of one name in order.
    open: HashMap<Name, VecDeque<Fence>>,
    /// Counts what has changed among the fences.
    version: u64,
}

impl Groups {
    pub(super) fn new(place: &NodePlace) -> Self {
        let own: RankSet = place.ranks.iter().copied().collect();
        let sets = std::iter::once(&own).chain(&place.children);
        let all = sets.clone().flat_map(RankSet::iter);
        let subtree = RankSet::disjoint_union(sets.clone());
        Self {
            subtree: subtree.unwrap_or_else(|_| all.collect()),
            own,
            children: place.children.clone(),
            has_parent: place.has_parent,
            open: HashMap::new(),
            version: 0,
        }
    }

    /// This node joins a fence to which it belongs, and which is its number `id`.
    pub(super) fn join(&mut self, name: &Name, id: u64, given: Given) -> Option<Joined> {
        self.add(0, name, Some(id), given)
    }

    /// A child has joined a fence; `Err` if that has nothing to do with it.
    pub(super) fn child_joins(
        &mut self,
        child: usize,
        name: &Name,
        given: Given,
    ) -> Result<Option<Joined>, ()> {
        let belongs = self.children.get(child).and_then(|c| c.common(&name.0));
        belongs.ok_or(())?;
        Ok(self.add(child + 1, name, None, given))
    }

    fn add(&mut self, slot: usize, name: &Name, id: Option<u64>, given: Given) -> Option<Joined> {
        self.version += 1;
        let (ranks, _) = name;
        let open = self.open.entry(name.clone()).or_default();
        let first = open.iter().position(|fence| fence.parts[slot].is_none());
        let at = first.unwrap_or_else(|| {
            let all = std::iter::once(&self.own).chain(&self.children);
            open.push_back(Fence {
                missing: all.filter(|set| set.common(ranks).is_some()).count(),
                parts: vec![None; 1 + self.children.len()],
                status: 0,
                own: None,
            });
            open.len() - 1
        });
        let fence = &mut open[at];
        fence.parts[slot] = Some(given.data);
        fence.missing -= 1;
        fence.own = fence.own.or(id);
        if fence.status == 0 {
            fence.status = given.status;
        }
        if !fence.is_up() {
            return None;
        }
        // The memory that each has given is free from here on.
        let parts = fence.parts.iter_mut().flatten();
        let given = Given {
            status: fence.status,
            data: parts.map(std::mem::take).collect::<Vec<_>>().concat(),
        };
        Some(match self.has_parent && !ranks.is_within(&self.subtree) {
            true => Joined::Up(given),
            false => Joined::Complete(given),
        })
    }

    /// The first fence of that name ends. None if it has not been joined by all below.
    pub(super) fn end(&mut self, name: &Name) -> Option<Ended> {
        let open = self.open.get_mut(name)?;
        open.front().filter(|fence| fence.is_up())?;
        let own = open.pop_front()?.own;
        if open.is_empty() {
            self.open.remove(name);
        }
        self.version += 1;
        let belongs = |set: &RankSet| set.common(&name.0).is_some();
        let children = (0..).zip(&self.children);
        let children = children.filter(|(_, set)| belongs(set));
        Some(Ended {
            children: children.map(|(child, _)| child).collect(),
            own,
        })
    }

    /// A number that differs when [`Groups::waits_for`] may say something else.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// A PE for which others wait though it will not come: one of this node of which `is_gone` says that
    /// it has ended, or one below a child of which `is_empty` says that all there have.
    pub(super) fn waits_for(
        &self,
        is_gone: impl Fn(u32) -> bool,
        is_empty: impl Fn(usize) -> bool,
    ) -> Option<u32> {
        let waiting = |((ranks, _), open): (&Name, &VecDeque<Fence>)| {
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
        self.open.iter().filter_map(waiting).min()
    }

    /// Whether none is open.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}
