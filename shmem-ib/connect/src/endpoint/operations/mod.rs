//! Operations of the program towards peers.
//!
//! * `put_get.rs`: puts and gets. Atomics have a room of their own, `../atomics`.
//! * `context.rs`: contexts, and how each waits for its own operations: quiet and fence. `point.rs`: how one waits
//!   for less.
//! * `post.rs`: the one place where work requests of operations are posted.
//! * `sends.rs`: work requests of all connections that are under way.
//! * `silent.rs`: which work requests report their completion. `held.rs`: work requests that gather until one doorbell
//!   posts all of them. `cover.rs`: what a thread posts for both before it waits.
//! * `complete.rs`: what happens when they complete, or are lost.
//! * `table.rs`: the operations under way; `accounts.rs`: what of them is whose.

pub(crate) mod accounts;
pub(crate) mod complete;
pub(crate) mod context;
pub(crate) mod cover;
pub(crate) mod held;
pub(crate) mod point;
pub(crate) mod post;
pub(crate) mod put_get;
pub(crate) mod sends;
pub(crate) mod silent;
pub(crate) mod table;
