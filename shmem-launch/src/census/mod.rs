//! What the PEs of a job wait for: counted on each node, and merged on the way up the tree.
//!
//! Agents read the blocks of their PEs ([`shmem_node::waiting`]) and their processes' states, and no PE
//! notices ([`look`]). PEs in the same state are one [`Group`], so a message is as long as PEs differ, and
//! not as the job is large: where there are too many groups, what tells them apart is given up bit by bit
//! ([`Census::merge`]). The launcher finds out who is missing where, and puts it into words ([`text`]).

pub mod look;
mod ranks;
mod stuck;
pub mod text;

use std::collections::HashMap;

pub use ranks::{NoRuns, RankSet};
pub use stuck::Stuck;

use serde::{Deserialize, Serialize};
use shmem_node::waiting::{Collective, Comparison, Form, LockWait, Number, Remote, TeamKind};

/// Most groups of a message.
pub const MOST_GROUPS: usize = 128;

/// Most PEs of a message whose processes are named.
pub const MOST_PROCESSES: usize = 64;

/// The lowest and the highest of some numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The lowest.
    pub least: u64,
    /// The highest.
    pub most: u64,
}

impl Span {
    /// Of one number.
    pub const fn of(value: u64) -> Self {
        Self {
            least: value,
            most: value,
        }
    }

    fn add(&mut self, other: Self) {
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }
}

/// The members of a team.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Members {
    /// Equally far apart.
    Strided {
        /// The lowest.
        first: u32,
        /// From one to the next.
        stride: u32,
        /// How many.
        size: u32,
    },
    /// Any.
    Listed(RankSet),
    /// Those of several teams.
    Several,
}

/// Where a word of symmetric memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// So far into the symmetric heap.
    Heap(u64),
    /// So far into the program's static data.
    Static(u64),
    /// In no symmetric memory.
    Elsewhere,
    /// In different places.
    Several,
}

/// How a word is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Compared {
    /// How it is read.
    pub number: Number,
    /// How it is compared.
    pub cmp: Comparison,
    /// With what.
    pub value: u64,
    /// What was there when it was looked at, if that could be read and all found the same.
    pub now: Option<u64>,
}

/// What a PE waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum What {
    /// In init, for the others of its node.
    Init,
    /// In another init, for others of its node to leave their last life.
    InitAgain,
    /// In a collective.
    Collective {
        /// Which.
        call: Collective,
        /// The kind of the team.
        kind: TeamKind,
        /// Who belongs to it.
        members: Members,
        /// The how-manieth of the team it is, where PEs count.
        number: Option<u32>,
    },
    /// For words of its memory.
    Memory {
        /// The routine.
        form: Form,
        /// Where the first lies.
        place: Place,
        /// How many there are.
        count: u64,
        /// What it is to be; `None` if that differs.
        compared: Option<Compared>,
    },
    /// At a lock.
    Lock {
        /// Why.
        why: LockWait,
        /// Which.
        place: Place,
    },
    /// For a PE on another node.
    Remote {
        /// For what of it.
        what: Remote,
        /// Which; `None` for no particular one, or several.
        pe: Option<u32>,
    },
}

/// How far a PE is that waits for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Life {
    /// Its process is not started yet.
    NotStarted,
    /// It has not called init.
    BeforeInit,
    /// It is in init.
    Starting,
    /// It computes.
    Running,
    /// It is in finalize.
    Finalizing,
    /// It has left finalize.
    Finalized,
    /// Its process has ended.
    Ended,
}

/// What the kernel says of a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    /// The letter of its state.
    pub state: u8,
    /// Where in the kernel it sleeps, if that may be known.
    pub place: String,
}

/// What a PE does.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Doing {
    /// It waits.
    Waits {
        /// For what.
        what: What,
        /// Inside of that: for what.
        within: Option<What>,
        /// Its process, if it is in a state in which it cannot wait.
        process: Option<Process>,
    },
    /// It does something else.
    Runs {
        /// How far it is.
        life: Life,
        /// Its process.
        process: Option<Process>,
        /// How many collectives of the world team it has begun; `None` if that differs.
        begun: Option<u32>,
    },
}

/// A PE of a group, to be named and looked at closer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Example {
    /// Its rank.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// Its process; 0 if there is none.
    pub pid: u32,
}

/// PEs that do the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// What.
    pub doing: Doing,
    /// Who.
    pub ranks: RankSet,
    /// The lowest of them.
    pub example: Example,
    /// Since how many nanoseconds they wait, or have not waited; `None` if they never have.
    pub age: Option<Span>,
    /// Nanoseconds of CPU time of their processes, if that is known.
    pub cpu: Option<Span>,
    /// How many collectives of the world team they have begun.
    pub begun: Span,
    /// For whom they wait, as far as their node can tell.
    pub for_whom: RankSet,
    /// Operations that are not complete, of those that wait for such.
    pub operations: u64,
    /// Where the program called what they wait in, as far as that is known.
    pub places: Places,
}

/// Places in a program, a few of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// In order.
    some: Vec<String>,
    /// Whether there are others.
    more: bool,
}

impl Places {
    /// Places that are told.
    const MOST: usize = 3;

    /// One place; none of an empty text.
    pub fn of(text: String) -> Self {
        Self {
            some: Vec::from_iter((!text.is_empty()).then_some(text)),
            more: false,
        }
    }

    fn add(&mut self, other: Self) {
        self.some.extend(other.some);
        self.some.sort();
        self.some.dedup();
        self.more |= other.more || self.some.len() > Self::MOST;
        self.some.truncate(Self::MOST);
    }
}

impl Group {
    fn add(&mut self, other: Self) {
        self.ranks.add(&other.ranks);
        self.for_whom.add(&other.for_whom);
        self.example = self.example.min(other.example);
        self.age = join(self.age, other.age);
        self.cpu = join(self.cpu, other.cpu);
        self.begun.add(other.begun);
        self.operations = self.operations.saturating_add(other.operations);
        self.places.add(other.places);
    }
}

fn join(a: Option<Span>, b: Option<Span>) -> Option<Span> {
    let mut joined = a.or(b)?;
    joined.add(b.unwrap_or(joined));
    Some(joined)
}

/// What the PEs of some nodes do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// The nodes that were counted.
    pub nodes: RankSet,
    /// Their PEs.
    pub groups: Vec<Group>,
    /// The PEs with the lowest ranks that have a process, in order, for users who attach a debugger.
    pub processes: Vec<Example>,
    /// How much of what tells PEs apart was given up.
    coarse: u8,
}

/// Everything was given up that can be.
const COARSEST: u8 = 4;

impl Census {
    /// Of one node, whose PEs are a group each.
    pub fn of(node: u32, groups: impl IntoIterator<Item = Group>) -> Self {
        let mut census = Self {
            nodes: RankSet::range(node..node + 1),
            ..Self::default()
        };
        let mut processes = Vec::new();
        census.take(groups.into_iter().inspect(|group| {
            let runs = !matches!(
                group.doing,
                Doing::Runs {
                    life: Life::Ended,
                    ..
                }
            );
            processes.extend((runs && group.example.pid > 0).then_some(group.example));
        }));
        census.name(processes);
        census
    }

    /// Adds PEs whose processes are named.
    fn name(&mut self, processes: Vec<Example>) {
        self.processes.extend(processes);
        self.processes.sort_unstable();
        self.processes.truncate(MOST_PROCESSES);
    }

    /// Adds what other nodes' PEs do.
    pub fn merge(&mut self, other: Self) {
        self.nodes.add(&other.nodes);
        if other.coarse > self.coarse {
            self.make_coarse(other.coarse);
        }
        self.take(other.groups);
        self.name(other.processes);
    }

    /// Adds groups; those that do the same become one.
    fn take(&mut self, groups: impl IntoIterator<Item = Group>) {
        let mut known: HashMap<Doing, usize> = HashMap::new();
        for (at, group) in self.groups.iter().enumerate() {
            known.insert(group.doing.clone(), at);
        }
        for mut group in groups {
            group.doing.coarsen(self.coarse);
            match known.get(&group.doing) {
                Some(&at) => self.groups[at].add(group),
                None => {
                    known.insert(group.doing.clone(), self.groups.len());
                    self.groups.push(group);
                }
            }
        }
        while self.groups.len() > MOST_GROUPS && self.coarse < COARSEST {
            self.make_coarse(self.coarse + 1);
        }
    }

    fn make_coarse(&mut self, coarse: u8) {
        self.coarse = coarse;
        let groups = std::mem::take(&mut self.groups);
        self.take(groups);
    }

    /// One PE of each group that has a process, those first who do not wait.
    pub fn examples(&self, most: usize) -> Vec<Example> {
        let with_process = self.groups.iter().filter(|group| group.example.pid > 0);
        let alive = with_process.filter(|group| {
            let Doing::Runs { life, .. } = group.doing else {
                return true;
            };
            !matches!(life, Life::NotStarted | Life::Ended)
        });
        let mut groups: Vec<&Group> = alive.collect();
        groups.sort_by_key(|group| {
            let waits = matches!(group.doing, Doing::Waits { .. });
            (waits, group.ranks.len(), group.example)
        });
        groups
            .iter()
            .take(most)
            .map(|group| group.example)
            .collect()
    }

    /// All PEs that were counted.
    pub fn ranks(&self) -> RankSet {
        let mut all = RankSet::default();
        for group in &self.groups {
            all.add(&group.ranks);
        }
        all
    }
}

impl Doing {
    /// Gives up what tells this from others, the more the higher the number.
    fn coarsen(&mut self, coarse: u8) {
        let process = match self {
            Self::Waits {
                what,
                within,
                process,
            } => {
                what.coarsen(coarse);
                if let Some(within) = within {
                    within.coarsen(coarse);
                }
                if coarse >= 4 {
                    *within = None;
                }
                process
            }
            Self::Runs { process, begun, .. } => {
                *begun = begun.filter(|_| coarse < 2);
                process
            }
        };
        if let Some(process) = process
            && coarse >= 3
        {
            process.place.clear();
        }
        if coarse >= 4 {
            *process = None;
        }
    }
}

impl What {
    fn coarsen(&mut self, coarse: u8) {
        match self {
            Self::Init | Self::InitAgain => {}
            Self::Collective {
                kind,
                members,
                number,
                ..
            } => {
                if coarse >= 2 && *kind != TeamKind::World {
                    *members = Members::Several;
                }
                if coarse >= 3 || coarse >= 2 && *kind != TeamKind::World {
                    *number = None;
                }
            }
            Self::Memory {
                place,
                count,
                compared,
                ..
            } => {
                if let Some(compared) = compared {
                    compared.now = compared.now.filter(|_| coarse < 1);
                }
                if coarse >= 2 {
                    *compared = None;
                    *count = (*count).min(2);
                }
                if coarse >= 3 {
                    *place = Place::Several;
                }
            }
            Self::Lock { place, .. } => {
                if coarse >= 3 {
                    *place = Place::Several;
                }
            }
            Self::Remote { pe, .. } => {
                if coarse >= 1 {
                    *pe = None;
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) use tests::{sample, stuck_sample};

#[cfg(test)]
mod tests;
