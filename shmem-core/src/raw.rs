//! The library without its types: addresses and byte counts instead of handles.
//!
//! Interfaces for other languages are built on this. Everything here is what the safe functions are
//! built on, too; what those check by types, the caller of these promises.

// ---- Waiting
pub use crate::wait::words::{
    Cmp, Mask, Values, Waitable, Words, test, test_all, test_any, test_some, wait_until,
    wait_until_all, wait_until_any, wait_until_some,
};
