//! Software HCAs in a seeded network with virtual time.
//!
//! [`SimNet`] connects engines by a network that loses, doubles, delays and reorders packets as
//! its seed says; nothing in it reads a clock, so a run is a function of the seed and of the
//! calls made. [`SimHca`] puts `trait Hca` in front of one engine of a shared network, so that the
//! conformance suite and the connection code run on it as they do on a socket.

mod hca;
mod net;
mod pipes;
mod reference;

pub use hca::{SimFabric, SimHca};
pub use net::{NetConfig, NetStats, RcEnd, Receiver, SimNet, base};
pub use pipes::{PipeConfig, PipeStats};
pub use reference::{Place, Proposal, Reference, Sums};
