//! Collective operations of teams and active sets.
//!
//! Inside a node data moves by shared memory, straight from and to the symmetric arrays; the members
//! *meet*, and one of them may act for all before it lets the others go ([`meet`](self)). Between
//! nodes only *leaders* talk, a member on each node: along one binomial tree of the team's nodes where
//! messages are few or short, around a ring where they are long ([`links`]). `alltoall` alone talks
//! between all pairs of members, as it must.
//!
//! For a team of `n` members on `m` nodes:
//!
//! | operation | how, and how many messages one after the other | connections it can cause |
//! |---|---|---|
//! | sync, barrier | tree, up and down | tree edges, `m - 1` |
//! | broadcast | up to 32 KiB (or 4 KiB a node): tree, from the root outwards; else slabs of 32 KiB around the ring | tree edges; `m - 1` edges of the ring |
//! | reduce | up to 1 KiB: tree, up and down; else ring, pieces of 12 KiB, twice `m - 1` parts | tree edges; ring, `m` |
//! | fcollect | up to 32 KiB (or 4 KiB a node) in all: tree, up and down; else ring, `m - 1` steps | tree edges; ring, `m` |
//! | collect | lengths up and down the tree, 2304 at a time; then as fcollect | the same |
//! | inscan, exscan | tree, up and down, 18 KiB of sums of runs of ranks at a time | tree edges |
//! | alltoall, alltoalls | puts to all, then the tree | all pairs of members on different nodes |
//! | split | reduces of 8 bytes | tree edges |
//!
//! Tree and ring go through the leaders in the order of their ranks, so a strided team may have other
//! edges than the world.
//!
//! On one node, up to 8 PEs that poll *trade* what fits into a cache line, and have no other need to meet
//! ([`trade`]). Else:
//!
//! | operation | meetings | what is done by whom |
//! |---|---|---|
//! | sync | 1 | |
//! | broadcast | 1 | up to 32 KiB in all the root writes to all; else all read the root's array and *depart* |
//! | reduce | 1 or 2 | up to 64 KiB of sources one combines for all; else as many as have a page share the work, and write it to all |
//! | fcollect | 1 | up to 18 KiB one collects for all; else each writes to all |
//! | collect | 2 | lengths first |
//! | inscan, exscan | 1 or 2 | as reduce |
//! | alltoall, alltoalls | 1 | each writes to all |
//!
//! On an active set that is not the world, everything goes along a binomial tree of its members
//! ([`active`]), so connections are those of the tree's edges between nodes; alltoall's are as above.
//!
//! # Rules for callers (OpenSHMEM 1.6 section 9.10)
//! All members call the same collectives in the same order with matching arguments, one thread of
//! a PE at a time (a second one panics; different threads may be in collectives of different teams).
//! Before any member enters, the destination arrays of all must be ready to be overwritten: have a
//! barrier or another synchronisation after their last use. Completion and destination of a reduction or
//! scan are the same array or do not overlap; of others they do not overlap.

mod active;
mod alltoall;
mod announce;
mod api;
mod broadcast;
mod combine;
mod gather;
pub(crate) mod group;
mod links;
mod meet;
mod reduce;
mod scan;
mod split;
mod trade;

pub use active::SYNC_SIZE;
pub use api::{
    Op, alltoall, alltoalls, barrier_all, broadcast, collect, fcollect, prod_reduce, reduce,
    reduce_bits, sum_exscan, sum_inscan, sum_reduce, sync_all,
};
pub use combine::Combine;
