//! Collective operations of teams and active sets.
//!
//! Inside a node data moves by shared memory, straight from and to the symmetric arrays; the members
//! *meet*, and one of them may act for all before it lets the others go ([`meet`](self)), or a few who
//! poll show each other a cache line ([`lines`]). Where they are a crowd, only the leader and a few who
//! work for all reach into the memory of everybody: each pair costs a page of page tables.
//!
//! Between nodes only *leaders* talk, a member on each node: along one binomial tree of the team's nodes
//! where messages are few or short, around a ring where they are long ([`links`]). `alltoall` alone talks
//! between all pairs: of leaders, by way of others, where blocks are small ([`exchange`]), and of members
//! where they are not.
//!
//! [`select()`](select::select) decides. What a team's members do by the bytes that each gives (in a
//! collect: that all give together), in the words of [`select::Here`] and [`select::Between`]:
//!
#![doc = include_str!("algorithms.md")]
//!
//! For a team on `m` nodes that is, as messages one after the other and connections that it can cause:
//!
//! | | messages | connections |
//! |---|---|---|
//! | tree | the depth of the tree, up, down or both: scans have a round for 18 KiB of sums of runs of ranks, collect first one for 2304 lengths | tree edges, `m - 1` |
//! | ring | `m - 1` parts, of a reduction twice as many; broadcasts go in slabs of 32 KiB, reductions in pieces of 12 KiB | edges of the ring, `m` |
//! | exchange | one to two, and the tree; in pieces of 12 KiB | of each leader with those 1, 2, 4 ... nodes away |
//! | pairs | puts to all, then the tree | all pairs of members on different nodes |
//!
//! Splitting a team reduces 8 bytes, a few times. Tree and ring go through the leaders in the order of
//! their ranks, so a strided team may have other edges than the world.
//!
//! On an active set that is not the world, everything goes along a binomial tree of its members
//! ([`active`]), so connections are those of the tree's edges between nodes; alltoall's are as above.
//!
//! # Rules for callers (OpenSHMEM 1.6 section 9.10)
//! All members call the same collectives in the same order with matching arguments, one thread of
//! a PE at a time (a second one panics; different threads may be in collectives of different teams).
//! Before any member enters, the destination arrays of all must be ready to be overwritten: have a
//! barrier or another synchronisation after their last use. Source and destination of a reduction or
//! scan are the same array or do not overlap; of others they do not overlap.

mod active;
mod alltoall;
mod announce;
pub(crate) mod api;
mod broadcast;
mod combine;
mod exchange;
mod gather;
pub(crate) mod group;
mod lines;
mod links;
mod meet;
pub(crate) mod op;
mod reduce;
mod scan;
mod select;
mod split;

pub use active::SYNC_SIZE;
pub use combine::{Combine, combine};
