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

use shmem_verbs::{AddressVector, Gid};

/// Where an engine is.
fn address(index: usize) -> AddressVector {
    let ip = std::net::Ipv4Addr::new(10, (index >> 16) as u8, (index >> 8) as u8, index as u8);
    AddressVector {
        gid: Gid::from(ip),
        udp_port: 4791,
    }
}

/// Which engine is there.
fn index_of(av: AddressVector) -> Option<usize> {
    let [.., ten, a, b, c] = av.gid.0;
    (ten == 10 && av.udp_port == 4791)
        .then(|| usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c))
}
