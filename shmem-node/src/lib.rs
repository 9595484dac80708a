//! What a launcher and the PEs of one node have in common.
//!
//! The node launch agent (NLA) of `shmrun` and the OpenSHMEM library inside each PE are different
//! programs that must agree on a few things to the byte: which settings exist ([`settings`]),
//! which environment variables and descriptors a PE starts with ([`contract`]), what lies where in
//! the node's shared memory ([`layout`], [`segment`], [`gather`], [`kvs`], [`pe_block`], [`barrier`]),
//! how a program becomes a template that forks the node's PEs ([`template`]), what a PE says to the agent
//! ([`to_agent`]), and how PEs that have no
//! agent share memory ([`rendezvous`]) and find their addresses ([`own_address`]). This crate is that
//! agreement and nothing else; it knows neither PMI nor InfiniBand.
//!
//! # The node segment
//! Three memfds, made by the NLA, without names in any file system, so nothing can be left behind:
//!
//! * **tables**: job facts, the map rank -> node, the addresses of all PEs, the results of PMI allgathers, and what PMI's
//!   fences have made visible. Written by the NLA alone; PEs map it for reading, and from Linux 5.1 on a seal enforces that. It lies once per node however
//!   many PEs there are, which is what keeps a PE free of memory that grows with the job.
//! * **heap**: the node barrier, one [`pe_block::PeBlock`] per PE (state, doorbell, statistics,
//!   collective flags), and the symmetric segments of the node's PEs one after the other. Every PE
//!   maps all of it, so same-node traffic is plain loads and stores.
//! * **XRC domain**: empty for us; the software HCAs of the node keep a table there.
//!
//! # Safety
//! A *shared word* is an atomic in one of the first two mappings. Other processes write it at any time,
//! so it is only touched through atomics. Mappings live until the process ends (they are leaked on
//! purpose), hence the `'static` lifetimes. Orderings are paired by name: each `ORDERING(name)`
//! comment on a Release side has its partner on an Acquire side.

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
compile_error!(
    "shmem is for Linux with glibc: other C libraries, musl among them, lack functions and layouts that it needs"
);

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "shmem is for 64-bit little-endian targets: offsets in symmetric memory are 64 bits wide, and nodes exchange them as they lie in memory"
);

pub mod absence;
pub mod address;
pub mod alike;
pub mod barrier;
pub mod contract;
pub mod cpus;
pub mod doorbell;
pub mod elf;
pub mod gather;
pub mod hca_address;
pub mod ip_network;
pub mod json;
pub mod kvs;
pub mod layout;
pub mod machine;
mod numbered;
pub mod own_address;
pub mod pages;
pub mod pe_block;
pub mod recording;
pub mod rendezvous;
mod routine;
pub mod segment;
pub mod settings;
mod slot;
pub mod stats;
mod sync;
pub mod sys;
pub mod template;
pub mod text;
pub mod to_agent;
pub mod traces;
pub mod turns;
pub mod waiting;

pub use segment::tables;
