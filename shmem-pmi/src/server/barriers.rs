//! Group barriers of PMI-1.2: of any set of PEs, and several of one PE open at once.
//!
//! What the members have put since their last barrier of all is visible to them afterwards. It stays among
//! their puts, so the next barrier of all shows it to everybody.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::groups::{Ended, Given, Groups, Joined, Name, Part};
use super::{LinkName, NodePlace, NodeServer, Output, TreeError, TreeLink};
use crate::ranks::RankSet;
use crate::wire::Reply;
use crate::wire::excerpt;
use crate::wire::tree::{Body, Direction, Message, Pairs};

/// Most bytes that the members of one may have put before it.
const MAX_DATA: usize = 512 << 20;

/// Set in tags of barriers of a node: those of PEs of one node that are named have other tags.
const OF_A_NODE: u32 = 1 << 31;

/// A barrier at one node, as its PEs join it.
#[derive(Debug, Default)]
struct Round {
    /// PEs that have joined: local index, and which process of the PE.
    joined: Vec<(usize, u32)>,
    /// What these PEs have put, encoded.
    pairs: Vec<u8>,
    /// Number of the barrier among those that the node has joined.
    id: Option<u64>,
}

/// The barriers that are under way.
#[derive(Debug)]
pub(super) struct Barriers {
    groups: Groups,
    /// Barriers of this node by name, in order.
    rounds: HashMap<Name, VecDeque<Round>>,
    next_id: u64,
    version: u64,
}

impl Barriers {
    pub(super) fn new(place: &NodePlace) -> Self {
        Self {
            groups: Groups::new(place),
            rounds: HashMap::new(),
            next_id: 0,
            version: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.groups.is_idle() && self.rounds.is_empty()
    }
}

/// Of whom a barrier is, and its tag: `WORLD`, `NODE`, or ranks with commas, and perhaps `:TAG`.
fn name_of(group: &[u8], size: u32, node: &RankSet) -> Option<Name> {
    let text = std::str::from_utf8(group).ok()?;
    let (whom, tag) = text.split_once(':').unwrap_or((text, "0"));
    let tag = tag.parse().ok().filter(|tag| *tag < OF_A_NODE)?;
    Some(match whom {
        "WORLD" => (RankSet::from(0..size), tag),
        "NODE" => (node.clone(), tag | OF_A_NODE),
        ranks => {
            let ranks = ranks.split(',').map(|rank| rank.parse().ok());
            let ranks: RankSet = ranks.collect::<Option<Vec<u32>>>()?.into_iter().collect();
            let fits = ranks.is_within(&RankSet::from(0..size));
            (!ranks.is_empty() && fits).then_some((ranks, tag))?
        }
    })
}

impl NodeServer {
    /// Whether group barriers can be had: what they make visible must be visible where all pairs are.
    pub(super) fn has_group_barriers(&self) -> bool {
        self.kvs.is_complete()
    }

    /// A PE joins a group barrier. Its reply comes when all have; other requests may come before.
    pub(super) fn join_barrier(&mut self, local: usize, group: &[u8]) -> Result<(), String> {
        let own = &self.barriers.groups.own;
        let name = name_of(group, self.job.size, own);
        let rank = self.rank(local);
        let name = name.filter(|(ranks, _)| ranks.contains(rank));
        let name = name.filter(|_| self.has_group_barriers());
        let Some(name) = name else {
            return Err(format!(
                "no group barrier of {} for PE {rank}",
                excerpt(group)
            ));
        };
        let members = own.iter().filter(|rank| name.0.contains(*rank)).count();
        let life = self.sessions[local].life();
        let puts = self.sessions[local].puts().to_vec();
        let barriers = &mut self.barriers;
        barriers.version += 1;
        let rounds = barriers.rounds.entry(name.clone()).or_default();
        let is_in = |round: &Round| round.joined.contains(&(local, life));
        let open = |round: &Round| round.id.is_none() && !is_in(round);
        let at = rounds.iter().position(open).unwrap_or_else(|| {
            rounds.push_back(Round::default());
            rounds.len() - 1
        });
        let round = &mut rounds[at];
        round.joined.push((local, life));
        round.pairs.extend(puts);
        if round.joined.len() < members {
            return Ok(());
        }
        let id = barriers.next_id;
        barriers.next_id += 1;
        round.id = Some(id);
        let given = Given {
            status: 0,
            data: std::mem::take(&mut round.pairs),
        };
        let joined = barriers.groups.join(&name, id, given);
        self.barrier_joined(&name, joined);
        Ok(())
    }

    /// This node or a child has joined, with which all below may have.
    fn barrier_joined(&mut self, name: &Name, joined: Option<Joined>) {
        match joined {
            Some(Joined::Up(given)) => {
                if let Some(bytes) = self.barrier_message(Direction::Up, name, &given) {
                    self.outbox.push(Output::ToParent(bytes));
                }
            }
            Some(Joined::Complete(given)) => {
                self.end_barrier(name, given);
            }
            None => {}
        }
    }

    fn barrier_message(
        &mut self,
        direction: Direction,
        name: &Name,
        given: &Given,
    ) -> Option<Arc<Vec<u8>>> {
        if given.data.len() > MAX_DATA {
            self.outbox.push(Output::ProtocolError {
                local: 0,
                text: format!(
                    "the PEs of a group barrier have put more than {} MiB",
                    MAX_DATA >> 20
                ),
            });
            return None;
        }
        let part = Part::new(&name.0, name.1, given.status, &given.data).encode();
        let message = Message {
            direction,
            request: 0,
            body: Body::Group(&part),
        };
        // Shorter than what was checked for.
        message.encode().ok().map(Arc::new)
    }

    /// The first barrier of that name is complete. False if there is none that could be.
    fn end_barrier(&mut self, name: &Name, given: Given) -> bool {
        let Some(Ended { children, own }) = self.barriers.groups.end(name) else {
            return false;
        };
        self.barriers.version += 1;
        if !children.is_empty()
            && let Some(bytes) = self.barrier_message(Direction::Down, name, &given)
        {
            for child in children {
                self.outbox.push_to_child(child, Arc::clone(&bytes));
            }
        }
        let rounds = self.barriers.rounds.get_mut(name);
        let (Some(id), Some(rounds)) = (own, rounds) else {
            return true;
        };
        let at = rounds.iter().position(|round| round.id == Some(id));
        let round = at.and_then(|at| rounds.remove(at)).unwrap_or_default();
        if rounds.is_empty() {
            self.barriers.rounds.remove(name);
        }
        self.kvs.insert_all(Pairs::checked(&given.data));
        let tag = name.1 & !OF_A_NODE;
        for (local, life) in round.joined {
            if self.sessions[local].life() == life {
                self.late_line_reply(local, &Reply::KvsFence { tag: Some(tag) });
            }
        }
        true
    }

    /// A group barrier's message came from another agent.
    pub(super) fn barrier_from(&mut self, from: TreeLink, part: &[u8]) -> Result<(), TreeError> {
        let out_of_step = || TreeError::OutOfStep {
            link: LinkName(from),
            request: 0,
            expected: "a group barrier that this agent knows of".to_owned(),
        };
        let part = Part::decode(part).ok_or_else(out_of_step)?;
        let name = (part.ranks().ok_or_else(out_of_step)?, part.tag);
        let given = Given {
            status: part.status,
            data: part.data.to_vec(),
        };
        match from {
            TreeLink::Child(child) => {
                let joined = self.barriers.groups.child_joins(child, &name, given);
                let joined = joined.map_err(|()| out_of_step())?;
                self.barrier_joined(&name, joined);
                Ok(())
            }
            TreeLink::Parent => match self.end_barrier(&name, given) {
                true => Ok(()),
                false => Err(out_of_step()),
            },
        }
    }

    /// A number that differs when [`NodeServer::barrier_waits_for`] may say something else.
    pub fn barrier_version(&self) -> u64 {
        self.barriers.version + self.barriers.groups.version()
    }

    /// A PE for which others wait in a group barrier though it will not come: one of this node of which
    /// `is_gone` says so, or one below a child of which `is_empty` says that none will.
    pub fn barrier_waits_for(
        &self,
        is_gone: impl Fn(u32) -> bool,
        is_empty: impl Fn(usize) -> bool,
    ) -> Option<u32> {
        let Barriers { groups, rounds, .. } = &self.barriers;
        let here = rounds.iter().filter_map(|((ranks, _), rounds)| {
            let round = rounds.iter().find(|round| round.id.is_none())?;
            let is_in = |rank| {
                let mut joined = round.joined.iter();
                joined.any(|&(local, _)| self.sessions[local].rank() == rank)
            };
            let mut members = groups.own.iter().filter(|&rank| ranks.contains(rank));
            members.find(|&rank| !is_in(rank) && is_gone(rank))
        });
        here.min().or_else(|| groups.waits_for(&is_gone, is_empty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_names() {
        let node: RankSet = [2, 3].into_iter().collect();
        let name = |text: &str| name_of(text.as_bytes(), 6, &node);
        assert_eq!(name("WORLD"), Some((RankSet::from(0..6), 0)));
        assert_eq!(name("WORLD:7"), Some((RankSet::from(0..6), 7)));
        assert_eq!(name("NODE:7"), Some((node.clone(), 7 | OF_A_NODE)));
        assert_eq!(name("3,2:0"), Some((node.clone(), 0)));
        for wrong in [
            "",
            "SELF",
            "1,",
            "6",
            "1:x",
            "1:-1",
            "1:2147483648",
            "1,2:3:4",
        ] {
            assert_eq!(name(wrong), None, "{wrong}");
        }
    }
}
