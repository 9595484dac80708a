//! Symmetric arrays as something more than arrays: one element, with everything that can be done with it; a
//! matrix, whose parts are strided; an array on another PE; and a
//! value with its lock.

pub(crate) mod grid;
pub(crate) mod mutex;
pub(crate) mod scalar;
mod slice;
