//! How an RDMA device is to be used, as far as a user may say. From who opens a device to where an option
//! acts it is passed on whole, so that a new one is a field here and a line there.

#![forbid(unsafe_code)]

/// Options of an RDMA device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VerbsOptions {
    /// Whether memory that peers access is registered so that its pages are made when they are
    /// touched, if the device can do that ([`Odp::serves_segments`](crate::abilities::Odp::serves_segments)),
    /// instead of pinned. [`PortInfo::pins_memory`](shmem_verbs::PortInfo::pins_memory) tells which it has
    /// become.
    pub on_demand_paging: bool,
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
            options: VerbsOptions::default(),
        }
    }
}
