//! IS's kernels: the sequence of keys, and ranks of the keys that a PE has.
//!
//! | module | what it holds |
//! |---|---|
//! | [`params`] | sizes, and ranks that are verified |
//! | [`keys`] | the sequence of keys |
//! | [`ranges`] | which keys a PE ranks |
//! | [`ranks`] | counting keys, ranks, and the order that follows from them |

pub mod keys;
pub mod params;
pub mod ranges;
pub mod ranks;
