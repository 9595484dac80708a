//! A step over a block: what needs no halo while the halos travel, and then the rest.
//!
//! Points are told apart by how far they are from the nearest neighbour. Those next to one, at distance 0, need its
//! halo; all others do not. An edge of the plate is no neighbour: where nothing is awaited nothing is left for
//! later.

use std::ops::Range;

use crate::blocks::{Block, EAST, NORTH, SOUTH, WEST};
use crate::field::{Area, Field};
use crate::options::Method;
use crate::plate::{BLACK, Plate, RED};

/// How a block comes to its halos.
pub(crate) trait Exchange {
    /// Sends the outermost points of a colour to the neighbours on all sides, does `meanwhile` while these and
    /// theirs are under way, and takes theirs into the rim. Messages are numbered; number 0 is what the rim has in
    /// the beginning, and nothing is sent.
    fn exchange(
        &mut self,
        number: u64,
        field: &mut Field,
        colour: usize,
        meanwhile: impl FnOnce(&mut Field),
    );
}

/// A block, and the way to its next step.
pub(crate) struct Sweep {
    pub(crate) field: Field,
    /// Jacobi's method computes the next step's field in another one. Its rim has the same edges.
    next: Option<Field>,
    areas: Areas,
}

/// The parts of a block in which points are computed together.
struct Areas {
    /// All points at distance 1 or more, and at distance 2 or more.
    inside: [Area; 2],
    /// Those at distance 0, and at distance 1: above, below, on the left and on the right.
    rings: [[Area; 4]; 2],
}

impl Sweep {
    /// Bytes of the fields of a block.
    pub(crate) fn bytes(method: Method, rows: usize, cols: usize) -> usize {
        let fields = if method == Method::Jacobi { 2 } else { 1 };
        Field::bytes(rows, cols).saturating_mul(fields)
    }

    pub(crate) fn new(plate: &Plate, block: &Block, method: Method) -> Self {
        // Jacobi's method makes no difference between colours.
        let one_colour = method == Method::Jacobi;
        let field = Field::new(plate, block, if one_colour { 1 } else { 2 });
        Self {
            next: one_colour.then(|| field.clone()),
            areas: Areas::new(block),
            field,
        }
    }

    /// Step `step`, from 1 on. Gives the sum of the squares of all changes where it is told what to round each by.
    pub(crate) fn step(
        &mut self,
        step: u64,
        halo: &mut impl Exchange,
        rounding: Option<f64>,
    ) -> f64 {
        let Self { field, next, areas } = self;
        match next {
            Some(next) => {
                next.sum_changes(rounding);
                areas.jacobi(field, next, step, halo);
                std::mem::swap(field, next);
            }
            None => {
                field.sum_changes(rounding);
                areas.red_black(field, step, halo);
            }
        }
        field.change()
    }
}

impl Areas {
    fn jacobi(&self, now: &mut Field, next: &mut Field, step: u64, halo: &mut impl Exchange) {
        let mut compute = |now: &Field, area: &Area| {
            for row in area.rows.clone() {
                next.update_from(now, row, &area.cols);
            }
        };
        halo.exchange(step - 1, now, RED, |now| compute(now, &self.inside[0]));
        self.rings[0].iter().for_each(|area| compute(now, area));
    }

    /// All red points, then all black ones. Inside, both are computed in one pass, the black ones a row behind, so that
    /// rows come from memory once. The red points next to neighbours are computed and sent in the middle of it: the upper
    /// half is done while the black halo of the last step travels, the lower one while the red halo does.
    fn red_black(&self, field: &mut Field, step: u64, halo: &mut impl Exchange) {
        let [red, black] = &self.inside;
        let black_row = |field: &mut Field, row| {
            if black.rows.contains(&row) {
                field.update(BLACK, row, &black.cols);
            }
        };
        let pass = |field: &mut Field, rows: Range<usize>| {
            for row in rows {
                field.update(RED, row, &red.cols);
                black_row(field, row - 1);
            }
        };
        let ring = |field: &mut Field, colour, ring: &[Area]| {
            for area in ring {
                for row in area.rows.clone() {
                    field.update(colour, row, &area.cols);
                }
            }
        };
        let middle = red.rows.start.midpoint(red.rows.end);
        let number = 2 * step - 2;
        halo.exchange(number, field, BLACK, |field| {
            pass(field, red.rows.start..middle);
        });
        ring(field, RED, &self.rings[0]);
        halo.exchange(number + 1, field, RED, |field| {
            pass(field, middle..red.rows.end);
            if let Some(last) = red.rows.clone().next_back() {
                black_row(field, last);
            }
            ring(field, BLACK, &self.rings[1]);
        });
        ring(field, BLACK, &self.rings[0]);
    }

    fn new(block: &Block) -> Self {
        let inside = |distance| inside(block, distance);
        let ring = |distance| ring(inside(distance), inside(distance + 1));
        Self {
            inside: [inside(1), inside(2)],
            rings: [ring(0), ring(1)],
        }
    }
}

/// All points of a block but those nearer than `distance` to a neighbour.
fn inside(block: &Block, distance: usize) -> Area {
    let off = block
        .neighbours
        .map(|pe| if pe.is_some() { distance } else { 0 });
    let area = Area {
        rows: 1 + off[NORTH]..(block.rows.len() + 1).saturating_sub(off[SOUTH]),
        cols: 1 + off[WEST]..(block.cols.len() + 1).saturating_sub(off[EAST]),
    };
    if area.is_empty() { Area::NONE } else { area }
}

/// The points of `outer` that are not in `inner`.
fn ring(outer: Area, inner: Area) -> [Area; 4] {
    if inner.is_empty() {
        return [outer, Area::NONE, Area::NONE, Area::NONE];
    }
    let (rows, cols) = (inner.rows, inner.cols);
    let area = |rows, cols: Range<usize>| match cols.is_empty() {
        true => Area::NONE,
        false => Area { rows, cols },
    };
    [
        area(outer.rows.start..rows.start, outer.cols.clone()),
        area(rows.end..outer.rows.end, outer.cols.clone()),
        area(rows.clone(), outer.cols.start..cols.start),
        area(rows, cols.end..outer.cols.end),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Blocks;
    use crate::options::Shape;

    /// The points of a block, by how often areas have them.
    fn counts(block: &Block, areas: &[Area]) -> Vec<usize> {
        let (rows, cols) = (block.rows.len(), block.cols.len());
        let mut counts = vec![0; rows * cols];
        for area in areas {
            for row in area.rows.clone() {
                area.cols
                    .clone()
                    .for_each(|col| counts[(row - 1) * cols + col - 1] += 1);
            }
        }
        counts
    }

    #[test]
    fn inside_and_rings_make_up_the_block() {
        for (rows, cols) in [(1, 9), (3, 3), (6, 7), (20, 25)] {
            for n in 1..=9 {
                let blocks = Blocks::new(Shape { rows, cols }, n);
                for block in (0..n).filter_map(|pe| blocks.block(pe)) {
                    let Areas {
                        inside: [first, second],
                        rings: [near, far],
                    } = Areas::new(&block);
                    let all = [&near[..], &far[..], &[second]].concat();
                    assert!(counts(&block, &all).iter().all(|&n| n == 1), "{block:?}");
                    let all = [&near[..], &[first]].concat();
                    assert!(counts(&block, &all).iter().all(|&n| n == 1), "{block:?}");
                }
            }
        }
    }

    #[test]
    fn without_neighbours_nothing_is_left_for_later() {
        let block = Blocks::new(Shape { rows: 4, cols: 5 }, 1).block(0).unwrap();
        let areas = Areas::new(&block);
        assert_eq!(
            areas.inside[0],
            Area {
                rows: 1..5,
                cols: 1..6
            }
        );
        assert!(areas.rings.iter().flatten().all(Area::is_empty));
    }
}
