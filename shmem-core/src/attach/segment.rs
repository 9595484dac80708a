//! The memory of a node where no launch agent makes it: then the node's first PE does.

use std::os::fd::OwnedFd;
use std::path::Path;

use shmem_node::hca_address::HcaAddresses;
use shmem_node::kvs::StorePlan;
use shmem_node::pages;
use shmem_node::segment::{JobFacts, NodeSegment};
use shmem_node::settings::Settings;
use shmem_node::sys;
use shmem_node::template::marker::{self, StaticsRoom};

use crate::error::Error;
use crate::pmi::Identity;

/// A node, as far as the job decides it.
pub(super) struct Node<'a> {
    /// Node of each rank.
    pub(super) node_of: &'a [u32],
    /// Number of nodes.
    pub(super) n_nodes: u32,
    /// This node.
    pub(super) number: u32,
    /// PEs on this machine, as far as is known.
    pub(super) on_machine: u32,
    /// Where the software HCAs are.
    pub(super) addresses: HcaAddresses,
}

/// The job's name and key.
pub(super) fn random_identity() -> Result<Identity, Error> {
    let (mut job_id, mut job_key) = ([0; 16], [0; 32]);
    for buf in [&mut job_id[..], &mut job_key[..]] {
        sys::random(buf).map_err(|source| Error::Os {
            what: "read random bytes",
            source,
        })?;
    }
    let job_key = sys::secret(&job_key).map_err(|source| Error::Os {
        what: "get memory for the key of the job",
        source,
    })?;
    Ok((job_id, job_key))
}

/// Makes the segment of a node. The name and key that it gets are its own: those of a job of several
/// nodes are exchanged later.
pub(super) fn make(settings: &Settings, node: &Node<'_>) -> Result<NodeSegment, Error> {
    if let Some(notice) = pages::without_effect(settings.heap_pages) {
        crate::stderr::write(&notice);
    }
    let (job_id, job_key) = random_identity()?;
    let mut statics = StaticsRoom::of(settings.statics_size, &own_program());
    if node.n_nodes > 1 {
        // The first PE of another node may run another program. So this layout is not the job's, and PEs compare theirs.
        statics.layout = 0;
    }
    let segment = NodeSegment::create(&JobFacts {
        job_id,
        job_key: *job_key,
        node_of: node.node_of,
        n_nodes: node.n_nodes,
        node: node.number,
        on_machine: node.on_machine,
        heap_size: settings.symmetric_size,
        statics,
        heap_commit: settings.heap_commit,
        heap_pages: settings.heap_pages,
        store: StorePlan::NONE,
        hca_addresses: node.addresses,
        spins: settings.spin.polls(node.on_machine),
        report: false,
        calls: 0,
    })?;
    Ok(segment)
}

/// What this process keeps of the segment's descriptors: the heap's and that of the XRC domain.
pub(super) fn descriptors(segment: &NodeSegment) -> Result<(OwnedFd, OwnedFd), Error> {
    let os = |source| Error::Os {
        what: "duplicate the descriptors of the node's memory",
        source,
    };
    let heap = segment.heap_fd().try_clone_to_owned().map_err(os)?;
    let xrc = segment.xrc_fd().try_clone_to_owned().map_err(os)?;
    Ok((heap, xrc))
}

/// What this program's file says.
fn own_program() -> marker::Program {
    marker::read(Path::new("/proc/self/exe")).unwrap_or(marker::Program {
        marker: marker::Marker::Absent,
        statics: None,
    })
}
