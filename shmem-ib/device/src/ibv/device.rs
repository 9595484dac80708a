//! What a device and its ports are, in plain types: for choosing one, and for telling the user
//! what there is. Filled in by `discover`.

#![forbid(unsafe_code)]

use std::fmt;

use shmem_verbs::{Gid, Mtu};

/// A device as its driver describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Name by which it is opened, such as `mlx5_0`.
    pub name: String,
    /// Globally unique identifier of the node.
    pub guid: u64,
    /// Vendor, an IEEE organisation number.
    pub vendor_id: u32,
    /// Its number for the kind of device.
    pub vendor_part_id: u32,
    /// Version of its firmware, as text.
    pub firmware: String,
    /// What it can do.
    pub caps: DeviceCaps,
    /// Its ports, by ascending number.
    pub ports: Vec<DevicePort>,
}

/// Limits and abilities of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceCaps {
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
    /// It is a driver that works on the processors of this machine (Soft-RoCE, Soft-iWARP): it
    /// needs processor time to move anything.
    pub software: bool,
}

/// With what the remote atomics of a device are atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomics {
    /// There are none.
    None,
    /// With each other.
    Device,
    /// With everything that accesses the memory, processors included.
    Global,
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

/// One port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DevicePort {
    /// Its number, from 1.
    pub number: u8,
    /// Whether packets pass.
    pub state: PortState,
    /// What is underneath.
    pub link_layer: LinkLayer,
    /// Largest packet payload now, and ever.
    pub mtu: (Mtu, Mtu),
    /// Local identifier that the subnet manager has given (InfiniBand); 0 on Ethernet.
    pub lid: u16,
    /// Longest message, in bytes.
    pub max_msg: u64,
    /// The identifiers in use, by ascending index.
    pub gids: Vec<DeviceGid>,
}

/// State of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortState {
    /// No link: no cable, the other side is off, or the network interface is down.
    Down,
    /// The link is up; on InfiniBand the subnet manager has not been here.
    Init,
    /// The subnet manager has set it up, and has not released it.
    Armed,
    /// Packets pass.
    Active,
    /// Active, and in trouble at the moment.
    ActiveDefer,
    /// Something that this program does not know.
    Other(u32),
}

/// What a port is attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkLayer {
    /// InfiniBand: packets find their way by LID.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// Something that this program does not know.
    Other(u8),
}

/// An entry of a port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceGid {
    /// Its place in the table.
    pub index: u8,
    /// The identifier.
    pub gid: Gid,
    /// What packets sent from it look like.
    pub kind: GidKind,
}

/// What packets from a GID look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidKind {
    /// InfiniBand packets.
    InfiniBand,
    /// RoCE version 1: Ethernet frames that no router passes on.
    RoceV1,
    /// RoCE version 2: UDP datagrams.
    RoceV2,
}

impl DevicePort {
    /// Whether packets pass.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        matches!(self.state, PortState::Active | PortState::ActiveDefer)
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("down"),
            Self::Init => f.write_str("init (no subnet manager has been here)"),
            Self::Armed => f.write_str("armed"),
            Self::Active => f.write_str("active"),
            Self::ActiveDefer => f.write_str("active (deferred)"),
            Self::Other(n) => write!(f, "unknown state {n}"),
        }
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InfiniBand => f.write_str("InfiniBand"),
            Self::Ethernet => f.write_str("Ethernet"),
            Self::Other(n) => write!(f, "unknown link layer {n}"),
        }
    }
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}
