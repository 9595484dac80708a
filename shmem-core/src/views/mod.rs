//! Symmetric arrays as something more than arrays: one element, with everything that can be done with it; a
//! matrix, whose parts are strided; and an array on another PE.

pub(crate) mod grid;
pub(crate) mod scalar;
mod slice;
