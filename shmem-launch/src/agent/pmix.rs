//! The agent and its node's PMIx server: what goes through the tree, and what an end of a process means
//! that speaks PMIx.
//!
//! libpmix knows who waits in a fence of the node alone, and nobody else does. So a process that has
//! initialised has to finalize, and one that never did is missed as soon as others have: they are, or will
//! be, in a fence that it does not join.

use std::ops::Range;

use shmem_pmi::ranks::RankSet;
use shmem_pmi::server::pmix::{Output, PmixNode};
use shmem_pmi::server::{NodePlace, TreeLink};

use super::event::Action;
use super::{Agent, StillNeeded};
use crate::exit::Cause;
use crate::frame::{FromServer, ToServer};

/// A process, as its PMIx server knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Never,
    Connected,
    Finalized,
}

/// What an agent has besides where its programs speak PMIx.
#[derive(Debug)]
pub(super) struct Pmix {
    node: PmixNode,
    seen: Vec<Seen>,
    /// A process that has ended well without ever having initialised.
    ended_unseen: Option<u32>,
    /// For which state of the fences, and with how many who have ended, it was looked for those who are
    /// missing.
    looked: Option<(u64, [u32; 2])>,
    absent_sent: bool,
}

impl Pmix {
    pub(super) fn new(place: &NodePlace) -> Self {
        Self {
            node: PmixNode::new(place),
            seen: vec![Seen::Never; place.ranks.len()],
            ended_unseen: None,
            looked: None,
            absent_sent: false,
        }
    }

    /// For what of a process others wait that has ended with status 0.
    fn missed(&mut self, local: u32) -> StillNeeded {
        match self.seen[local as usize] {
            Seen::Connected => StillNeeded::Finalize,
            Seen::Finalized => StillNeeded::Nothing,
            Seen::Never if self.seen.contains(&Seen::Connected) => StillNeeded::Init,
            Seen::Never => {
                self.ended_unseen.get_or_insert(local);
                StillNeeded::Nothing
            }
        }
    }
}

impl Agent {
    /// The node's PMIx server says something.
    pub(super) fn pmix_said(&mut self, said: FromServer<'_>, now: u64) {
        let (first, n_local) = (self.setup.first_rank, self.setup.n_local);
        let local_of = |rank: u32| rank.checked_sub(first).filter(|&local| local < n_local);
        let n_pes = self.setup.n_pes;
        let Some(pmix) = &mut self.pmix else { return };
        match said {
            FromServer::Connected(rank) => {
                if let Some(local) = local_of(rank) {
                    pmix.seen[local as usize] = Seen::Connected;
                }
                if let Some(local) = pmix.ended_unseen.take()
                    && !self.life.stopping
                {
                    let (rank, pid) = self.identify(local);
                    self.pe_fault(pid, Cause::Absent { rank }, now);
                }
            }
            FromServer::Finalized(rank) => {
                if let Some(local) = local_of(rank) {
                    pmix.seen[local as usize] = Seen::Finalized;
                }
            }
            FromServer::Abort {
                rank,
                status: code,
                message,
            } => match local_of(rank) {
                Some(local) => self.wants_end(local, code, message, now),
                None => {
                    let what = format!("the job was ended through PMIx: {message}");
                    self.fault(0, Cause::Node { what });
                }
            },
            // Libraries say much the same in all processes.
            FromServer::Log { rank, text } => {
                if let Some(local) = local_of(rank) {
                    self.message_for_user(local, text.trim_end().to_owned(), false, now);
                }
            }
            FromServer::Fence { id, ranks, data } => {
                let ranks = match ranks.is_empty() {
                    true => RankSet::from(Range {
                        start: 0,
                        end: n_pes,
                    }),
                    false => ranks.into_iter().collect(),
                };
                pmix.node.join(id, ranks, data.to_vec());
            }
            FromServer::Fetch { id, rank } => pmix.node.fetch(id, rank),
            FromServer::Pong(number) => self.pong(number, now),
            FromServer::PutBy { id, status, data } => pmix.node.put_by(id, status, data.to_vec()),
            // The driver's.
            FromServer::Ready { .. } | FromServer::Failed(_) => {}
        }
    }

    pub(super) fn pmix_tree(&mut self, from: TreeLink, bytes: &[u8]) {
        let understood = match &mut self.pmix {
            Some(pmix) => pmix.node.handle_tree(from, bytes),
            None => Ok(()),
        };
        if let Err(e) = understood {
            let what = format!("PMIx: {e}");
            self.fault(0, Cause::Node { what });
        }
    }

    /// Does what the fences and questions under way ask for.
    pub(super) fn serve_pmix(&mut self) {
        while let Some(output) = self.pmix.as_mut().and_then(|pmix| pmix.node.poll_output()) {
            let message = match &output {
                Output::ToParent(bytes) => {
                    self.parent.out.send_pmix(bytes);
                    continue;
                }
                Output::ToChild { child, bytes } => {
                    let child = &mut self.children[*child];
                    if !child.is_closed() {
                        child.out.send_pmix(bytes);
                    }
                    continue;
                }
                Output::Failed(what) => {
                    let what = what.clone();
                    self.fault(0, Cause::Node { what });
                    continue;
                }
                Output::Fenced { id, status, data } => ToServer::Fenced {
                    id: *id,
                    status: *status,
                    data,
                },
                Output::Fetched { id, status, data } => ToServer::Fetched {
                    id: *id,
                    status: *status,
                    data,
                },
                Output::Lookup { id, rank } => ToServer::Lookup {
                    id: *id,
                    rank: *rank,
                },
            };
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            self.actions.push_back(Action::ToPmix(bytes));
        }
    }

    /// For what of a process others wait that has ended with status 0, by what PMIx knows of it.
    pub(super) fn missed_by_pmix(&mut self, local: u32) -> StillNeeded {
        match &mut self.pmix {
            Some(pmix) => pmix.missed(local),
            None => StillNeeded::Nothing,
        }
    }

    /// Tells when some have joined a fence that others, who have ended, cannot join any more.
    pub(super) fn look_for_absent_of_pmix(&mut self) {
        let Some(pmix) = &mut self.pmix else { return };
        let below = self.children.iter().filter(|c| c.exited).count() as u32;
        let ended = [self.pes.absent().0, below];
        if self.life.stopping || pmix.absent_sent || ended == [0; 2] {
            return;
        }
        // Looking costs a look at each process.
        let state = (pmix.node.version(), ended);
        if pmix.looked.replace(state) == Some(state) {
            return;
        }
        let (pes, children) = (&self.pes, &self.children);
        let first = self.setup.first_rank;
        let is_gone = |rank| pes.has_ended(rank - first);
        let rank = pmix.node.waits_for(is_gone, |child| children[child].exited);
        if let Some(rank) = rank {
            pmix.absent_sent = true;
            self.fault(0, Cause::Absent { rank });
        }
    }
}
