//! What RDMA devices a machine has, as plain data: for the choice among them and for reports.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use shmem_verbs::Gid;

/// The RDMA devices of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// In the order of their names; numbers in these count as numbers.
    pub devices: Vec<SeenDevice>,
    /// Why there are none, or not all.
    pub trouble: Option<String>,
}

/// A device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenDevice {
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
    pub ports: Vec<SeenPort>,
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
pub struct SeenPort {
    /// Its number on the device, from 1.
    pub number: u8,
    /// The logical state, such as `ACTIVE` or `DOWN`.
    pub state: String,
    /// What it is connected to.
    pub link: LinkLayer,
    /// Rate in megabits per second; 0: not known.
    pub rate: u32,
    /// The address that a subnet manager gave it, on InfiniBand; 0: none.
    pub lid: u16,
    /// The addresses that are set.
    pub gids: Vec<SeenGid>,
}

impl SeenPort {
    /// Whether it can carry packets.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == ACTIVE
    }
}

pub(super) const ACTIVE: &str = "ACTIVE";

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
pub struct SeenGid {
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
    /// InfiniBand's routing header; on Ethernet this is RoCE v1.
    IbOrRoceV1,
    /// UDP over IP.
    RoceV2,
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
