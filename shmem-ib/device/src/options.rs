//! How an RDMA device is to be used, as far as a user may say. From who opens a device to where an option
//! acts it is passed on whole, so that a new one is a field here and a line there.

#![forbid(unsafe_code)]

use shmem_verbs::{Lane, Pkey};

/// Options of an RDMA device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VerbsOptions {
    /// Whether memory that peers access is registered so that its pages are made when they are
    /// touched, if the device can do that ([`Odp::serves_segments`](crate::abilities::Odp::serves_segments)),
    /// instead of pinned. [`PortInfo::pins_memory`](shmem_verbs::PortInfo::pins_memory) tells which it has
    /// become.
    pub on_demand_paging: bool,
    /// The partition to be in: [`RdmaPort::pkey`](crate::hardware::RdmaPort::pkey) finds it in the port's
    /// table. `None`: the one in the table's first entry.
    pub pkey: Option<Pkey>,
    /// [`Lane::service_level`] of all packets.
    pub service_level: u8,
    /// [`Lane::traffic_class`] of all packets that have a global routing header: on Ethernet all, on
    /// InfiniBand those between subnets, or with `global_route`.
    pub traffic_class: u8,
    /// Whether packets have a global routing header on InfiniBand even where a LID would do. Ports that need
    /// one always get it.
    pub global_route: bool,
}

impl VerbsOptions {
    /// How packets are marked by a port in this partition.
    #[must_use]
    pub const fn lane(&self, pkey: Pkey) -> Lane {
        Lane {
            pkey,
            service_level: self.service_level,
            traffic_class: self.traffic_class,
        }
    }
}

/// Which port of which device, and how it is to be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerbsConfig {
    /// Name of the device, as the machine has it.
    pub device: String,
    /// Its port, from 1.
    pub port: u8,
    /// The entry of the port's GID table to send from: [`crate::choice`] finds one.
    pub gid_index: u8,
    /// Which way through an InfiniBand fabric, where a subnet manager gave the port several LIDs (LMC): the
    /// number of one of them, or a larger one, of which the remainder counts.
    pub path: usize,
    /// How the device is to be used.
    pub options: VerbsOptions,
}

impl VerbsConfig {
    /// A port, without options.
    #[must_use]
    pub fn new(device: impl Into<String>, port: u8, gid_index: u8) -> Self {
        Self {
            device: device.into(),
            port,
            gid_index,
            path: 0,
            options: VerbsOptions::default(),
        }
    }
}
