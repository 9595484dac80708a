//! The UD addresses of all PEs, as far as they have come.

use std::sync::Arc;
use std::time::Duration;

use shmem_ib::connect::Published;
use shmem_node::segment::NodeView;

use super::foreign::KvsBook;

/// Where a PE's address is looked up.
#[derive(Clone)]
pub(crate) enum Book {
    /// In the result of the agents' allgather, which lies in the node segment.
    Gather {
        view: Box<NodeView>,
        /// Number of the allgather.
        request: u32,
    },
    /// In the key-value space of a PMI server.
    Kvs(Arc<KvsBook>),
}

/// What is known of a PE's address.
pub(crate) enum Found {
    /// The exchange is under way.
    Pending,
    /// What the PE has published.
    Address(Published),
    /// It will never be known: why.
    Unknown(String),
}

impl Book {
    /// What `pe` has published. Asks the process manager on this node at most.
    pub(crate) fn find(&self, pe: u32) -> Found {
        match self {
            Self::Gather { view, request } => {
                let gather = view.gather();
                // In this order: the result may arrive between two looks.
                if !gather.is_done(*request) {
                    return Found::Pending;
                }
                match gather.value(*request, pe as usize) {
                    Some(bytes) => read(bytes),
                    None => Found::Unknown("no such PE".into()),
                }
            }
            Self::Kvs(book) => book.find(pe),
        }
    }

    /// Sleeps until the exchange is over, at most `max`.
    pub(crate) fn wait(&self, max: Duration) {
        match self {
            Self::Gather { view, request } => {
                view.gather().wait(*request, max);
            }
            Self::Kvs(book) => book.wait(max),
        }
    }
}

/// Understands what a PE has published.
pub(super) fn read(bytes: &[u8]) -> Found {
    let Ok(bytes) = <&[u8; Published::LEN]>::try_from(bytes) else {
        return Found::Unknown(format!("its address has {} bytes", bytes.len()));
    };
    match Published::from_bytes(bytes) {
        Ok(peer) => Found::Address(peer),
        Err(e) => Found::Unknown(e.to_string()),
    }
}
