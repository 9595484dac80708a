//! What a device can do, as its driver tells once it is open: in plain types, for the choice, for those
//! who use it, and for reports. `quirks` corrects what single devices tell wrongly.

#![forbid(unsafe_code)]

use std::fmt;

use shmem_verbs::Mtu;

use super::hardware::{Atomics, RdmaPort};
use super::quirks::Quirks;

/// A device as its driver describes it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Abilities {
    /// Vendor, an IEEE organisation number.
    pub vendor_id: u32,
    /// Its number for the kind of device.
    pub vendor_part_id: u32,
    /// Version of its firmware, as text.
    pub firmware: String,
    /// It works on the processors of this machine, and needs their time to move anything: Soft-RoCE.
    pub emulated: bool,
    /// What is peculiar about it.
    pub quirks: Quirks,
    /// Most queue pairs.
    pub max_qp: u32,
    /// Most work requests in a queue.
    pub max_qp_wr: u32,
    /// Most local buffers of a work request.
    pub max_sge: u32,
    /// Most local buffers of a READ.
    pub max_sge_rd: u32,
    /// Most completions in a completion queue.
    pub max_cqe: u32,
    /// Most memory regions.
    pub max_mr: u32,
    /// Longest memory region, in bytes.
    pub max_mr_size: u64,
    /// Most address handles; 0: not told.
    pub max_ah: u32,
    /// Most shared receive queues.
    pub max_srq: u32,
    /// Most receives in a shared receive queue.
    pub max_srq_wr: u32,
    /// Most local buffers of such a receive.
    pub max_srq_sge: u32,
    /// READs and atomics of a peer that a queue pair can answer at a time.
    pub max_qp_rd_atom: u32,
    /// READs and atomics that a queue pair can have outstanding.
    pub max_qp_init_rd_atom: u32,
    /// With what remote atomics are atomic.
    pub atomics: Atomics,
    /// Whether it has XRC.
    pub xrc: bool,
    /// What it can do with memory that is not pinned.
    pub odp: Odp,
    /// Its ports, by ascending number.
    pub ports: Vec<PortAbilities>,
}

/// A port, and what only an open device tells of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortAbilities {
    /// The port.
    pub port: RdmaPort,
    /// Largest packet payload now, and ever.
    pub mtu: (Mtu, Mtu),
    /// Longest message, in bytes.
    pub max_msg: u64,
}

impl Abilities {
    /// What the driver has told, corrected by what is known better of this device.
    #[must_use]
    pub fn corrected(mut self, quirks: Quirks) -> Self {
        self.quirks = quirks;
        self.atomics = quirks
            .atomics
            .map_or(self.atomics, |most| self.atomics.min(most));
        self
    }

    /// The port with this number.
    #[must_use]
    pub fn port(&self, number: u8) -> Option<&PortAbilities> {
        self.ports.iter().find(|p| p.port.number == number)
    }
}

/// On-demand paging: registrations that do not pin their pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Odp {
    /// It has it.
    pub supported: bool,
    /// A registration may cover the whole address space.
    pub implicit: bool,
    /// On RC queue pairs: sends, WRITEs, READs, and atomics, as source and as target.
    pub rc: OdpOps,
}

/// Operations that may touch memory which is not there yet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OdpOps {
    /// Sources of sends.
    pub send: bool,
    /// Receives.
    pub recv: bool,
    /// RDMA writes.
    pub write: bool,
    /// RDMA reads.
    pub read: bool,
    /// Atomics.
    pub atomic: bool,
}

impl Odp {
    /// Whether a symmetric segment can be registered on demand: peers write, read, and execute
    /// atomics there, and it is the source of the same.
    #[must_use]
    pub const fn serves_segments(&self) -> bool {
        self.supported && self.rc.write && self.rc.read && self.rc.atomic
    }
}

impl fmt::Display for Odp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.serves_segments(), self.supported) {
            (true, _) => "for all operations",
            (false, true) => "for some operations",
            (false, false) => "none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_better_counts_and_the_rest_stays() {
        let told = Abilities {
            atomics: Atomics::Device,
            max_qp: 7,
            ..Abilities::default()
        };
        assert_eq!(told.clone().corrected(Quirks::default()), told);
        let quirks = Quirks {
            atomics: Some(Atomics::None),
            ..Quirks::default()
        };
        let corrected = told.corrected(quirks);
        assert_eq!((corrected.atomics, corrected.max_qp), (Atomics::None, 7));
        assert_eq!(corrected.quirks, quirks);
        // What a device does not claim, no quirk gives it.
        let more = Quirks {
            atomics: Some(Atomics::Global),
            ..Quirks::default()
        };
        assert_eq!(corrected.corrected(more).atomics, Atomics::None);
    }
}
