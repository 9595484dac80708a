//! The directory of an endpoint: on which node each PE is, and at which UD address, if this PE can talk
//! to it at all.

use std::time::Duration;

use shmem_ib::connect::Published;
use shmem_ib::connect::endpoint::{Directory, Lookup};
use shmem_ib::verbs::{Fabric, Pkey};
use shmem_node::layout::{AGREED_ALIGN, INTERNAL_SIZE};
use shmem_node::segment::NodeView;

use crate::naps::{LAST_NAP, driven_mpi};
use crate::pmi::{Found, PeAddresses, heap_start};
use crate::wait_report::{WaitReport, address_of};

/// Where PEs are, and whether they can be reached from here.
pub(super) struct AddressTable {
    pub(super) view: NodeView,
    pub(super) addresses: PeAddresses,
    /// Of this PE's device.
    pub(super) fabric: Fabric,
    /// Its partition.
    pub(super) pkey: Pkey,
    /// Why this PE uses it.
    pub(super) why: String,
    /// Whether this PE has owners execute atomics.
    pub(super) by_owner: bool,
    /// Whether this PE compares the collectives that it calls.
    pub(super) checks: bool,
}

impl AddressTable {
    /// Whether this PE can talk to the peer that has published that.
    fn check(&self, peer: Published) -> Result<Published, String> {
        if peer.fabric != self.fabric {
            return Err(format!(
                "it is reached over {} (at {}), and this PE uses {} ({}). Give all PEs the same \
                 with SHMEM_HCA; SHMEM_HCA=soft goes everywhere. shmem-info shows what a node has",
                peer.fabric, peer.ud, self.fabric, self.why
            ));
        }
        if peer.pkey.partition() != self.pkey.partition() {
            return Err(format!(
                "it is in partition {}, and this PE in {} ({}). Give all PEs the same with SHMEM_PKEY; \
                 shmem-info --devices shows which a port has",
                peer.pkey, self.pkey, self.why
            ));
        }
        if !peer.pkey.hears(self.pkey) {
            return Err(format!(
                "it and this PE ({}) are limited members of partition {:#06x}, which do not hear each other. \
                 Have the subnet manager make their ports full ones, or give all PEs another one with SHMEM_PKEY",
                self.why,
                self.pkey.partition()
            ));
        }
        if peer.by_owner != self.by_owner {
            let who = |by_owner| if by_owner { "owners" } else { "HCAs" };
            return Err(format!(
                "atomics between it and others are executed by {}, and those of this PE by {} (on {}: {}). \
                 Give all PEs the same with SHMEM_ATOMICS; owner goes with every device",
                who(peer.by_owner),
                who(self.by_owner),
                self.fabric,
                self.why
            ));
        }
        if peer.checks != self.checks {
            let compares = |checks| {
                if checks {
                    "compares"
                } else {
                    "does not compare"
                }
            };
            return Err(format!(
                "it {} what PEs call (SHMEM_CHECK), but this PE {} it: set it alike for all PEs, where some of them \
                 are programs of debug builds and others are not",
                compares(peer.checks),
                compares(self.checks),
            ));
        }
        let own = heap_start(&self.view);
        if peer.heap_start != own {
            let room =
                |start: u32| (start as usize * AGREED_ALIGN).saturating_sub(INTERNAL_SIZE) >> 10;
            let (theirs, own) = (room(peer.heap_start), room(own));
            return Err(format!(
                "its node has {theirs} KiB of room for static data before the heap, and the node of this PE has {own} KiB. \
                 The first PEs of the two nodes may run different programs. Set SHMEM_STATICS_SIZE={}k for all PEs, or \
                 more if another node needs it",
                theirs.max(own)
            ));
        }
        Ok(peer)
    }
}

impl AddressTable {
    /// The layout of a PE's static data, once it has published that; `None` if it cannot be reached at all.
    /// Reports the wait for it in the block of this PE, the `local`th of its node.
    pub(super) fn statics(&self, pe: u32, local: usize) -> Option<u32> {
        let mut report = None;
        loop {
            match self.addresses.find(pe) {
                Found::Pending => {
                    report.get_or_insert_with(|| {
                        WaitReport::begin(self.view.pe_block(local), address_of(pe))
                    });
                    self.wait(pe, LAST_NAP);
                }
                Found::Address(peer) => return Some(peer.statics),
                Found::Unknown(_) => return None,
            }
        }
    }
}

impl Directory for AddressTable {
    fn lookup(&self, pe: u32) -> Lookup {
        match self.addresses.find(pe) {
            Found::Pending => Lookup::Pending,
            Found::Address(peer) => match self.check(peer) {
                Ok(peer) => Lookup::Ready(peer.ud),
                Err(why) => Lookup::Unknown(why),
            },
            Found::Unknown(why) => Lookup::Unknown(why),
        }
    }

    fn wait(&self, _pe: u32, max: Duration) {
        // A PE that has published nothing yet may wait in MPI for this process.
        match driven_mpi() {
            Some(mpi) => {
                mpi.progress();
                self.addresses.wait(max.min(LAST_NAP));
            }
            None => self.addresses.wait(max),
        }
    }

    fn node(&self, pe: u32) -> u32 {
        // A PE that does not exist is refused before anybody asks for its node.
        self.view.node_of().get(pe as usize).copied().unwrap_or(pe)
    }

    fn describe(&self, pe: u32) -> String {
        match self.view.node_of().get(pe as usize) {
            Some(node) => format!("PE {pe} (node {node})"),
            None => format!("PE {pe}"),
        }
    }
}
