//! XRC domains: how a target queue pair in one process reaches shared receive queues and memory of
//! another process on its node.
//!
//! On a node with a real HCA all processes use one device, which knows every registration. Here each
//! process has a device of its own. So the processes of a domain share a table in which each lists
//! the numbers of its XRC receive queues, and those of its memory regions that lie in memory which
//! all of them map (the *window*: for instance the heaps of a node). A target that gets a packet for
//! a receive queue of another process looks up the region there and accesses it through its own
//! mapping.
//!
//! # Map
//! * `table`: layout and protocol, on words of shared memory; no system calls, no clock. `sizes`: how many of what.
//! * [`Domain`]: a domain as the engine sees it; `member`: one process in a domain; `domains`: those that
//!   an HCA has open.
//! * `window`: which memory is shared; `map`: maps a domain's file (unsafe).
//!
//! # Limits
//! RDMA writes, reads and atomics reach every process of the domain. A SEND, or a write with
//! immediate data, reaches receive queues of the process that owns the target queue pair only: a
//! receive is a thing between one process and its device. For others it is refused as invalid.
//!
//! Processes of a domain trust each other, as they do with any memory they share.

mod domain;
mod domains;
mod map;
mod member;
mod sizes;
mod table;
mod window;

pub use domain::{Domain, FileId, Reach, SrqOwner};
pub(crate) use domains::DomainTable;
pub(crate) use map::MappedTable;
pub use map::{FILE_LEN, file_id};
pub use member::{Member, Private};
pub use table::Anonymous;
pub use window::SharedWindow;
