//! Queues of requests and completions, as they lie in memory.

pub(crate) mod completion;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod shared;
