//! A sweep through some lines of a cell, in chunks of eight.
//!
//! A chunk's `u` and right-hand side are gathered into scratch, the scheme works on them, and
//! the result is put back. In the last cell of a line, which on a single PE is the only one,
//! elimination and substitution follow each other while the scratch is in cache. In other cells
//! what the scheme leaves after the elimination is stored, chunk by chunk, until the substitution.

use super::constants::EQUATIONS;
use super::directions::{X, Y, Z};
use super::field::{Field, Rows, chunks};
use super::partition::Cell;
use super::rhs::Operator;
use super::scheme::{Ends, Pack, Point, Scheme};
use crate::cpu::{Kernel, Level};
use crate::simd::{F64x8, LANES};
use std::io;
use std::ops::Range;

const ZERO: Point = [F64x8::splat(0.0); EQUATIONS];

/// A cell with its data.
#[derive(Debug)]
pub struct Block<S: Scheme> {
    /// Which cell.
    pub cell: Cell,
    /// The state, with ghosts.
    pub u: Field<EQUATIONS>,
    /// The right-hand side, and what the sweeps make of it.
    pub rhs: Field<EQUATIONS>,
    /// dt times the forcing.
    pub forcing: Field<EQUATIONS>,
    /// The right-hand side of this cell.
    pub operator: Operator,
    /// Between elimination and substitution.
    stored: Lines<S>,
}

impl<S: Scheme> Block<S> {
    /// A block whose state is `u`, that can store `points` points between elimination and
    /// substitution.
    ///
    /// # Errors
    /// If the system has no memory for what the sweeps store.
    pub fn new(
        cell: Cell,
        u: Field<EQUATIONS>,
        forcing: Field<EQUATIONS>,
        operator: Operator,
        points: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            cell,
            rhs: Field::new(cell.layout(), [0.0; EQUATIONS])?,
            u,
            forcing,
            operator,
            stored: Lines::new(points)?,
        })
    }
}

/// Points for a line of `len`, so that blocks of eight can be transposed into it.
#[must_use]
pub fn padded(len: usize) -> usize {
    len.next_multiple_of(LANES)
}

/// The ranges across `direction`: of planes, and of lines within a plane, eight of which make a
/// chunk.
fn extent(cell: &Cell, direction: usize) -> (Range<usize>, Range<usize>) {
    match direction {
        X => (cell.interior(Z), cell.interior(Y)),
        Y => (cell.interior(Z), cell.interior(X)),
        _ => (cell.interior(Y), cell.interior(X)),
    }
}

/// Chunks of all lines of `cell` along `direction`, plane by plane.
#[must_use]
pub fn chunks_of(cell: &Cell, direction: usize) -> usize {
    let (outer, inner) = extent(cell, direction);
    outer.len() * inner.len().div_ceil(LANES)
}

/// Those of plane `k`, in a direction that stays within it.
#[must_use]
pub fn chunks_of_plane(cell: &Cell, direction: usize, k: usize) -> Range<usize> {
    let (outer, inner) = extent(cell, direction);
    let (plane, chunks) = (k - outer.start, inner.len().div_ceil(LANES));
    plane * chunks..(plane + 1) * chunks
}

/// Lines in `chunks`, which are some of [`chunks_of`].
#[must_use]
pub fn lines(cell: &Cell, direction: usize, chunks: Range<usize>) -> usize {
    let inner = extent(cell, direction).1.len();
    let a_plane = inner.div_ceil(LANES);
    let before = |chunk: usize| chunk / a_plane * inner + chunk % a_plane * LANES;
    before(chunks.end) - before(chunks.start)
}

/// Right-hand sides and coefficients of several chunks.
#[derive(Debug)]
struct Lines<S: Scheme> {
    rhs: Vec<Point>,
    kept: Vec<S::Kept>,
}

impl<S: Scheme> Lines<S> {
    fn new(points: usize) -> io::Result<Self> {
        Ok(Self {
            rhs: repeated(ZERO, points)?,
            kept: repeated(S::Kept::ZERO, points)?,
        })
    }

    /// Chunk `index` of lines of `len` points: a padded right-hand side and the coefficients.
    #[inline(always)]
    fn chunk(&mut self, index: usize, len: usize) -> (&mut [Point], &mut [S::Kept]) {
        let (start, size) = (index * padded(len), padded(len));
        (
            &mut self.rhs[start..start + size],
            &mut self.kept[start..start + len],
        )
    }
}

/// `vec![value; len]` that does not end the program where memory does.
fn repeated<T: Copy>(value: T, len: usize) -> io::Result<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(len)?;
    all.resize(len, value);
    Ok(all)
}

/// Scratch for one chunk of lines at a time.
#[derive(Debug)]
pub struct Scratch<S: Scheme> {
    u: Vec<Point>,
    lines: Lines<S>,
}

impl<S: Scheme> Scratch<S> {
    /// Scratch for lines of up to `longest` points.
    ///
    /// # Errors
    /// If the system has no memory for it.
    pub fn new(longest: usize) -> io::Result<Self> {
        Ok(Self {
            // The point before the line, then blocks with the point after it.
            u: repeated(ZERO, 1 + padded(longest + 1))?,
            lines: Lines::new(padded(longest))?,
        })
    }
}

/// Which part of the solution a sweep does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Elimination, in a cell that others follow.
    Forward,
    /// Elimination and substitution, in the last cell.
    Whole,
    /// Substitution, in a cell that others follow.
    Backward,
}

/// A sweep through some lines of a cell.
#[derive(Debug)]
pub struct Sweep<'a, S: Scheme> {
    /// The solver.
    pub scheme: &'a S,
    /// The cell.
    pub block: &'a mut Block<S>,
    /// Scratch.
    pub scratch: &'a mut Scratch<S>,
    /// What to do.
    pub part: Part,
    /// Which lines: some of [`chunks_of`].
    pub chunks: Range<usize>,
    /// Where, in chunks, they are stored between elimination and substitution.
    pub stored_at: usize,
    /// Begins with the message from the cell before (or after it, for [`Part::Backward`]); nothing
    /// is read if there is the boundary of the grid.
    pub incoming: &'a [f64],
    /// Gets the message for the next cell (for [`Part::Forward`]) or the cell before; nothing if
    /// there is the boundary.
    pub outgoing: &'a mut Vec<f64>,
}

/// A scheme with its code for sweeps.
///
/// Each scheme has this method of its own, since a method without type parameters is compiled where the scheme is, and not
/// by each caller.
pub trait Sweeps: Scheme {
    /// Goes through some lines of a cell along `direction`, with the code for `level`, by [`Sweep::run`].
    fn sweep(sweep: Sweep<'_, Self>, direction: usize, level: Level);
}

impl<S: Scheme> Sweep<'_, S> {
    /// Goes through the lines along `direction`, with the code for `level`. [`Sweeps::sweep`] calls this.
    pub fn run(self, direction: usize, level: Level) {
        match direction {
            X => level.run(Along::<S, X>(self)),
            Y => level.run(Along::<S, Y>(self)),
            _ => level.run(Along::<S, Z>(self)),
        }
    }
}

/// A sweep along `D`.
struct Along<'a, S: Scheme, const D: usize>(Sweep<'a, S>);

impl<S: Scheme, const D: usize> Kernel for Along<'_, S, D> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Self(sweep) = self;
        let Block {
            cell,
            u,
            rhs,
            forcing,
            operator,
            stored,
        } = sweep.block;
        let along = cell.interior(D);
        let len = along.len();
        let ends = Ends {
            low: cell.low[D],
            high: cell.high[D],
        };
        let (planes, inner) = extent(cell, D);
        let chunks_a_plane = inner.len().div_ceil(LANES);
        let mut incoming = sweep.incoming;
        let outgoing = sweep.outgoing;
        let around = &mut sweep.scratch.u;

        for (stored_at, index) in (sweep.stored_at..).zip(sweep.chunks) {
            let place = |index| {
                let plane = planes.start + index / chunks_a_plane;
                (inner.start + index % chunks_a_plane * LANES, plane)
            };
            let (line, plane) = place(index);
            let count = (inner.end - line).min(LANES);
            let chunk = Chunk::<D> {
                plane,
                line,
                count,
                end: inner.end,
                next: place(index + 1),
            };
            let (points, kept) = match sweep.part {
                Part::Whole => sweep.scratch.lines.chunk(0, len),
                Part::Forward | Part::Backward => stored.chunk(stored_at, len),
            };
            if sweep.part != Part::Backward {
                chunk.load::<FMA>(u, along.start - 1, len + 2, around);
                if D == X {
                    operator.rows::<FMA>(u, forcing, rhs, line..line + count, plane);
                }
                chunk.load::<FMA>(rhs, along.start, len, points);
                let mut carry = S::Forward::ZERO;
                if !ends.low {
                    unpack(&mut incoming, count, &mut carry);
                }
                sweep.scheme.forward::<D, FMA>(
                    ends,
                    &around[..len + 2],
                    &mut points[..len],
                    kept,
                    &mut carry,
                );
                if !ends.high {
                    pack(&carry, count, outgoing);
                }
            }
            if sweep.part != Part::Forward {
                let mut carry = S::Backward::ZERO;
                if !ends.high {
                    unpack(&mut incoming, count, &mut carry);
                }
                sweep
                    .scheme
                    .backward::<D, FMA>(&mut points[..len], kept, &mut carry);
                if !ends.low {
                    pack(&carry, count, outgoing);
                }
                if D == Z {
                    for (s, solution) in points[..len].iter().enumerate() {
                        let before = if sweep.part == Part::Whole {
                            around[s + 1]
                        } else {
                            let (line, plane) = chunk.next;
                            u.prefetch(line, plane, along.start + s);
                            u.load(chunk.line, chunk.plane, along.start + s)
                        };
                        let mut after = sweep.scheme.change::<FMA>(&before, *solution);
                        for (after, before) in after.iter_mut().zip(&before) {
                            *after += *before;
                        }
                        u.store(line, plane, along.start + s, count, &after);
                    }
                } else {
                    chunk.store::<FMA>(rhs, along.start, len, points);
                }
            }
        }
    }
}

/// Eight lines side by side, along `D`.
#[derive(Clone, Copy, Debug)]
struct Chunk<const D: usize> {
    plane: usize,
    /// The first line in the plane.
    line: usize,
    /// Lines that exist.
    count: usize,
    /// The end of the lines in the plane.
    end: usize,
    /// First line and plane of the chunk that is likely to come next.
    next: (usize, usize),
}

impl<const D: usize> Chunk<D> {
    /// Points `start..start + len` of the lines. `points` is longer by up to 7 for x, where some
    /// of what follows may be read, too.
    #[inline(always)]
    fn load<const FMA: bool>(
        &self,
        field: &Field<EQUATIONS>,
        start: usize,
        len: usize,
        points: &mut [Point],
    ) {
        match D {
            X => {
                let rows = Rows::from(self.line, self.end, self.plane);
                // Blocks begin where vectors are aligned.
                let single = (LANES - field.layout().point(start, 0, 0) % LANES) % LANES;
                for (s, point) in points.iter_mut().enumerate().take(single) {
                    *point = field.load_across(start + s, &rows);
                }
                for (i, _) in chunks(start + single..start + len) {
                    field.load_across_8::<FMA>(i, &rows, &mut points[i - start..]);
                }
            }
            Y => {
                for (s, point) in points[..len].iter_mut().enumerate() {
                    field.load_to(self.line, start + s, self.plane, point);
                    field.prefetch(self.next.0, start + s, self.next.1);
                }
            }
            _ => {
                for (s, point) in points[..len].iter_mut().enumerate() {
                    field.load_to(self.line, self.plane, start + s, point);
                    field.prefetch(self.next.0, self.next.1, start + s);
                }
            }
        }
    }

    /// The way back, for lines that exist.
    #[inline(always)]
    fn store<const FMA: bool>(
        &self,
        field: &mut Field<EQUATIONS>,
        start: usize,
        len: usize,
        points: &[Point],
    ) {
        match D {
            X => {
                let rows = Rows::from(self.line, self.end, self.plane);
                for (i, count) in chunks(start..start + len) {
                    field.store_across_8::<FMA>(i, count, &rows, &points[i - start..]);
                }
            }
            Y => {
                for (s, point) in points[..len].iter().enumerate() {
                    field.store(self.line, start + s, self.plane, self.count, point);
                }
            }
            _ => {
                for (s, point) in points[..len].iter().enumerate() {
                    field.store(self.line, self.plane, start + s, self.count, point);
                }
            }
        }
    }
}

/// Appends the first `count` lanes of each number.
#[inline(always)]
fn pack<P: Pack>(carry: &P, count: usize, message: &mut Vec<f64>) {
    for lanes in carry.as_ref() {
        // Of a known length, this is one store.
        if count == LANES {
            message.extend_from_slice(&lanes.0);
        } else {
            message.extend_from_slice(&lanes.0[..count]);
        }
    }
}

/// Takes what [`pack`] appended off the front of `message`; other lanes are 0.
#[inline(always)]
fn unpack<P: Pack>(message: &mut &[f64], count: usize, carry: &mut P) {
    *carry = P::ZERO;
    for lanes in carry.as_mut() {
        let (front, rest) = message.split_at(count);
        match front.first_chunk() {
            Some(all) => lanes.0 = *all,
            None => lanes.0[..count].copy_from_slice(front),
        }
        *message = rest;
    }
}
