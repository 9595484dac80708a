//! In which order a PE eliminates and substitutes: the lines of a sweep in batches, which follow
//! each other through the cells.
//!
//! Elimination runs through the cells of a line and substitution back, so what substitution needs
//! of a cell is stored until the wave comes back to it. For all lines of a cell that is more than
//! a cache holds. So the lines of a sweep are cut into *batches* of few chunks, and of each batch
//! the wave moves on by one cell a *tick*. With P stages, at tick t
//!
//! * stage s eliminates batch t - s, and the last one substitutes it at once,
//! * then stage s < P - 1 substitutes batch t - (2 (P - 1) - s).
//!
//! What a stage has stored at a time is 2 (P - 1 - s) + 1 batches. Each message is one batch's,
//! and is waited for in the tick after the one in which it was sent: it travels while other batches
//! are computed, and nobody waits for ever, since a tick needs nothing but what the one before sent.
//!
//! # Landing slots
//!
//! Messages between stages s and s + 1 land in rings of as many slots as stage s stores batches at a
//! time, K = 2 (P - 1 - s) + 1, in which batches take turns, one ring on either side. Let a own the
//! cell at stage s and b the one after it.
//!
//! * *Forward.* a eliminates batch i in the tick after it has substituted batch i - K, with a
//!   backward message that b sent after it had taken the forward one of the same batch.
//! * *Backward.* b substitutes batch i after it has taken its forward message, which a sent, as said,
//!   after it had taken the backward message of batch i - K.

use super::sweep::Part;
use std::ops::Range;

/// The batches of the sweeps in one direction, of all PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    stages: usize,
    batches: usize,
    /// Chunks of the largest batch.
    largest: usize,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// In the cell at this stage.
    pub stage: usize,
    /// What.
    pub part: Part,
    /// Of which lines.
    pub batch: usize,
}

impl Pipeline {
    /// Through `stages` cells of `least` to `most` chunks, with batches of about `wanted` chunks.
    #[must_use]
    pub fn new(stages: usize, least: usize, most: usize, wanted: usize) -> Self {
        let batches = match stages {
            1 => 1,
            _ => (least / wanted.max(1)).max(1),
        };
        Self {
            stages,
            batches,
            largest: most.div_ceil(batches),
        }
    }

    /// Cells of a line.
    #[must_use]
    pub fn stages(&self) -> usize {
        self.stages
    }

    /// Chunks of the largest batch.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// The chunks of `batch` in a cell with so many.
    #[must_use]
    pub fn chunks(&self, batch: usize, of: usize) -> Range<usize> {
        batch * of / self.batches..(batch + 1) * of / self.batches
    }

    /// Batches of which the cell at `stage` stores something at a time; also landing slots each way
    /// between it and the next one.
    #[must_use]
    pub fn stored(&self, stage: usize) -> usize {
        (2 * (self.stages - 1 - stage) + 1).min(self.batches)
    }

    /// Landing slots, one way, of all cells before `stage` and those that follow them.
    #[must_use]
    pub fn slots(&self, stage: usize) -> usize {
        (0..stage).map(|s| self.stored(s)).sum()
    }

    /// What is to be done at all stages, in order. A PE leaves out the stages where it has no cell.
    pub fn tasks(self) -> impl Iterator<Item = Task> {
        let last = self.stages - 1;
        (0..self.batches + 2 * last).flat_map(move |tick| {
            let task = move |stage, part, delay| {
                let batch = tick.checked_sub(delay).filter(|b| *b < self.batches)?;
                Some(Task { stage, part, batch })
            };
            let there = (0..last).filter_map(move |stage| task(stage, Part::Forward, stage));
            let back = (0..last).rev();
            let back = back.filter_map(move |stage| task(stage, Part::Backward, 2 * last - stage));
            there.chain(task(last, Part::Whole, last)).chain(back)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn waves_go_there_and_back_and_nothing_is_stored_too_long(
            stages in 1usize..6,
            least in 1usize..20,
            more in 0usize..20,
            wanted in 1usize..6,
        ) {
            let pipeline = Pipeline::new(stages, least, least + more, wanted);
            let mut eliminated = vec![0; stages];
            let mut substituted = vec![0; stages];
            for Task { stage, part, batch } in pipeline.tasks() {
                if part != Part::Backward {
                    prop_assert_eq!((part == Part::Whole, eliminated[stage]), (stage + 1 == stages, batch));
                    prop_assert!(stage == 0 || eliminated[stage - 1] > batch);
                    eliminated[stage] += 1;
                }
                if part != Part::Forward {
                    prop_assert_eq!(substituted[stage], batch);
                    prop_assert!(stage + 1 == stages || substituted[stage + 1] > batch);
                    substituted[stage] += 1;
                }
                // Before a batch is substituted it is stored, too.
                let stored = eliminated[stage] - substituted[stage] + usize::from(part == Part::Backward);
                prop_assert!(stored <= pipeline.stored(stage));
            }
            prop_assert!(eliminated.iter().chain(&substituted).all(|n| *n == pipeline.batches));
        }

        #[test]
        fn batches_cover_all_chunks(least in 1usize..50, more in 0usize..20, wanted in 1usize..9) {
            let pipeline = Pipeline::new(2, least, least + more, wanted);
            let mut next = 0;
            for batch in 0..pipeline.batches {
                let chunks = pipeline.chunks(batch, least + more);
                prop_assert_eq!(chunks.start, next);
                prop_assert!((1..=pipeline.largest()).contains(&chunks.len()));
                next = chunks.end;
            }
            prop_assert_eq!(next, least + more);
        }
    }
}
