//! Teams: who belongs to one, and under which number.

#![forbid(unsafe_code)]

mod members;

pub use members::Members;
