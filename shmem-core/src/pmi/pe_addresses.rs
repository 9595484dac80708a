//! The UD addresses of all PEs, as far as they have come.

use std::sync::Arc;
use std::time::Duration;

use shmem_node::segment::NodeView;

use super::foreign::KvsAddresses;
use super::found::{Found, read};

/// Where a PE's address is looked up.
#[derive(Clone)]
pub(crate) enum PeAddresses {
    /// In the result of the agents' exchange, which lies in the node segment.
    Gather {
        view: Box<NodeView>,
        /// Number of the exchange.
        request: u32,
    },
    /// In the key-value space of a PMI server.
    Kvs(Arc<KvsAddresses>),
}

impl PeAddresses {
    /// What `pe` has published. Asks the process manager on this node at most.
    pub(crate) fn find(&self, pe: u32) -> Found {
        match self {
            Self::Gather { view, request } => {
                let gather = view.addresses();
                // In this order: the result may arrive between two looks.
                if !gather.is_done(*request) {
                    return Found::Pending;
                }
                match gather.value(*request, pe as usize) {
                    Some(bytes) => read(bytes),
                    None => Found::Unknown("no such PE".into()),
                }
            }
            Self::Kvs(addresses) => addresses.find(pe),
        }
    }

    /// Sleeps until the exchange is over, at most `max`.
    pub(crate) fn wait(&self, max: Duration) {
        match self {
            Self::Gather { view, request } => {
                view.addresses().wait(*request, max);
            }
            Self::Kvs(addresses) => addresses.wait(max),
        }
    }
}
