//! From what an agent finds of a PE (its block, its process) to what the PE does. Pure: the driver reads.

use shmem_node::layout::INTERNAL_SIZE;
use shmem_node::pe_block::PeState;
use shmem_node::waiting::{LockWait, Seen, Team, TeamKind, Wait, Word};

use super::{
    Compared, Doing, Example, Group, Life, Members, Place, Places, Process, RankSet, Span, What,
};

/// A node whose PEs are looked at.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// Its number.
    pub node: u32,
    /// Its PEs, by position.
    pub ranks: &'a [u32],
    /// Where the heap begins in a segment.
    pub heap_start: u64,
    /// Bytes of a segment.
    pub segment_len: u64,
}

/// What was found of a PE.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its position on the node.
    pub local: usize,
    /// Whether its process was started.
    pub started: bool,
    /// Whether its process has ended.
    pub ended: bool,
    /// How far it is.
    pub state: PeState,
    /// What its threads wait for, one wait inside another after it.
    pub waits: Vec<Seen>,
    /// When a wait of it ended last; 0 if none has.
    pub waited: u64,
    /// How many collectives of the world team it has begun.
    pub begun: u32,
    /// Its process; 0 if there is none.
    pub pid: u32,
    /// What the kernel says of it.
    pub process: Option<Process>,
    /// CPU time of its process in nanoseconds.
    pub cpu: Option<u64>,
}

/// States of processes in which a PE that waits may be.
fn may_wait(process: &Process) -> bool {
    matches!(process.state, b'R' | b'S' | b'D')
}

impl Node<'_> {
    /// What a PE does at `now`. `read` gives the bits that so many bytes at an offset of its segment hold.
    pub fn group(&self, found: Found, now: u64, read: impl Fn(u64, usize) -> Option<u64>) -> Group {
        let rank = self.ranks.get(found.local).copied().unwrap_or(u32::MAX);
        let mut for_whom = RankSet::default();
        let mut operations = 0;
        let mut places = None;
        let mut whats = found.waits.iter().filter_map(|seen| {
            let wait = Wait::decode(&seen.words)?;
            if let Wait::Remote { operations: n, .. } = wait {
                operations = n;
            }
            // Of waits inside each other the program called the outer one.
            places.get_or_insert_with(|| Places::of(wait.called().to_string()));
            let (what, whom) = self.what(wait, found.local, &read);
            for_whom.add(&whom);
            Some((seen.since, what))
        });
        let outer = whats.next();
        let within = whats.last();
        let runs = found.started && !found.ended;
        let since = outer.as_ref().map(|(since, _)| *since);
        let doing = match outer {
            Some((_, what)) if runs => Doing::Waits {
                what,
                within: within.map(|(_, within)| within),
                process: found.process.filter(|p| !may_wait(p)),
            },
            _ => Doing::Runs {
                life: life(&found),
                begun: (found.state == PeState::Running).then_some(found.begun),
                process: found.process.filter(|_| runs),
            },
        };
        let since = since
            .or((found.waited > 0).then_some(found.waited))
            .filter(|_| runs);
        Group {
            doing,
            ranks: RankSet::range(rank..rank.saturating_add(1)),
            example: Example {
                rank,
                node: self.node,
                pid: found.pid,
            },
            age: since.map(|since| Span::of(now.saturating_sub(since))),
            cpu: found.cpu.map(Span::of),
            begun: Span::of(found.begun.into()),
            for_whom,
            operations,
            places: places.unwrap_or_default(),
        }
    }

    fn what(
        &self,
        wait: Wait,
        local: usize,
        read: &impl Fn(u64, usize) -> Option<u64>,
    ) -> (What, RankSet) {
        let nobody = RankSet::default();
        let only = |pe: u32| match pe {
            Wait::NOBODY => RankSet::default(),
            pe => RankSet::range(pe..pe.saturating_add(1)),
        };
        match wait {
            Wait::Init => (What::Init, nobody),
            Wait::InitAgain { pe } => (What::InitAgain, only(pe)),
            Wait::Collective {
                call, team, number, ..
            } => {
                let what = What::Collective {
                    call,
                    kind: team.kind,
                    members: self.members(team),
                    number: (number > 0).then_some(number),
                };
                (what, nobody)
            }
            Wait::Memory { word, .. } => (self.memory(word, read), nobody),
            Wait::Lock {
                why, at, behind, ..
            } => {
                let place = self.place(at);
                let whom = match why {
                    LockWait::Thread => {
                        only(self.ranks.get(local).copied().unwrap_or(Wait::NOBODY))
                    }
                    _ => only(behind),
                };
                (What::Lock { why, place }, whom)
            }
            Wait::Remote { what, pe, .. } => {
                let pe = Some(pe).filter(|&pe| pe != Wait::NOBODY);
                let whom = pe.map_or(nobody, only);
                (What::Remote { what, pe }, whom)
            }
        }
    }

    fn memory(&self, word: Word, read: &impl Fn(u64, usize) -> Option<u64>) -> What {
        let size = word.number.size();
        let end = word.at.checked_add(size as u64);
        let inside = end.is_some_and(|end| end <= self.segment_len);
        let now = match inside && word.at.is_multiple_of(size as u64) {
            true => read(word.at, size),
            false => None,
        };
        What::Memory {
            form: word.form,
            place: self.place(word.at),
            count: word.count,
            compared: Some(Compared {
                number: word.number,
                cmp: word.cmp,
                value: word.value,
                now,
            }),
        }
    }

    fn place(&self, at: u64) -> Place {
        let statics = INTERNAL_SIZE as u64;
        match at {
            _ if at >= self.segment_len => Place::Elsewhere,
            _ if at >= self.heap_start => Place::Heap(at - self.heap_start),
            _ if at >= statics => Place::Static(at - statics),
            _ => Place::Elsewhere,
        }
    }

    /// The members of a team in ascending order.
    fn members(&self, team: Team) -> Members {
        let (first, stride, size) = (i64::from(team.first), i64::from(team.stride), team.size);
        if team.listed {
            // All of them are of this node.
            let count = i64::from(size).min(self.ranks.len() as i64);
            let positions = (0..count).filter_map(|i| usize::try_from(first + i * stride).ok());
            let ranks = positions.filter_map(|at| self.ranks.get(at).copied());
            return Members::Listed(ranks.collect());
        }
        let last = first + stride * (i64::from(size) - 1).max(0);
        let within = |n: i64| u32::try_from(n).ok();
        match (within(first.min(last)), within(first.max(last))) {
            (Some(lowest), Some(_)) => Members::Strided {
                first: lowest,
                stride: match size {
                    0 | 1 => 1,
                    _ => team.stride.unsigned_abs().max(1),
                },
                size,
            },
            // No team is like that.
            _ => Members::Several,
        }
    }
}

/// Who waits for the others of its node waits for those that are elsewhere.
pub fn note_missing(node: Node<'_>, groups: &mut [Group]) {
    let here: RankSet = node.ranks.iter().copied().collect();
    let finds =
        |doing: &Doing, what: &What| matches!(doing, Doing::Waits { what: w, .. } if w == what);
    let mut there = RankSet::default();
    for group in groups.iter().filter(|g| finds(&g.doing, &What::Init)) {
        there.add(&group.ranks);
    }
    let missing = here.without(&there);
    for group in groups.iter_mut().filter(|g| finds(&g.doing, &What::Init)) {
        group.for_whom.add(&missing);
    }
    // Teams on this node alone: elsewhere nobody knows more of them.
    let mut teams: Vec<(What, RankSet, RankSet)> = Vec::new();
    for group in groups.iter() {
        let Doing::Waits { what, .. } = &group.doing else {
            continue;
        };
        let What::Collective { members, kind, .. } = what else {
            continue;
        };
        let all = match members {
            Members::Listed(all) => all.clone(),
            _ if *kind == TeamKind::Shared => here.clone(),
            _ => continue,
        };
        match teams.iter_mut().find(|(known, ..)| known == what) {
            Some((_, _, there)) => there.add(&group.ranks),
            None => teams.push((what.clone(), all, group.ranks.clone())),
        }
    }
    for (what, all, there) in teams {
        let missing = all.without(&there);
        for group in groups.iter_mut().filter(|g| finds(&g.doing, &what)) {
            group.for_whom.add(&missing);
        }
    }
}

fn life(found: &Found) -> Life {
    match found.state {
        _ if !found.started => Life::NotStarted,
        _ if found.ended => Life::Ended,
        PeState::Fresh => Life::BeforeInit,
        PeState::Starting => Life::Starting,
        PeState::Running => Life::Running,
        PeState::Finalizing => Life::Finalizing,
        PeState::Finalized => Life::Finalized,
    }
}

/// State and CPU time from a process's `stat`, with the kernel's ticks per second.
pub fn parse_stat(stat: &str, ticks: u64) -> Option<(u8, u64)> {
    // The name, in parentheses, may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let time = |field: Option<&str>| field?.parse::<u64>().ok();
    let user = time(fields.nth(10))?;
    let system = time(fields.next())?;
    let ns = 1_000_000_000 / ticks.max(1);
    Some((state, user.saturating_add(system).saturating_mul(ns)))
}
