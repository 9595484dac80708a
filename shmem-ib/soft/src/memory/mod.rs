//! The memory that requests touch: which keys cover it, and how it is accessed.

pub(crate) mod mr;
mod raw;
pub(crate) mod sge;
mod vec;

pub use mr::Memory;
pub use raw::RawMemory;
pub use vec::VecMemory;
