//! What must hold of every result.

use crate::blocks::Block;
use crate::field::Field;
use crate::options::Options;
use crate::plain::Plain;
use crate::plate::{HOT, Plate};
use crate::solve::Solution;

/// Points that all PEs together compute once more, at most, and those that they have in memory for it.
const AFFORDABLE: u128 = 1 << 28;
const ROOM: u128 = 1 << 24;

/// What a result was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verified {
    /// With a plain loop nest over the whole plate.
    Serial,
    /// With what is known of the decay of a mode.
    Mode,
    /// With the lowest and the highest temperature that there may be.
    Bounds,
}

impl Verified {
    /// As it is in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Mode => "mode",
            Self::Bounds => "bounds",
        }
    }
}

/// Compares this PE's block with all that is known of it, and gives what says most.
///
/// # Panics
/// If it is wrong.
pub(crate) fn verify(
    plate: &Plate,
    options: &Options,
    part: Option<(&Block, &Field)>,
    solution: &Solution,
    n_pes: usize,
) -> Verified {
    let compare = |what: &str,
                   tolerance: f64,
                   wanted: &dyn Fn(&Field, usize, usize) -> [f64; 2]| {
        let Some((block, field)) = part else { return };
        for (row, col) in (1..=field.rows).flat_map(|r| (1..=field.cols).map(move |c| (r, c))) {
            let (value, [low, high]) = (field.at(row, col), wanted(field, row, col));
            assert!(
                value >= low - tolerance && value <= high + tolerance,
                "row {}, column {} of the plate is {value:e} after {} steps, {what} {low:e} to {high:e}",
                block.rows.start + row - 1,
                block.cols.start + col - 1,
                solution.steps,
            );
        }
    };
    let bounds = plate.bounds();
    compare("and temperatures are", 1e-9, &|_, _, _| bounds);
    let points = plate.size.points() as u128 * n_pes as u128;
    let mut verified = Verified::Bounds;
    if plate.mode.is_some() {
        let decay = [0, 1].map(|colour| plate.decayed(options.method, solution.steps, colour));
        // Sines and powers are not exact to the last bit. No step makes errors larger, and each adds a bit or two.
        let tolerance = HOT * f64::EPSILON * (64.0 + 2.0 * solution.steps as f64);
        let start = |row, col| plate.start(row, col);
        if let (Some((block, _)), [Some(red), Some(black)]) = (part, decay) {
            compare("and the mode has", tolerance, &|field, row, col| {
                let start = start(block.rows.start + row, block.cols.start + col);
                [start * [red, black][field.colour(row, col)]; 2]
            });
        }
        verified = Verified::Mode;
    }
    if points <= ROOM && points * u128::from(solution.steps) <= AFFORDABLE {
        if let Some((block, _)) = part {
            let mut plain = Plain::whole(plate, options.method, solution.seen - 1);
            let (sum, seen) = (plain.step_and_change(), solution.change.powi(2));
            assert!(
                (sum - seen).abs() <= 1e-9 * sum + solution.error,
                "the squares of the changes of step {} add up to {seen:e}, with an error of {:e}, and in a plain loop \
                 nest to {sum:e}",
                solution.seen,
                solution.error,
            );
            plain.run(solution.steps - solution.seen);
            compare("a plain loop nest makes it", 0.0, &|_, row, col| {
                [plain.at(block.rows.start + row, block.cols.start + col); 2]
            });
        }
        verified = Verified::Serial;
    }
    verified
}
