//! The Graph500 benchmark 3.0, breadth-first search, over `shmem`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`random`], [`generator`] | the edges, those of the reference to the last bit |
//! | [`golden`] | what the reference makes of a few scales |
//! | [`partition`], [`node`], [`shared`] | who owns a vertex; who shares memory; that memory as atomics, with all the `unsafe` |
//! | [`coordination`], [`arrival`], [`hybrid`] | how PEs agree that a level is over: OpenSHMEM alone, or with MPI |
//! | [`mailbox`] | messages between nodes |
//! | [`construction`] | kernel 1: adjacency lists |
//! | [`roots`], [`search`] | kernel 2: searches, from above and from below |
//! | [`validation`] | whether results are right |
//! | [`statistics`], [`mod@format`], [`report`] | the official output, and JSON |
//! | [`options`], [`memory`], [`error`], [`mod@run`], [`cli`] | the program |
//!
//! # Terms
//! * *Vertex*: a number below 2^SCALE. Its owner is a PE, among whose vertices it has a *place* (`local`).
//! * *Near*: of the same node, whose memory can be accessed directly. *Far*: of another.
//! * *Class*: a degree to three binary digits.
//!
//! # Invariants
//! * Edges, roots, levels, and how many vertices and edges a search reaches do not depend on the number of PEs, their
//!   nodes, or the algorithm. Predecessors may: a vertex can have several, of which any will do.
//! * Validation uses nothing but the edges and the predecessors.
//! * A result that is wrong ends with a failure status on every PE.

#![deny(unsafe_code)]

pub mod arrival;
pub mod cli;
pub mod construction;
pub mod coordination;
pub mod error;
pub mod format;
pub mod generator;
pub mod golden;
pub mod hybrid;
pub mod mailbox;
pub mod memory;
pub mod node;
pub mod options;
pub mod partition;
pub mod random;
pub mod report;
pub mod roots;
pub mod run;
pub mod search;
pub mod shared;
pub mod statistics;
pub mod validation;
