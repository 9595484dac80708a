//! Collective operations of teams and active sets.
//!
//! Inside a node data moves by shared memory, straight from and to the symmetric arrays; the members
//! *meet*, and one of them may act for all before it lets the others go ([`meet`](self)), or a few who
//! poll show each other a cache line ([`lines`]). Where they are a crowd, only the leader and a few who
//! work for all reach into the memory of everybody: each pair costs a page of page tables.
//!
//! Between nodes only *leaders* talk, a member on each node. What is short, and has one source or one end, goes along
//! one binomial tree of the team's nodes ([`links`]), so that programs which only meet have few connections. What
//! all give, and what is long, goes in rounds with leaders 1, 2, 4 ... nodes away ([`circulant`], [`doubling`],
//! [`halving`], [`exchange`]): their edges, the tree's among them, serve all collectives. `alltoall` alone talks
//! between all pairs of members, where blocks are not small.
//!
//! [`select()`](select::select) decides. What a team's members do by the bytes that each gives (in a
//! collect: that all give together), in the words of [`select::Here`] and [`select::Between`]:
//!
#![doc = include_str!("algorithms.md")]
//!
//! For a team on `m` nodes that is, as messages one after the other, where `d` is the number of binary digits of
//! `m - 1`:
//!
//! | | messages in a row | connections |
//! |---|---|---|
//! | tree | `d`, up, down or both: scans have a round for 18 KiB of sums of runs of ranks, collect first one for 2304 lengths | tree edges, `m - 1` |
//! | circulant | `d`, of a broadcast twice as many | of each leader with those 1, 2, 4 ... nodes away |
//! | doubling | `d`, and one more if `m` is no power of two | the same, half of them |
//! | halving | `2 d`, of up to 12 KiB where partial sums go | as circulant |
//! | exchange | one to two for each digit, and the tree; in pieces of 12 KiB | as circulant |
//! | pairs | puts to all, then the tree | all pairs of members on different nodes |
//!
//! A test holds the choice against a model of messages, bytes and connections for 2 to 4097 nodes (`model.rs`). By
//! it, with what partial results along the tree and pieces around a ring would take instead, as messages in a row
//! and their bytes:
//!
#![doc = include_str!("model.md")]
//!
//! The ring has the least connections, and no message of it is passed over far; but it has as many rounds as
//! there are nodes, sends no less, and among 16 nodes took up to three times as long. Several leaders of a node,
//! each with a part of a long vector, would send the same bytes over the same link in as many rounds, with
//! as many times more connections and messages; they would only add in parallel, which the node's members do
//! before.
//!
//! Splitting a team reduces 8 bytes, a few times. Leaders are in the order of their ranks, so a strided team may
//! have other edges than the world.
//!
//! On an active set that is not the world, everything goes along a binomial tree of its members
//! ([`active`]), so connections are those of the tree's edges between nodes; alltoall's are as above.
//!
//! Every collective begins in [`entry`], where it says what it is; where PEs compare that (`SHMEM_CHECK`), all
//! members agree before anything else happens ([`agree`]).
//!
//! # Rules for callers (OpenSHMEM 1.6 section 9.10)
//! All members call the same collectives in the same order with matching arguments, one thread of
//! a PE at a time (a second one panics; different threads may be in collectives of different teams).
//! Before any member enters, the destination arrays of all must be ready to be overwritten: have a
//! barrier or another synchronisation after their last use. Source and destination of a reduction or
//! scan are the same array or do not overlap; of others they do not overlap.

mod active;
mod agree;
mod alltoall;
mod announce;
pub(crate) mod api;
mod broadcast;
mod circulant;
mod combine;
mod doubling;
mod entry;
mod exchange;
mod gather;
pub(crate) mod group;
mod halving;
mod lines;
mod links;
mod meet;
#[cfg(test)]
mod model;
pub(crate) mod op;
pub mod plans;
mod reduce;
mod scan;
mod select;
mod shares;
mod split;
pub(crate) mod values;

pub use active::SYNC_SIZE;
pub(crate) use announce::Announcement;
pub use announce::named;
pub use combine::{Combine, combine};
pub(crate) use entry::{WorldCollective, collective};
