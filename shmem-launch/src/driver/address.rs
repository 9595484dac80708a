//! The address of this machine at which software HCAs of other machines reach it.
//!
//! Node 0 chooses first ([`own_address::find`]), and all others follow it: each takes the address from
//! which this machine sends to node 0's, so that all are on the way to each other.
//! `SHMEM_SOFT_ADDRESS=NETWORK/BITS` is for who wants another one.

use std::net::Ipv4Addr;

use shmem_node::hca_address::{AddressPlan, HcaAddresses};
pub(super) use shmem_node::own_address::path_mtu;
use shmem_node::own_address::{self, Hints, route_source};

use crate::frame::Launch;

/// The addresses of this node's HCAs, and the plan for its children.
///
/// # Errors
/// What to tell the user.
pub(super) fn own(launch: &Launch) -> Result<(HcaAddresses, AddressPlan), String> {
    let on = match launch.host(launch.node) {
        "" => "this machine".to_owned(),
        host => format!("host {host}"),
    };
    let shared = |ip, plan| Ok((HcaAddresses::shared(ip), plan));
    match launch.addresses {
        AddressPlan::Known(addresses) => Ok((addresses, launch.addresses)),
        AddressPlan::Network(network) => {
            shared(own_address::within(network, &on)?, launch.addresses)
        }
        // Its PEs have no HCAs.
        AddressPlan::Routed { .. } if launch.n_nodes == 1 => {
            shared(Ipv4Addr::LOCALHOST.into(), launch.addresses)
        }
        AddressPlan::Routed {
            anchor: Some(anchor),
        } => match route_source(anchor) {
            Some(ip) => shared(ip, launch.addresses),
            None => Err(format!(
                "{on} has no route to {anchor}, which host {} has chosen for the software HCAs; name a \
                 network in which all hosts are: SHMEM_SOFT_ADDRESS=NETWORK/BITS",
                launch.host(0)
            )),
        },
        AddressPlan::Routed { anchor: None } => {
            let ip = own_address::find(&Hints {
                others: &[launch.host(1)],
                own_name: launch.host(0),
            });
            shared(ip, AddressPlan::Routed { anchor: Some(ip) })
        }
    }
}
