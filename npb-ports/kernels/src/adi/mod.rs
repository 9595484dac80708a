//! The time step that BT and SP share, without its messages; LU, whose implicit step is another
//! one, takes the flow from here.
//!
//! Both integrate the same model of a viscous compressible flow, five equations in three
//! dimensions, with an implicit step that factors into the directions: right-hand side, then
//! for x, y and z in turn a system of equations along every line of the grid, then `u += change`.
//! BT's systems are block tridiagonal, SP's penta-diagonal. Each supplies a
//! [`Scheme`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`scheme`] | the interface that BT and SP implement: `Scheme`, `Params`, `Point`, `Ends` |
//! | [`constants`] | coefficients |
//! | [`directions`] | x, y and z |
//! | [`partition`] | how the grid is cut into cells |
//! | [`field`] | numbers on a cell, by rows of lanes |
//! | [`exact`], [`initialize`] | exact solution, initial state, forcing |
//! | [`rhs`] | the right-hand side |
//! | [`mod@reference`] | the same by definition, for tests |
//! | [`faces`] | layers of a cell for neighbours, and ghosts from them |
//! | [`sweep`] | gathering lines, calling the scheme |
//! | [`norms`] | residual and error |
//!
//! # How a scheme takes part
//!
//! `forward` and `backward` are given one chunk of eight lines in one cell, as contiguous scratch
//! with one [`Point`] for each interior point; `u` has one more on each side. At
//! the first and the last cell the point beside is the grid's boundary, where the unknown is 0
//! ([`Ends`] says so). A [`Sweep`](sweep::Sweep)
//!
//! * computes the right-hand side of eight rows right before `forward::<X>` takes them, so that
//!   they are still in cache,
//! * calls `backward` right after `forward` in the last cell of a line (the only one on a single
//!   PE), with scratch that stays in cache; in the other cells `rhs` and `kept` are stored for a
//!   few batches of chunks,
//! * takes `carry` from the cell before and leaves it for the next one, for the lines that exist,
//! * adds `change` to `u` right after `backward::<Z>`.

pub mod constants;
pub mod directions;
pub mod exact;
pub mod faces;
pub mod field;
pub mod initialize;
pub mod norms;
pub mod partition;
pub mod reference;
pub mod rhs;
pub mod scheme;
pub mod sweep;

pub use scheme::{Ends, Pack, Params, Point, Scheme};
