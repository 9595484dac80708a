//! What only libibverbs knows of RDMA devices: for reports, not for the choice. Opens each device
//! for a moment.

/// What is found through libibverbs.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Where the library is, or why it is not used.
    pub library: Result<String, String>,
    /// Each device by its name, or why it cannot be asked.
    pub devices: Vec<(String, Result<Abilities, String>)>,
}

/// What a device can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Version of its firmware.
    pub firmware: String,
    /// Whether it is a driver that works on this machine's processors.
    pub software: bool,
    /// Whether there are datagrams, as far as the driver tells.
    pub datagrams: bool,
    /// Whether there are shared receive queues.
    pub srq: bool,
    /// Whether there are XRC domains.
    pub xrc: bool,
    /// What remote atomics are atomic with.
    pub atomics: &'static str,
    /// What it can do without pinning memory.
    pub on_demand_paging: &'static str,
    /// Most queue pairs.
    pub max_qp: u32,
    /// Most work requests of a queue.
    pub max_qp_wr: u32,
    /// Most completions of a queue.
    pub max_cqe: u32,
    /// Most outstanding READs and atomics that a queue pair answers.
    pub max_rd_atomic: u32,
    /// Of each port its number, and the largest packet payload now and ever.
    pub mtus: Vec<(u8, u16, u16)>,
}

/// Asks libibverbs about all devices.
#[cfg(not(feature = "verbs"))]
#[must_use]
pub fn inspect() -> Inspection {
    Inspection {
        library: Err("this program was built without feature `verbs`".into()),
        devices: Vec::new(),
    }
}

/// Asks libibverbs about all devices.
#[cfg(feature = "verbs")]
#[must_use]
pub fn inspect() -> Inspection {
    match crate::ibv::devices() {
        Ok(found) => Inspection {
            library: Ok(library_path()),
            devices: found
                .into_iter()
                .map(|device| {
                    let info = device.info.as_ref();
                    (
                        device.name.clone(),
                        info.map(abilities).map_err(ToString::to_string),
                    )
                })
                .collect(),
        },
        Err(e) => Inspection {
            library: if is_loaded() {
                Ok(library_path())
            } else {
                Err(e.to_string())
            },
            devices: Vec::new(),
        },
    }
}

#[cfg(feature = "verbs")]
fn abilities(info: &crate::ibv::DeviceInfo) -> Abilities {
    use crate::ibv::Atomics;
    let caps = &info.caps;
    Abilities {
        firmware: info.firmware.clone(),
        software: caps.software,
        datagrams: caps.max_ah > 0,
        srq: caps.max_srq > 0,
        xrc: caps.xrc,
        atomics: match caps.atomics {
            Atomics::None => "none",
            Atomics::Device => "with each other",
            Atomics::Global => "with processors, too",
        },
        on_demand_paging: match (caps.odp.serves_segments(), caps.odp.supported) {
            (true, _) => "for all operations",
            (false, true) => "for some operations",
            (false, false) => "none",
        },
        max_qp: caps.max_qp,
        max_qp_wr: caps.max_qp_wr,
        max_cqe: caps.max_cqe,
        max_rd_atomic: caps.max_qp_rd_atom,
        mtus: info
            .ports
            .iter()
            .map(|port| {
                (
                    port.number,
                    port.mtu.0.bytes() as u16,
                    port.mtu.1.bytes() as u16,
                )
            })
            .collect(),
    }
}

/// The file of the library, from the list of this process's mappings.
#[cfg(feature = "verbs")]
fn mapped() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.contains("/libibverbs.so"))?;
    Some(line.get(line.find('/')?..)?.to_owned())
}

#[cfg(feature = "verbs")]
fn is_loaded() -> bool {
    mapped().is_some()
}

#[cfg(feature = "verbs")]
fn library_path() -> String {
    mapped().unwrap_or_else(|| "libibverbs.so.1".into())
}
