//! What RDMA devices a machine has, as plain data: for the choice among them and for reports.
//!
//! `sysfs` fills it in. What only the driver of an open device tells is in `abilities`, in the same terms.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use shmem_verbs::{Gid, Pkey};

/// The RDMA devices of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// In the order of their names; numbers in these count as numbers.
    pub devices: Vec<RdmaDevice>,
    /// Why there are none, or not all.
    pub trouble: Option<String>,
    /// The IP networks that this machine is connected to.
    pub networks: Vec<Network>,
}

/// An IP network: an address in it, and the length of the prefix that all have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// Any address of it, as a GID.
    pub address: Gid,
    /// Bits in common, of the 128 of a GID.
    pub bits: u8,
}

impl Network {
    /// Whether the address is in it.
    #[must_use]
    pub fn contains(&self, gid: Gid) -> bool {
        let differs = u128::from_be_bytes(self.address.0) ^ u128::from_be_bytes(gid.0);
        differs.leading_zeros() >= u32::from(self.bits)
    }
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
    /// The NUMA node that it is at, if the machine tells.
    pub numa: Option<u32>,
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
    /// Whether there is somebody at the other end.
    pub physical: PhysicalState,
    /// What it is connected to.
    pub link: LinkLayer,
    /// Rate in megabits per second; 0: not known.
    pub rate: u32,
    /// The address that a subnet manager gave it, on InfiniBand; 0: none.
    pub lid: u16,
    /// It has `2^lmc` LIDs from that one on, each with a way of its own through the fabric.
    pub lmc: u8,
    /// The LID of the subnet manager; 0: none.
    pub sm_lid: u16,
    /// Whether it takes packets only with a global routing header, as where virtual ports share a LID.
    /// Only an open device tells.
    pub needs_grh: bool,
    /// The addresses that are set.
    pub gids: Vec<GidEntry>,
    /// Its partitions, by index; perhaps the first one only.
    pub pkeys: Vec<(u16, Pkey)>,
}

impl RdmaPort {
    /// The place of a partition in its table, and the key there. A key with the bit of full members asks for
    /// such a membership, one without takes what there is, a full one first; `None` asks for the first entry.
    ///
    /// # Errors
    /// There is no such entry: why, and what there is.
    pub fn pkey(&self, wanted: Option<Pkey>) -> Result<(u16, Pkey), String> {
        let Some(wanted) = wanted else {
            return match self.pkeys.first() {
                Some(&(0, pkey)) if pkey.is_set() => Ok((0, pkey)),
                // Nobody has told of a table.
                None => Ok((0, Pkey::DEFAULT)),
                Some(_) => Err(format!(
                    "the first entry of its partition table is empty; SHMEM_PKEY takes another: {}",
                    self.partitions()
                )),
            };
        };
        let of_it = || {
            let mine = |(_, pkey): &&(u16, Pkey)| pkey.partition() == wanted.partition();
            self.pkeys.iter().filter(mine).copied()
        };
        let found = of_it().find(|(_, pkey)| pkey.is_full());
        let found = found.or_else(|| of_it().next().filter(|_| !wanted.is_full()));
        found.ok_or_else(|| match of_it().next() {
            Some((_, pkey)) => format!(
                "it is a limited member of the partition only, which hears full members alone: \
                 SHMEM_PKEY={:#06x} takes that",
                pkey.0
            ),
            None => format!(
                "it is not in partition {:#06x} (SHMEM_PKEY): its partition table, which the subnet manager \
                 writes, has {}",
                wanted.0,
                self.partitions()
            ),
        })
    }

    fn partitions(&self) -> String {
        let set = self.pkeys.iter().filter(|(_, pkey)| pkey.is_set());
        let all: Vec<_> = set.map(|(_, pkey)| pkey.to_string()).collect();
        match all.is_empty() {
            true => "none".into(),
            false => all.join(", "),
        }
    }

    /// What to look at where it is not active.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        use PhysicalState as P;
        match (&self.link, &self.state, self.physical) {
            (LinkLayer::InfiniBand, PortState::Init | PortState::Armed, _) => {
                "its link is up, but no subnet manager has set it up: start one (opensm), or the one of \
                 the switch"
            }
            (LinkLayer::InfiniBand, _, P::Polling) => {
                "it still looks for somebody at the other end of its cable (Polling): is one plugged in, \
                 and the switch on?"
            }
            (LinkLayer::InfiniBand, _, P::Disabled) => {
                "it was switched off: switch it on (ibportstate LID PORT enable)"
            }
            (LinkLayer::InfiniBand, ..) => "look at its cable and at the switch",
            _ => {
                "bring its network interface up (rdma link shows which, ip link set NAME up), look at the \
                 cable"
            }
        }
    }
}

/// What a port sees at the other end of its cable.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PhysicalState {
    /// It looks for somebody.
    Polling,
    /// It was switched off.
    Disabled,
    /// There is somebody.
    Up,
    /// Something else, or not known.
    #[default]
    Other,
}

impl PhysicalState {
    /// Of the number that kernel and library have for it.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            2 => Self::Polling,
            3 => Self::Disabled,
            5 => Self::Up,
            _ => Self::Other,
        }
    }
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
