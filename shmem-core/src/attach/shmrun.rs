//! Under `shmrun`: the launch agent has prepared everything, and left descriptors of it.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::OnceLock;

use shmem_node::contract::{self, Descriptors, ENV_LOCAL_RANK, ENV_NODE};
use shmem_node::segment::{NodeView, SegmentError};
use shmem_node::sys;

use super::attached::{Attached, check_size};
use crate::error::Error;
use crate::pmi::Pmi;

/// The node's memory as a template has mapped it; PEs that it forks have it at the same place.
static MAPPED: OnceLock<NodeView> = OnceLock::new();

/// Maps the node's memory for all PEs that this template forks, and returns it.
pub(super) fn prepare(offer: &str) -> Option<NodeView> {
    if let Ok(fds) = contract::offered(offer)
        && let Ok(node) = map(fds)
    {
        let _ = MAPPED.set(node);
    }
    MAPPED.get().copied()
}

/// Maps what `shmrun` has prepared.
pub(super) fn attach(offer: &str) -> Result<Attached, Error> {
    let fds = contract::offered(offer).map_err(|other| Error::Launch(other.to_string()))?;
    let local: u32 = std::env::var(ENV_LOCAL_RANK)
        .ok()
        .and_then(|s| s.parse().ok())
        .ok_or_else(|| {
            Error::Launch(format!(
                "{ENV_NODE} is set but {ENV_LOCAL_RANK} is not a number"
            ))
        })?;
    // What has one of these numbers is this library's once the node's memory is seen to be there, and not before: it may
    // belong to the program, or to another copy of this library.
    let node = match MAPPED.get() {
        Some(node) => *node,
        None => map(fds)?,
    };
    let Some(&rank) = node.ranks().get(local as usize) else {
        return Err(Error::Launch(format!(
            "there is no PE at position {local} of node {}: the environment belongs to another process",
            node.node()
        )));
    };
    check_size(node.n_pes())?;
    // Closed for good: that is how another copy of this library in the process sees that there is a PE already.
    drop(take_fd(fds, fds.tables())?);
    let (heap, xrc) = (take_fd(fds, fds.heap())?, take_fd(fds, fds.xrc())?);
    let pmi = Pmi::inherited(local, fds)?;
    Ok(Attached::new(rank as usize, node, heap, Some(xrc), pmi))
}

fn map(fds: Descriptors) -> Result<NodeView, Error> {
    let lent = |fd| sys::lent(fd).map_err(|_| closed(fds, fd));
    let (tables, heap) = (lent(fds.tables())?, lent(fds.heap())?);
    let of_node = |why: SegmentError| match why.replaced(fds) {
        Some(replaced) => Error::Launch(replaced.to_string()),
        None => why.into(),
    };
    NodeView::attach(tables, heap).map_err(of_node)
}

/// Takes over a descriptor that the launch agent left.
fn take_fd(fds: Descriptors, fd: RawFd) -> Result<OwnedFd, Error> {
    sys::inherit(fd).map_err(|_| closed(fds, fd))
}

/// Why a descriptor is not there. This library closes that of the tables and keeps the others; programs that it executes
/// have none.
fn closed(fds: Descriptors, fd: RawFd) -> Error {
    let taken = sys::lent(fds.tables()).is_err() && sys::lent(fds.heap()).is_ok();
    Error::Launch(match taken {
        true => "this process has another copy of the library, which is the PE, or has been it: link the program and its \
                 plugins with one libshmem.so, or with one Rust dynamic library"
            .into(),
        false => format!(
            "{ENV_NODE} is set, but descriptor {fd} is closed: this process is not the one that \
             shmrun started (a child of it must be started with shmrun again), or it has closed that descriptor"
        ),
    })
}
