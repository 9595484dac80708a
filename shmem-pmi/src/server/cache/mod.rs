//! The pairs of the key-value space that an agent holds, and how they get to it.
//!
//! The root always has every pair. What the others have, and how pairs get to the root, is the
//! [`CachePolicy`]; what PEs see is the same under all of them: a put is visible everywhere after
//! the fence that follows it, and not before. In production every agent holds all pairs ([`whole`]);
//! the other caches are in [`crate::papers::caches`].

mod policy;
mod store;
pub(crate) mod whole;

pub use policy::CachePolicy;
pub use store::{MapStore, NodeStore, StoreFull};
