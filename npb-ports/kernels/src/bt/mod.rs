//! BT: five coupled equations, solved implicitly line by line.
//!
//! The benchmark integrates a model of a viscous compressible flow in a cube towards its steady
//! state. The implicit operator of a time step is approximated by a product of three, one for
//! each direction, so that a step is
//!
//! 1. the right-hand side: fluxes, diffusion and fourth-order dissipation at the present state;
//! 2. along every line in x, then y, then z, the solution of a block-tridiagonal system, whose
//!    blocks of 5 x 5 couple the five quantities of neighbouring points;
//! 3. the addition of what comes out to the state.
//!
//! All but the systems of 2. is in [`adi`](crate::adi), for SP too: the grid and the
//! right-hand side. What is BT's own:
//!
//! | file | what it holds |
//! |---|---|
//! | `params` | sizes and reference results of the classes |
//! | `jacobian` | the blocks of a point, from the state there |
//! | `block` | elimination within and between blocks, of one line |
//! | `solver` | the sweeps along eight lines at once, as a [`Scheme`](crate::adi::Scheme) |
//!
//! The reference sets up all blocks of a line, 75 numbers a point, and then eliminates. Here they
//! are computed where they are used, so that a sweep reads the state, and keeps 25 numbers a
//! point; of these it needs no more at a time than fit in a cache, as long as a line does not
//! pass through several cells. No operation is spent on entries of the blocks that are always 0,
//! nor on bringing a diagonal block to the form of a unit matrix before it is used.
//! [`operations`](params::operations) are counted as the reference does.

mod block;
mod jacobian;
pub mod params;
mod solver;
#[cfg(test)]
mod tests;

pub use solver::Bt;
