//! The time loop. It has no barrier, and nothing in it waits for anything but halos and, long after it was begun, a
//! sum.

use std::time::{Duration, Instant};

use shmem::World;

use crate::blocks::Block;
use crate::field::Field;
use crate::halo::Halo;
use crate::options::Options;
use crate::plate::Plate;
use crate::room::Room;
use crate::sums::{self, Sums};
use crate::sweep::Sweep;

/// Steps from one look at the change to the next, which begins when the sum of this one is known. Of a hundred PEs
/// it has come back by then, a hop a step; of more, the last hops are waited for.
const INTERVAL: u64 = 32;

/// What has come out of it, on all PEs alike but for the field.
pub(crate) struct Solution {
    /// That of the own block.
    pub(crate) field: Option<Field>,
    /// Steps that were done.
    pub(crate) steps: u64,
    /// The last step whose change is known, and that change.
    pub(crate) seen: u64,
    pub(crate) change: f64,
    /// So much more the sum of its squares may be, which was rounded.
    pub(crate) error: f64,
    /// Of the slowest PE.
    pub(crate) seconds: f64,
    /// That all PEs put in all steps.
    pub(crate) bytes: u64,
}

impl Solution {
    /// Whether the change is small enough, whatever was lost when it was rounded.
    pub(crate) fn converged(&self, tolerance: f64) -> bool {
        is_small(self.change.powi(2), self.error, tolerance)
    }
}

/// What one PE knows of the end.
#[derive(Clone, Copy, Default)]
struct End {
    steps: u64,
    seen: u64,
    change: f64,
    error: f64,
    bytes: u64,
}

/// Computes until the plate hardly changes. Collective; PEs without a block only wait for the others.
pub(crate) fn solve(
    world: &World,
    plate: &Plate,
    options: &Options,
    block: Option<&Block>,
    room: &Room,
) -> Solution {
    let mut sweep = block.map(|block| Sweep::new(plate, block, options.method));
    world.barrier();
    let begin = Instant::now();
    let end = match (block, &mut sweep) {
        (Some(block), Some(sweep)) => {
            let halo = Halo::new(block, room.places, room.longest, room.come.at(..4));
            let sums = Sums::new(block.clone(), room.values, room.come.at(4..));
            steps(plate, options, sweep, halo, sums)
        }
        _ => End::default(),
    };
    let seconds = begin.elapsed().as_secs_f64();
    // PE 0 has a block.
    let [steps, seen] = world.broadcast_value([end.steps, end.seen], 0);
    let [change, error] = world.broadcast_value([end.change, end.error], 0);
    Solution {
        field: sweep.map(|sweep| sweep.field),
        steps,
        seen,
        change,
        error,
        seconds: world.max(seconds),
        bytes: world.sum(end.bytes),
    }
}

fn steps(
    plate: &Plate,
    options: &Options,
    sweep: &mut Sweep,
    mut halo: Halo,
    mut sums: Sums,
) -> End {
    let mut end = End::default();
    let mut bound = plate.largest_change();
    let mut progress = Progress::new(options);
    for step in 1..=options.steps {
        let look = step % INTERVAL == 0 || step == options.steps;
        if look && sums.is_pending() {
            let sum = sums.take();
            end.change = sum.sqrt();
            if is_small(sum, end.error, options.tolerance) {
                break;
            }
            bound = next_bound(sum, end.error);
            progress.at(step - 1, end.change);
        }
        let change = sweep.step(step, &mut halo, look.then(|| sums::rounding(bound)));
        end.steps = step;
        if look {
            sums.contribute(change);
            end.seen = step;
            end.error = error(bound, plate.size.points());
        } else {
            sums.advance();
        }
    }
    if sums.is_pending() {
        end.change = sums.take().sqrt();
    }
    end.bytes = halo.bytes + sums.bytes;
    end
}

fn is_small(sum: f64, error: f64, tolerance: f64) -> bool {
    (sum + error).sqrt() <= tolerance
}

/// How much too small a sum over all points may be, whose squares are rounded as `bound` asks for.
fn error(bound: f64, points: usize) -> f64 {
    bound * sums::UNIT * points as f64
}

/// What no later sum of squared changes exceeds, if this was one.
///
/// The change of a step is that of the step before, multiplied by a matrix. Jacobi's, which is symmetric, has a norm
/// below 1, and so has each of its two parts from one colour to the other: sums only get smaller, but that the
/// second one of a method by colours may be twice the first.
fn next_bound(sum: f64, error: f64) -> f64 {
    4.0 * (sum + error)
}

/// Tells how far it has come, on PE 0, each second.
struct Progress {
    speaks: bool,
    tolerance: f64,
    last: Instant,
}

impl Progress {
    fn new(options: &Options) -> Self {
        use std::io::IsTerminal;
        let wanted = options.progress || std::io::stderr().is_terminal();
        Self {
            speaks: wanted && shmem::my_pe() == 0,
            tolerance: options.tolerance,
            last: Instant::now(),
        }
    }

    fn at(&mut self, steps: u64, change: f64) {
        if self.speaks && self.last.elapsed() >= Duration::from_secs(1) {
            self.last = Instant::now();
            eprintln!(
                "heat2d: {steps} steps, the last change is {change:.3e}, it ends at {:.3e}",
                self.tolerance
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Method, Shape};
    use crate::plain::Plain;

    /// Sums of all steps stay below their bounds, however far apart the steps are.
    #[test]
    fn no_change_exceeds_its_bound() {
        let shapes = [(1, 1), (2, 9), (7, 8), (12, 5)];
        for (size, mode) in shapes.into_iter().flat_map(|(rows, cols)| {
            let size = Shape { rows, cols };
            [
                (size, None),
                (size, Some(size)),
                (size, Some(Shape { rows: 1, cols: 1 })),
            ]
        }) {
            let plate = Plate { size, mode };
            for method in [Method::RedBlack, Method::Jacobi] {
                for interval in [1, 3] {
                    let mut bound = plate.largest_change();
                    let mut plain = Plain::whole(&plate, method, 0);
                    for step in 1..40 {
                        let sum = plain.step_and_change();
                        assert!(
                            sum <= bound,
                            "{size} {mode:?} {method:?} {step}: {sum} {bound}"
                        );
                        if step % interval == 0 {
                            bound = next_bound(sum, error(bound, size.points()));
                        }
                    }
                }
            }
        }
    }
}
