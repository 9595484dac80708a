//! What all PEs agree on before a run: how the grid is cut, in which batches sweeps go through it,
//! and where messages land.

use super::constants::EQUATIONS;
use super::directions::{DIRECTIONS, X, Y, Z};
use super::faces::Side;
use super::field::{GHOST, Layout};
use super::partition::{Cell, Partition};
use super::pipeline::{Pipeline, Task};
use super::scheme::{Pack, Scheme};
use super::sweep::{Part, padded};
use crate::simd::LANES;

/// How far messages go, which decides how large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All PEs are on one node.
    Node,
    /// Some messages go through a network.
    Network,
}

/// What a PE has stored on the average, if a node has all: most of what a core has for itself, 1 MiB
/// on processors of today. Smaller batches would stay nearer to the core, but where PEs outnumber
/// cores each of them is a switch from one PE to another, which costs as much as some chunks.
const STORED_BYTES: usize = 768 << 10;

/// A message through a network: what travels in the several microseconds that any message costs
/// there. With larger ones the PEs at the end of a line begin later.
const MESSAGE_BYTES: usize = 48 << 10;

/// The plan of a job.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    partition: Partition,
    pipelines: [Pipeline; DIRECTIONS],
}

impl Plan {
    /// The plan for scheme `S`.
    #[must_use]
    pub fn new<S: Scheme>(partition: Partition, reach: Reach) -> Self {
        Self::with_batches(partition, |direction| match reach {
            Reach::Node => {
                let (_, longest) = partition.interiors(direction);
                let chunk = padded(longest) * words_a_point::<S>() * size_of::<f64>();
                let stages = partition.stages(direction);
                // 1 + 3 + 5 + ... for a cell at each stage, or a part of that.
                let stored = (stages * stages - 1) * partition.cells_a_pe() * chunk / stages;
                STORED_BYTES / stored.max(1)
            }
            Reach::Network => MESSAGE_BYTES / (S::Forward::LEN * LANES * size_of::<f64>()),
        })
    }

    /// The plan with batches of so many chunks in each direction, or 1.
    pub(super) fn with_batches(partition: Partition, wanted: impl Fn(usize) -> usize) -> Self {
        let interiors: [_; DIRECTIONS] = std::array::from_fn(|d| partition.interiors(d));
        let pipelines = std::array::from_fn(|direction| {
            let (outer, inner) = match direction {
                X => (interiors[Z], interiors[Y]),
                Y => (interiors[Z], interiors[X]),
                _ => (interiors[Y], interiors[X]),
            };
            let least = outer.0 * inner.0.div_ceil(LANES);
            let most = outer.1 * inner.1.div_ceil(LANES);
            let stages = partition.stages(direction);
            Pipeline::new(stages, least, most, wanted(direction))
        });
        Self {
            partition,
            pipelines,
        }
    }

    /// How the grid is cut.
    #[must_use]
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The batches of the sweeps along `direction`.
    #[must_use]
    pub fn pipeline(&self, direction: usize) -> Pipeline {
        self.pipelines[direction]
    }

    /// Points that `cell` stores at most between elimination and substitution.
    #[must_use]
    pub fn stored_points(&self, cell: &Cell) -> usize {
        let open = (0..DIRECTIONS).filter(|&d| !cell.high[d]);
        open.map(|d| {
            let pipeline = self.pipelines[d];
            let chunks = pipeline.stored(cell.coordinates[d]) * pipeline.largest();
            chunks * padded(cell.interior(d).len())
        })
        .max()
        .unwrap_or(0)
    }

    /// The landing slot of the faces that come from the neighbour on `side`.
    #[must_use]
    pub fn face_slot(direction: usize, side: Side) -> usize {
        2 * direction + usize::from(side == Side::High)
    }

    /// The landing slot of what `task` waits for: from the cell before its own or, on the way back,
    /// from the one after it.
    #[must_use]
    pub fn slot(&self, direction: usize, task: Task) -> usize {
        let before = self.pipelines[..direction].iter();
        let start = 2 * DIRECTIONS + 2 * before.map(|p| p.slots(p.stages() - 1)).sum::<usize>();
        let pipeline = self.pipelines[direction];
        let (from, way) = match task.part {
            Part::Backward => (task.stage, pipeline.slots(pipeline.stages() - 1)),
            Part::Forward | Part::Whole => (task.stage - 1, 0),
        };
        start + way + pipeline.slots(from) + task.batch % pipeline.stored(from)
    }

    /// The sizes of the landing slots, the same on all PEs; none for a single PE.
    #[must_use]
    pub fn slot_sizes<S: Scheme>(&self) -> Vec<usize> {
        if self.partition.n_pes() == 1 {
            return Vec::new();
        }
        let interiors: [_; DIRECTIONS] = std::array::from_fn(|d| self.partition.interiors(d).1);
        let mut sizes = Vec::new();
        for direction in 0..DIRECTIONS {
            let stages = self.partition.stages(direction);
            // A PE with a cell at each stage sends to either side from all but one.
            let cells = (stages - 1).min(self.partition.cells_a_pe());
            let across = (0..DIRECTIONS).filter(|&d| d != direction);
            let lines: usize = across.map(|d| interiors[d]).product();
            sizes.extend([cells * lines * GHOST * EQUATIONS; 2]);
        }
        for pipeline in self.pipelines {
            let slots = pipeline.slots(pipeline.stages() - 1);
            let lines = pipeline.largest() * LANES;
            sizes.extend(std::iter::repeat_n(lines * S::Forward::LEN, slots));
            sizes.extend(std::iter::repeat_n(lines * S::Backward::LEN, slots));
        }
        sizes
    }

    /// Bytes that a PE needs at most, landing slots included.
    #[must_use]
    pub fn memory<S: Scheme>(&self) -> u64 {
        let partition = &self.partition;
        let size = std::array::from_fn(|d| partition.span(d, 0).len());
        let field = Layout::<EQUATIONS>::new(size, 2).len();
        let cells = partition.cells_a_pe();
        // u, right-hand side and forcing. While the forcing of the last cell is made, there are two
        // fields more, and its right-hand side is not there yet.
        let fields = (3 * cells + 1) * field;
        let first = partition.cell([0; DIRECTIONS]);
        let mut points = 0;
        for (d, pipeline) in self.pipelines.iter().enumerate() {
            if pipeline.stages() > 1 {
                let chunks = pipeline.stored(0) * pipeline.largest();
                points = points.max(chunks * padded(first.size[d]));
            }
        }
        let stored = cells * points * words_a_point::<S>();
        // Slots, and what is being packed and unpacked.
        let sizes = self.slot_sizes::<S>();
        let messages = sizes.iter().sum::<usize>() + 2 * sizes.iter().max().unwrap_or(&0);
        ((fields + stored + messages) * size_of::<f64>()) as u64
    }
}

/// Numbers that a point of a chunk takes between elimination and substitution.
const fn words_a_point<S: Scheme>() -> usize {
    (EQUATIONS + S::Kept::LEN) * LANES
}
