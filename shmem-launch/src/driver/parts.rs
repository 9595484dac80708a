//! What an agent knows before it makes its node.

use shmem_node::hca_address::HcaAddresses;
use shmem_node::settings::Settings;

use crate::frame::Launch;

/// What a node is made of.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) launch: &'a Launch,
    pub(super) settings: &'a Settings,
    /// The node of each rank.
    pub(super) node_of: &'a [u32],
    /// Addresses of the node's HCAs.
    pub(super) addresses: HcaAddresses,
    /// Whether the launcher is on another machine, and has not seen what this one has.
    pub(super) far: bool,
}
