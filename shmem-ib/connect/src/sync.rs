//! The atomics and locks of the protocols between threads.
//!
//! Files that use them by this path are compiled a second time by `tests/loom`, where `crate::sync`
//! is loom's: the model checker then tries every interleaving of the very code that runs here.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
