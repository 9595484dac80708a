//! Atomics that the owner of a word executes, for HCAs whose atomics are not atomic with respect to
//! the processor's.
//!
//! PEs of one node use the processor's atomics on each other's words. If an HCA executes those of
//! other nodes behind the processor's back, the two kinds do not exclude each other. Then each
//! request goes to the owner in a SEND, whoever makes progress there executes it with the
//! processor's atomics, and the answer comes back in a SEND over the same connection
//! (active messages; see `message.rs` for their layout, `books.rs` for who waits for what).
//!
//! # Order and completion
//! A request is executed after all that was posted to its connection before. What is posted after
//! it may overtake it: [`Context::fence`](crate::endpoint::Context::fence) waits for the answers. An operation is complete
//! when its answer is there, so [`Context::quiet`](crate::endpoint::Context::quiet), and a connection that makes room for
//! another, wait for answers, too. That is enough for the owner's side as well: a connection whose
//! requester is idle has no request and no answer under way in that direction.
//!
//! # Silence
//! The HCA acknowledges a request when it is received, not when it is answered. Should the owner die
//! in between, no work request would fail. So a requester whose answers do not come sends a probe
//! now and then, which fails if there is nobody any more.

pub(crate) mod ask;
pub(crate) mod books;
pub(crate) mod message;
pub(crate) mod owner;
pub(crate) mod serve;
#[cfg(test)]
mod tests;
