//! LU's kernels: sweeps through all points from one corner of the grid to the other, and back.
//!
//! | module | what it holds |
//! |---|---|
//! | [`params`] | sizes, time steps and reference results |
//! | [`point`] | the equations at a point |
//! | [`sweep`] | the order of points, eight lanes at once |
//! | [`surface`] | the surface integral |

pub mod params;
pub mod point;
pub mod surface;
pub mod sweep;
