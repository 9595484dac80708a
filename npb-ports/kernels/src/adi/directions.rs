//! The three directions, by which everything on the grid is indexed.

/// Number of directions.
pub const DIRECTIONS: usize = 3;

/// The direction along rows: i grows.
pub const X: usize = 0;
/// The direction from row to row: j grows.
pub const Y: usize = 1;
/// The direction from plane to plane: k grows.
pub const Z: usize = 2;
