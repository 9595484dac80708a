//! HCAs in a simulated network, with virtual time: no socket, no device, everything from a seed.
//!
//! - [`conformance`]: the checks that every HCA has to pass
//! - [`packets`]: reliable connections, packet by packet
//! - [`messages`], [`verbs`], [`xrc_messages`]: random programs on bad networks, against a model
//! - [`conversations`]: long connections on networks that lose up to half of all packets
//! - [`replays`]: packets of an earlier job that a stranger sends again
//! - [`incast`]: many senders to one receiver with a small buffer
//!
//! `shmem_testkit::seeds` describes how to run more seeds, or one.

mod conformance;
mod conversations;
mod incast;
mod messages;
mod packets;
mod replays;
mod verbs;
mod xrc_messages;
