//! Ports that a process can use, in which order it tries them, and why: the best ones, near to it, by turns
//! with the others of its node.
//!
//! All PEs of a job have to reach each other, whatever they take. So what is best is decided without regard to
//! where a process runs, and the same on all nodes that have the same devices; nearness and turns decide among
//! ports that are equal and in the same network.

#![forbid(unsafe_code)]

use std::fmt;

use super::hardware::{Reach, Survey};
use super::seat::Seat;
use shmem_verbs::{Fabric, Gid, Pkey};

/// A port that can be used, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usable {
    /// Name of the device.
    pub device: String,
    /// Number of the port.
    pub port: u8,
    /// Index of the GID to use.
    pub gid_index: u8,
    /// The GID there.
    pub gid: Gid,
    /// Why that one.
    pub gid_why: &'static str,
    /// Its partition.
    pub pkey: Pkey,
    /// The subnet manager of an InfiniBand port, by its LID.
    pub sm_lid: u16,
    /// The NUMA node of the device, if the machine tells.
    pub numa: Option<u32>,
    /// InfiniBand or RoCEv2.
    pub fabric: Fabric,
    /// Megabits per second.
    pub rate: u32,
    /// Whether it is Soft-RoCE.
    pub emulated: bool,
    /// Why it stands where it does among those that can be used; empty before there is an order.
    pub why: String,
}

impl fmt::Display for Usable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, port, .. } = self;
        write!(
            f,
            "{device} port {port} ({}, GID {})",
            self.fabric, self.gid
        )
    }
}

/// What makes one port better than another, the first of these that differs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Others can be reached at all.
    reaches: bool,
    /// It is no emulation.
    real: bool,
    /// Megabits per second.
    rate: u32,
    /// InfiniBand loses no packets, whoever else sends.
    infiniband: bool,
    /// How its address is routed.
    reach: Reach,
}

impl Rank {
    fn of(port: &Usable) -> Self {
        let reach = match port.fabric {
            Fabric::InfiniBand => Reach::Ipv4,
            Fabric::Soft | Fabric::Roce => Reach::of(port.gid),
        };
        Self {
            reaches: reach > Reach::Loopback,
            real: !port.emulated,
            rate: port.rate,
            infiniband: port.fabric == Fabric::InfiniBand,
            reach,
        }
    }
}

/// Why a port comes behind the best one.
fn lesser(port: &Usable, best: &Usable) -> String {
    let (this, that) = (Rank::of(port), Rank::of(best));
    let why = match () {
        () if this.reaches != that.reaches => "its address reaches this machine only",
        () if this.real != that.real => "it is an emulation",
        () if this.rate != that.rate => return format!("slower than {}", name(best)),
        () if this.infiniband != that.infiniband => {
            "InfiniBand goes before Ethernet of the same rate"
        }
        () => "IPv4 goes before IPv6",
    };
    why.to_owned()
}

/// The ports, the one to take first, each with the reason for its place.
pub(super) fn in_order(mut ports: Vec<Usable>, seat: &Seat, survey: &Survey) -> Vec<Usable> {
    // Stable: of equals the first.
    ports.sort_by_key(|port| std::cmp::Reverse(Rank::of(port)));
    let Some(best) = ports.first().cloned() else {
        return ports;
    };
    let (mut equal, mut others): (Vec<Usable>, Vec<Usable>) = ports
        .into_iter()
        .partition(|port| Rank::of(port) == Rank::of(&best) && in_one_network(port, &best, survey));
    for port in &mut others {
        port.why = match Rank::of(port) == Rank::of(&best) {
            true => format!(
                "as good as {}, but perhaps in another network: SHMEM_HCA with both takes them by turns",
                name(&best)
            ),
            false => lesser(port, &best),
        };
    }
    let distance = |port: &Usable| seat.distance(port.numa);
    let nearest = equal.iter().map(distance).min().unwrap_or(0);
    // Stable, again.
    equal.sort_by_key(distance);
    let near = equal.iter().filter(|p| distance(p) == nearest).count();
    equal[..near].rotate_left(seat.turn(near));
    let names: Vec<String> = equal[..near].iter().map(name).collect();
    let alone = others.is_empty() && equal.len() == 1;
    let all_near = near == equal.len();
    let bound = seat.bound().filter(|_| !all_near);
    for (at, port) in equal.iter_mut().enumerate() {
        let numa = port
            .numa
            .map_or_else(String::new, |n| format!(" (NUMA node {n})"));
        port.why = match (at, &bound) {
            (0, _) => {
                let best = if alone {
                    "the only one"
                } else {
                    "the best there is"
                };
                let near_it = bound.as_ref().map_or_else(String::new, |at| {
                    format!(", and the nearest{numa} to this PE, which runs on {at}")
                });
                let mut rest = names[1..].to_vec();
                rest.sort_unstable();
                let turns = match rest.is_empty() {
                    true => String::new(),
                    false => format!(", by turns with {}", rest.join(", ")),
                };
                format!("{best}{near_it}{turns}")
            }
            _ if at < near => format!("as good as {}, and the turn of another PE", names[0]),
            (_, Some(at)) => format!("as good as {}, but farther{numa} from {at}", names[0]),
            _ => format!("as good as {}, but farther away{numa}", names[0]),
        };
    }
    equal.extend(others);
    equal
}

fn name(port: &Usable) -> String {
    format!("{} port {}", port.device, port.port)
}

/// Whether the two certainly reach each other.
fn in_one_network(one: &Usable, other: &Usable, survey: &Survey) -> bool {
    if one == other {
        return true;
    }
    match (one.fabric, other.fabric) {
        // Fabrics that are apart often have the same prefix, the one that they are made with; but hardly the
        // subnet managers at the same place.
        (Fabric::InfiniBand, Fabric::InfiniBand) => {
            one.gid.0[..8] == other.gid.0[..8] && one.sm_lid == other.sm_lid
        }
        (Fabric::Roce, Fabric::Roce) => survey
            .networks
            .iter()
            .any(|network| network.contains(one.gid) && network.contains(other.gid)),
        _ => false,
    }
}
