//! Under `shmrun`: the launch agent has prepared everything, and left it at fixed descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use shmem_node::contract::{ENV_LOCAL_RANK, ENV_NODE, HEAP_FD, NODE_CONTRACT, TABLES_FD, XRC_FD};
use shmem_node::segment::NodeView;
use shmem_node::sys;

use super::attached::{Attached, check_size};
use crate::error::Error;
use crate::pmi::Pmi;

/// The node's memory as a template has mapped it; PEs that it forks have it at the same place.
static MAPPED: OnceLock<NodeView> = OnceLock::new();

/// Maps the node's memory for all PEs that this template forks, and returns it.
pub(super) fn prepare(version: &str) -> Option<NodeView> {
    // SAFETY: a template leaves the descriptors of its node open.
    let borrow = |fd| unsafe { BorrowedFd::borrow_raw(fd) };
    if version == NODE_CONTRACT
        && let Ok(node) = NodeView::attach(borrow(TABLES_FD), borrow(HEAP_FD))
    {
        let _ = MAPPED.set(node);
    }
    MAPPED.get().copied()
}

/// Maps what `shmrun` has prepared.
pub(super) fn attach(version: &str) -> Result<Attached, Error> {
    if version != NODE_CONTRACT {
        return Err(Error::Launch(format!(
            "this program was built for launch contract {NODE_CONTRACT}, but shmrun offers \
             {version}; use the shmrun that was built with it"
        )));
    }
    let local: u32 = std::env::var(ENV_LOCAL_RANK)
        .ok()
        .and_then(|s| s.parse().ok())
        .ok_or_else(|| {
            Error::Launch(format!(
                "{ENV_NODE} is set but {ENV_LOCAL_RANK} is not a number"
            ))
        })?;
    let (tables, heap) = (take_fd(TABLES_FD)?, take_fd(HEAP_FD)?);
    let xrc = take_fd(XRC_FD)?;
    let node = match MAPPED.get() {
        Some(node) => *node,
        None => NodeView::attach(tables.as_fd(), heap.as_fd())?,
    };
    let Some(&rank) = node.ranks().get(local as usize) else {
        return Err(Error::Launch(format!(
            "there is no PE at position {local} of node {}: the environment belongs to another process",
            node.node()
        )));
    };
    check_size(node.n_pes())?;
    let pmi = Pmi::inherited(local)?;
    Ok(Attached::new(rank as usize, node, heap, Some(xrc), pmi))
}

/// Takes over a descriptor that the launch agent left at a fixed number.
fn take_fd(fd: RawFd) -> Result<OwnedFd, Error> {
    sys::inherit(fd).map_err(|_| {
        Error::Launch(format!(
            "{ENV_NODE} is set, but descriptor {fd} is closed: this process is not the one that \
             shmrun started (a child of it must be started with shmrun again)"
        ))
    })
}
