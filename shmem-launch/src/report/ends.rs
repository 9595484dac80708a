//! How the processes of a job ended, and what they took: for reports, and for who asks for all statuses.
//!
//! Neighbours with the same end are one record, so that a job of any size, whose PEs mostly end alike, sends
//! little up the tree.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::Aggregate;
use crate::exit::{End, signal_name};

/// PEs with consecutive ranks that ended alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    first: u32,
    last: u32,
    end: End,
}

/// The ends of PEs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// In the order of ranks.
    runs: Vec<Run>,
}

/// Ranks that are named in one line at most; then their number is told.
const NAMED: usize = 12;

impl Ends {
    /// Adds a PE, after those of lower rank.
    pub fn add(&mut self, rank: u32, end: End) {
        self.push(Run {
            first: rank,
            last: rank,
            end,
        });
    }

    fn push(&mut self, run: Run) {
        match self.runs.last_mut() {
            Some(last) if last.end == run.end && last.last.checked_add(1) == Some(run.first) => {
                last.last = run.last;
            }
            _ => self.runs.push(run),
        }
    }

    /// Adds those of other nodes.
    pub(super) fn merge(&mut self, other: &Self) {
        let mut all = std::mem::take(&mut self.runs);
        all.extend_from_slice(&other.runs);
        all.sort_by_key(|run| run.first);
        all.into_iter().for_each(|run| self.push(run));
    }

    /// The different ends in the order of the ranks that came to them first, with how many PEs did, and
    /// their ranks.
    pub(crate) fn groups(&self) -> Vec<(End, u64, String)> {
        let mut out: Vec<(End, u64, String, usize)> = Vec::new();
        for run in &self.runs {
            let at = out.iter().position(|group| group.0 == run.end);
            let at = at.unwrap_or_else(|| {
                out.push((run.end, 0, String::new(), 0));
                out.len() - 1
            });
            let (_, count, ranks, named) = &mut out[at];
            *count += u64::from(run.last.saturating_sub(run.first)) + 1;
            *named += 1;
            let comma = if *named == 1 { "" } else { "," };
            let _ = match (*named, run.last > run.first) {
                (1..=NAMED, true) => write!(ranks, "{comma}{}-{}", run.first, run.last),
                (1..=NAMED, false) => write!(ranks, "{comma}{}", run.first),
                (n, _) if n == NAMED + 1 => write!(ranks, ",..."),
                _ => Ok(()),
            };
        }
        out.into_iter()
            .map(|(end, n, ranks, _)| (end, n, ranks))
            .collect()
    }

    /// Whether PEs failed with different statuses of their own. `aborted` is the status by which a PE ended the job, which may
    /// have run until it was killed. What has the number of a signal that ends jobs is a consequence.
    pub fn differ(&self, aborted: Option<u8>) -> bool {
        let codes = self.runs.iter().filter_map(|run| match run.end {
            End::Code(code) => Some(code),
            End::Signal { .. } | End::OutOfMemory { .. } | End::Unknown => None,
        });
        let own = codes
            .chain(aborted)
            .filter(|code| ![0, 128 + 9, 128 + 15].contains(code));
        own.clone().min() != own.max()
    }

    /// All of it in one line.
    pub fn line(&self) -> String {
        let groups = self.groups().into_iter().map(|(end, count, ranks)| {
            let pe = if count == 1 { "PE" } else { "PEs" };
            format!("{}: {pe} {ranks}", name(end))
        });
        groups.collect::<Vec<_>>().join("; ")
    }
}

/// An end in a word or two.
pub(crate) fn name(end: End) -> String {
    match end {
        End::Code(code) => format!("status {code}"),
        End::Signal {
            signal,
            core: false,
        } => signal_name(signal).to_owned(),
        End::Signal { signal, core: true } => format!("{} (core dumped)", signal_name(signal)),
        End::OutOfMemory { signal, .. } => {
            format!("{} (memory may have run out)", signal_name(signal))
        }
        End::Unknown => "unknown status".to_owned(),
    }
}

/// What a process has taken of its machine, with the children for which it has waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// CPU time in the program, in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, in nanoseconds.
    pub system_ns: u64,
    /// Most memory that it had at a time, in bytes.
    pub peak: u64,
}

/// A PE that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its rank.
    pub rank: u32,
    /// How.
    pub end: End,
    /// What it took.
    pub used: Used,
}

/// What the processes of a job have taken, and how they ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// PEs that have ended.
    pub count: u64,
    /// How.
    pub ends: Ends,
    /// CPU time in the program and in the kernel, and most memory, of each.
    pub used: [Aggregate; 3],
    /// Each of them, if that was asked for.
    pub each: Vec<Ended>,
}

impl Processes {
    /// Adds a PE, after those of lower rank.
    pub fn add(&mut self, ended: Ended, keep: bool) {
        self.count += 1;
        self.ends.add(ended.rank, ended.end);
        let Used {
            user_ns,
            system_ns,
            peak,
        } = ended.used;
        for (all, own) in self.used.iter_mut().zip([user_ns, system_ns, peak]) {
            all.add(own);
        }
        self.each.extend(keep.then_some(ended));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.ends.merge(&other.ends);
        for (all, of) in self.used.iter_mut().zip(&other.used) {
            all.merge(of);
        }
        self.each.extend_from_slice(&other.each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_line_groups_ranks() {
        let mut ends = Ends::default();
        let all = [3, 15, 15, 0, 3, 15].map(|n| match n {
            15 => End::killed(15),
            code => End::Code(code),
        });
        (0..).zip(all).for_each(|(rank, end)| ends.add(rank, end));
        let line = "status 3: PEs 0,4; SIGTERM: PEs 1-2,5; status 0: PE 3";
        assert_eq!(ends.line(), line);
        let mut many = Ends::default();
        (0..100).for_each(|rank| many.add(rank, End::Code((rank % 2) as u8)));
        assert!(many.line().contains("22,...; status 1"), "{}", many.line());
        assert_eq!(many.groups()[0].1, 50);
    }

    #[test]
    fn consequences_are_no_statuses_of_their_own() {
        let of = |aborted, all: &[End]| {
            let mut ends = Ends::default();
            (0..).zip(all).for_each(|(rank, &end)| ends.add(rank, end));
            ends.differ(aborted)
        };
        let code = End::Code;
        assert!(of(None, &[code(3), code(0), code(4)]));
        assert!(!of(
            None,
            &[code(3), code(3), code(0), code(143), End::killed(9)]
        ));
        assert!(!of(None, &[]));
        assert!(of(Some(3), &[End::killed(9), code(0), code(4)]));
        assert!(!of(Some(3), &[code(3), End::killed(9)]));
        assert!(!of(Some(128 + 9), &[End::killed(9), code(4)]));
    }

    proptest! {
        #[test]
        fn merging_nodes_in_any_order_equals_adding_all(codes in prop::collection::vec(0u8..3, 0..60), cut in 1usize..9, turn: prop::sample::Index) {
            let ended = |(rank, &code): (u32, &u8)| Ended {
                rank,
                end: End::Code(code),
                used: Used { user_ns: 7 * u64::from(rank), ..Used::default() },
            };
            let mut all = Processes::default();
            (0..).zip(&codes).for_each(|pe| all.add(ended(pe), false));
            let mut nodes: Vec<Processes> = Vec::new();
            for (at, chunk) in codes.chunks(cut).enumerate() {
                let mut node = Processes::default();
                let first = (at * cut) as u32;
                (first..).zip(chunk).for_each(|pe| node.add(ended(pe), false));
                nodes.push(node);
            }
            if !nodes.is_empty() {
                let by = turn.index(nodes.len());
                nodes.rotate_left(by);
            }
            let mut merged = Processes::default();
            nodes.iter().for_each(|node| merged.merge(node));
            prop_assert_eq!(merged, all);
        }
    }
}
