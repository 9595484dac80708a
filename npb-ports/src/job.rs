//! Figures that all PEs find together: sums of norms and counts, the time of the slowest PE in the timed region.

use shmem::{Max, ReduceOp, Sum, SymSlice};
use std::cell::Cell;
use std::time::Instant;

/// Meets all PEs, and starts the clock of the timed region.
#[must_use]
pub fn begin() -> Instant {
    shmem::barrier_all();
    Instant::now()
}

/// Room in the symmetric heap for reducing a few numbers over all PEs.
///
/// A few dozen numbers go between nodes by recursive doubling, or, where one machine emulates more
/// than eight, along the tree on which barriers run, too; a benchmark that reduces no more at a time
/// has few other connections for it. Every reduction is collective: all PEs call it, in the same
/// order, with as many numbers.
#[derive(Debug)]
pub struct Reduction {
    part: SymSlice<f64>,
    /// Results land in turn in the one half and in the other. A PE that is fast may begin the next
    /// reduction while another has yet to read the result of this one; but nobody begins the one
    /// after that before all have come to the next.
    wholes: SymSlice<f64>,
    second: Cell<bool>,
}

impl Reduction {
    /// Makes room for `most` numbers at a time. All PEs call this together, before the timed region.
    ///
    /// # Errors
    /// If the symmetric heap has no room for three times as many numbers.
    pub fn new(most: usize) -> Result<Self, shmem::Error> {
        let part = shmem::alloc::<f64>(most)?;
        match shmem::alloc::<f64>(2 * most) {
            Ok(wholes) => Ok(Self {
                part,
                wholes,
                second: Cell::new(false),
            }),
            Err(error) => {
                shmem::free(part)?;
                Err(error)
            }
        }
    }

    /// Replaces each of `values` by its sum over all PEs, the same on every PE to the last bit.
    ///
    /// # Panics
    /// If there are more values than room was made for.
    pub fn sums(&self, values: &mut [f64]) {
        self.reduce(values, Sum);
    }

    /// Replaces each of `values` by the largest of any PE. What is not a number may get lost.
    ///
    /// # Panics
    /// As [`sums`](Self::sums).
    pub fn maxima(&self, values: &mut [f64]) {
        self.reduce(values, Max);
    }

    /// The sum of `value` over all PEs.
    #[must_use]
    pub fn sum(&self, value: f64) -> f64 {
        let mut values = [value];
        self.sums(&mut values);
        values[0]
    }

    /// Seconds since `start` on the slowest PE.
    #[must_use]
    pub fn slowest(&self, start: Instant) -> f64 {
        self.max(start.elapsed().as_secs_f64())
    }

    /// The largest `value` of any PE.
    #[must_use]
    pub fn max(&self, value: f64) -> f64 {
        let mut values = [value];
        self.maxima(&mut values);
        values[0]
    }

    fn reduce(&self, values: &mut [f64], op: impl ReduceOp<f64>) {
        let start = if self.second.get() {
            self.part.len()
        } else {
            0
        };
        self.second.set(!self.second.get());
        let part = self.part.at(..values.len());
        let whole = self.wholes.at(start..start + values.len());
        part.write_from(values);
        shmem::reduce(whole, part, op);
        whole.read_to(values);
    }

    /// Gives the room back. All PEs call this together.
    ///
    /// # Errors
    /// If the runtime finds its heap damaged.
    pub fn free(self) -> Result<(), shmem::Error> {
        shmem::free(self.wholes)?;
        shmem::free(self.part)
    }
}
