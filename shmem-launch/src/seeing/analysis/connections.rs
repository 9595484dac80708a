//! How many queue pairs there were over time: of all PEs, and of the one that had most.

use std::collections::HashMap;

use shmem_node::recording::Routine;

use super::{Job, told};

/// Points of a line.
const POINTS: u64 = 400;

told! {
    /// Queue pairs over time, as PEs saw connections open and close.
    struct Connections {
        /// The moments of the first and the last point, between which the others are evenly.
        from: u64,
        to: u64,
        /// Of all PEs, the most within each point.
        sum: Vec<u64>,
        /// The PE that had most at a time, and how many.
        busiest: u32,
        most: u64,
        /// Its own.
        own: Vec<u64>,
    }
}

pub(super) fn connections(job: &Job<'_>) -> Option<Connections> {
    let mut changes: Vec<(u64, u32, u64)> = Vec::new();
    for recording in job.recordings {
        let links = recording.events.iter();
        let links = links.filter(|e| matches!(e.routine, Routine::Connect | Routine::Disconnect));
        changes.extend(links.map(|e| (e.end.saturating_sub(job.base()), recording.rank, e.bytes)));
    }
    // Of one PE and moment in the order in which they were recorded.
    changes.sort_by_key(|&(at, pe, _)| (at, pe));
    let &(most, busiest) = &changes
        .iter()
        .map(|&(_, pe, open)| (open, pe))
        .max_by_key(|&(open, pe)| (open, u32::MAX - pe))?;
    let (first, last) = (changes[0].0, changes[changes.len() - 1].0);
    let exited = job.launcher.exited.saturating_sub(job.base());
    let (from, to) = (first, last.max(exited));
    let mut open: HashMap<u32, u64> = HashMap::new();
    let (mut all, mut own) = (Line::new(from, to), Line::new(from, to));
    let mut sum = 0u64;
    for (at, pe, now) in changes {
        let before = open.insert(pe, now).unwrap_or(0);
        sum = sum.saturating_sub(before).saturating_add(now);
        all.set(at, sum);
        if pe == busiest {
            own.set(at, now);
        }
    }
    Some(Connections {
        from,
        to,
        sum: all.finish(),
        busiest,
        most,
        own: own.finish(),
    })
}

/// A value over time, the most within each point.
struct Line {
    from: u64,
    width: u64,
    points: Vec<u64>,
    value: u64,
}

impl Line {
    fn new(from: u64, to: u64) -> Self {
        Self {
            from,
            width: (to.saturating_sub(from) / POINTS).saturating_add(1),
            points: Vec::new(),
            value: 0,
        }
    }

    fn set(&mut self, at: u64, value: u64) {
        let point = (at.saturating_sub(self.from) / self.width).min(POINTS - 1) as usize;
        if self.points.len() <= point {
            self.points.resize(point + 1, self.value);
        }
        self.value = value;
        self.points[point] = self.points[point].max(value);
    }

    fn finish(mut self) -> Vec<u64> {
        self.points.resize(POINTS as usize, self.value);
        self.points
    }
}
