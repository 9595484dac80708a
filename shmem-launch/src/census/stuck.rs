//! Whether PEs wait for what other PEs will not do any more, because those are in finalize or have ended.

use shmem_node::waiting::{Collective, TeamKind};

use super::text::{Job, all};
use super::{Census, Doing, Group, Life, RankSet, What};

/// A wait that has lasted for less is not looked at: what ends it may be on its way.
const LONG_NS: u64 = 4_000_000_000;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// Whether it can never end: otherwise a thread of a PE that waits could still end it.
    pub for_ever: bool,
    /// One line that says it.
    pub text: String,
}

impl Census {
    /// PEs that wait for others that have left, if there are any.
    pub fn stuck(&self, job: Job<'_>) -> Option<Stuck> {
        // Of PEs of whom nothing is known all may be possible.
        if self.ranks().len() != u64::from(job.n_pes) {
            return None;
        }
        let left: Vec<&Group> = self.groups.iter().filter(|g| has_left(g)).collect();
        let mut gone = RankSet::default();
        for group in &left {
            gone.add(&group.ranks);
        }
        let waits = || self.groups.iter().filter(|g| waits_long(g));
        // A collective of the world team: the PEs that have left have begun as many, and will begin no more.
        for group in waits() {
            if let Doing::Waits {
                what:
                    What::Collective {
                        kind: TeamKind::World,
                        number: Some(number),
                        ..
                    },
                ..
            } = group.doing
            {
                let mut missed = RankSet::default();
                for other in &left {
                    if other.begun.most <= number.into() {
                        missed.add(&other.ranks);
                    }
                }
                if !missed.is_empty() {
                    return Some(Stuck {
                        for_ever: true,
                        text: self.sentence(group, &missed, job),
                    });
                }
            }
        }
        // Anything else: all PEs have left, or wait for long.
        let mut others = gone.clone();
        waits().for_each(|group| others.add(&group.ranks));
        if gone.is_empty() || others.len() != u64::from(job.n_pes) {
            return None;
        }
        let group = waits().next()?;
        let missed = match &group.doing {
            Doing::Waits {
                what: What::Collective { members, .. },
                ..
            } => all(members, job.n_pes).common(&gone),
            _ => gone,
        };
        (!missed.is_empty()).then(|| Stuck {
            for_ever: false,
            text: self.sentence(group, &missed, job),
        })
    }

    fn sentence(&self, group: &Group, missed: &RankSet, job: Job<'_>) -> String {
        let one = missed.len() == 1;
        let ended = self.groups.iter().any(|g| {
            let ended = matches!(g.doing, Doing::Runs { .. });
            ended && !g.ranks.common(missed).is_empty()
        });
        let left = match (one, ended) {
            (true, false) => "is in finalize, or at the end of main",
            (false, false) => "are in finalize, or at the end of main",
            (true, true) => "has left finalize, or the end of main",
            (false, true) => "are in finalize or have left it, or the end of main",
        };
        format!(
            "{}, but {} {left}",
            self.line_of(group, job),
            missed.named("PE")
        )
    }
}

/// Whether the group will begin nothing any more.
fn has_left(group: &Group) -> bool {
    match &group.doing {
        Doing::Waits { what, .. } => matches!(
            what,
            What::Collective {
                call: Collective::Finalize,
                ..
            }
        ),
        Doing::Runs { life, .. } => matches!(life, Life::Finalized | Life::Ended),
    }
}

/// Whether the group waits for something else than finalize, and has for a while.
fn waits_long(group: &Group) -> bool {
    let long = group.age.is_some_and(|age| age.least >= LONG_NS);
    // What is stopped or being debugged may go on.
    let free = matches!(group.doing, Doing::Waits { process: None, .. });
    long && free && !has_left(group)
}
