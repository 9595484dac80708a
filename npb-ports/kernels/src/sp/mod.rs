//! SP: the implicit step by scalar penta-diagonal systems.
//!
//! The step of [`adi`](crate::adi) couples the five equations along every line. SP turns them into
//! the waves of the direction, which are not coupled ([`transforms`]), and solves for each wave a
//! system of its own, penta-diagonal because the fourth-order dissipation is implicit too
//! ([`pentadiagonal`]). [`solver`] makes the coefficients from the flow and puts the parts
//! together; `params` has sizes and reference results.
//!
//! Nothing is stored at points but `u`, the right-hand side and the forcing: density, velocities
//! and speed of sound are computed again where they are needed, which with vectors costs
//! less than to read them from memory.

pub mod params;
pub mod pentadiagonal;
pub mod solver;
#[cfg(test)]
mod tests;
pub mod transforms;
