//! Without a launcher: a job of one PE.

use std::net::Ipv4Addr;

use shmem_node::hca_address::HcaAddresses;
use shmem_node::settings::Settings;

use super::attached::Attached;
use super::segment::{self, Node};
use crate::error::Error;
use crate::pmi::Pmi;

/// A job of one PE, for a program that was started without a launcher.
pub(super) fn alone(settings: &Settings) -> Result<Attached, Error> {
    let segment = segment::make(
        settings,
        &Node {
            node_of: &[0],
            n_nodes: 1,
            number: 0,
            on_machine: 1,
            addresses: HcaAddresses::shared(Ipv4Addr::LOCALHOST.into()),
        },
    )?;
    let (heap, _) = segment::descriptors(&segment)?;
    Ok(Attached::new(0, *segment.view(), heap, None, Pmi::alone()))
}
