//! What RDMA devices a machine has, as plain data: for the choice among them and for reports.
//!
//! `sysfs` fills it in. What only the driver of an open device tells is in `abilities`, in the same terms.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use shmem_verbs::Gid;

/// The RDMA devices of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// In the order of their names; numbers in these count as numbers.
    pub devices: Vec<RdmaDevice>,
    /// Why there are none, or not all.
    pub trouble: Option<String>,
}

/// A device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RdmaDevice {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// How its connections are carried.
    pub transport: Transport,
    /// Whether it is Soft-RoCE: the kernel's emulation of a device on a network interface.
    pub emulated: bool,
    /// Its node GUID, as the kernel writes it.
    pub guid: String,
    /// Whether this process may use it; else what stands against that, and what to do.
    pub access: Result<(), String>,
    /// In the order of their numbers.
    pub ports: Vec<RdmaPort>,
}

/// What a device speaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transport {
    /// InfiniBand's, over whatever link: what this project speaks.
    InfiniBand,
    /// iWARP: RDMA over TCP.
    Iwarp,
    /// Something else, in the kernel's words.
    Other(String),
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RdmaPort {
    /// Its number on the device, from 1.
    pub number: u8,
    /// Whether packets pass.
    pub state: PortState,
    /// What it is connected to.
    pub link: LinkLayer,
    /// Rate in megabits per second; 0: not known.
    pub rate: u32,
    /// The address that a subnet manager gave it, on InfiniBand; 0: none.
    pub lid: u16,
    /// The addresses that are set.
    pub gids: Vec<GidEntry>,
}

/// The logical state of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortState {
    /// No link: no cable, the other side is off, or the network interface is down.
    Down,
    /// The link is up; on InfiniBand the subnet manager has not been here.
    Init,
    /// The subnet manager has set it up, and has not released it.
    Armed,
    /// Packets pass.
    Active,
    /// Packets pass, and it is in trouble at the moment.
    ActiveDefer,
    /// Something else, in the kernel's words.
    Other(String),
}

impl PortState {
    /// Of the number that kernel and library have for it.
    #[must_use]
    pub fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Down,
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            5 => Self::ActiveDefer,
            other => Self::Other(format!("unknown state {other}")),
        }
    }

    /// Whether packets pass.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        matches!(self, Self::Active | Self::ActiveDefer)
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "DOWN",
            Self::Init => "INIT",
            Self::Armed => "ARMED",
            Self::Active => "ACTIVE",
            Self::ActiveDefer => "ACTIVE_DEFER",
            Self::Other(text) if text.is_empty() => "unknown",
            Self::Other(text) => text,
        })
    }
}

/// What a port is connected to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkLayer {
    /// An InfiniBand fabric.
    InfiniBand,
    /// Ethernet: RoCE.
    Ethernet,
    /// Something else, in the kernel's words.
    Other(String),
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Other(name) => name,
        })
    }
}

/// An entry of a port's table of GIDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// Its index.
    pub index: u16,
    /// The address.
    pub gid: Gid,
    /// What packets with it look like.
    pub kind: GidKind,
}

/// What packets with a GID look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidKind {
    /// InfiniBand packets.
    InfiniBand,
    /// RoCE version 1: Ethernet frames that no router passes on.
    RoceV1,
    /// RoCE version 2: UDP datagrams.
    RoceV2,
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

/// With what the remote atomics of a device are atomic; the later ones hold more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Atomics {
    /// There are none.
    #[default]
    None,
    /// With each other.
    Device,
    /// With everything that accesses the memory, processors included.
    Global,
}

impl fmt::Display for Atomics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Device => "with each other",
            Self::Global => "with processors, too",
        })
    }
}

/// How useful an address is for reaching others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reach {
    /// An IPv6 address that counts on one link only, and that switches of RoCE do not route.
    LinkLocal,
    /// This machine.
    Loopback,
    /// IPv6.
    Ipv6,
    /// IPv4.
    Ipv4,
}

impl Reach {
    /// Of a GID of RoCEv2.
    #[must_use]
    pub fn of(gid: Gid) -> Self {
        let link_local = |ip: &Ipv6Addr| ip.segments()[0] & 0xffc0 == 0xfe80;
        match gid.ip() {
            ip if ip.is_loopback() => Self::Loopback,
            IpAddr::V6(ip) if link_local(&ip) => Self::LinkLocal,
            IpAddr::V6(_) => Self::Ipv6,
            IpAddr::V4(_) => Self::Ipv4,
        }
    }
}
