//! How the packets of a port are marked: with a partition, which decides who takes them, and with two
//! numbers by which switches and routers treat them.
//!
//! A packet of another partition, and one whose service level a switch does not carry, vanish without a word.
//! So whoever waits in vain names the lane.

use std::fmt;

/// A partition key: the number of a partition in 15 bits, and above them whether the port is a full member
/// of it. Packets carry it, and who is no member drops them (InfiniBand specification, 10.9.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pkey(pub u16);

/// Bit of full members.
const FULL: u16 = 0x8000;

impl Pkey {
    /// A full member of the default partition: what every port is until a subnet manager says otherwise.
    pub const DEFAULT: Self = Self(0xffff);

    /// The number of the partition.
    #[must_use]
    pub const fn partition(self) -> u16 {
        self.0 & !FULL
    }

    /// A full member of the partition of this key.
    #[must_use]
    pub const fn full(key: u16) -> Self {
        Self(key | FULL)
    }

    /// Whether the port is a full member. Limited ones hear full ones only.
    #[must_use]
    pub const fn is_full(self) -> bool {
        self.0 & FULL != 0
    }

    /// Whether packets with one of the two are taken by a port with the other: both are members of one
    /// partition, and not both limited ones.
    #[must_use]
    pub const fn hears(self, other: Self) -> bool {
        self.partition() == other.partition() && (self.is_full() || other.is_full())
    }

    /// Whether it names a partition at all: number 0 marks what is not set.
    #[must_use]
    pub const fn is_set(self) -> bool {
        self.partition() != 0
    }
}

impl Default for Pkey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Debug for Pkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pkey({:#06x})", self.0)
    }
}

impl fmt::Display for Pkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let member = if self.is_full() { "full" } else { "limited" };
        write!(f, "{:#06x} ({member} member)", self.0)
    }
}

/// How the packets of a port are marked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lane {
    /// Who takes them: the members of a partition.
    pub pkey: Pkey,
    /// Service level, 0 to 15: which virtual lanes of InfiniBand switches they take; on Ethernet with VLANs
    /// its lower three bits are the priority. The software HCA has none.
    pub service_level: u8,
    /// The byte of that name in a global routing header and in IPv6 headers, the type of service of IPv4:
    /// its upper six bits are the DSCP, by which Ethernet switches tell traffic apart, the lower two tell
    /// of congestion.
    pub traffic_class: u8,
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pkey,
            service_level,
            traffic_class,
        } = self;
        write!(
            f,
            "partition {pkey}, service level {service_level}, traffic class {traffic_class}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_members_hear_full_ones_only() {
        let hears = |a, b| Pkey(a).hears(Pkey(b));
        assert!(hears(0xffff, 0xffff) && hears(0xffff, 0x7fff) && hears(0x7fff, 0xffff));
        assert!(!hears(0x7fff, 0x7fff), "two limited ones");
        assert!(!hears(0x8001, 0xffff) && !hears(0x8001, 0x8002));
        assert!(!Pkey(0x8000).is_set() && !Pkey(0).is_set() && Pkey(1).is_set());
    }

    #[test]
    fn a_lane_reads_as_its_settings_are_written() {
        let lane = Lane {
            pkey: Pkey(0x8001),
            service_level: 3,
            traffic_class: 106,
        };
        assert_eq!(
            lane.to_string(),
            "partition 0x8001 (full member), service level 3, traffic class 106"
        );
        assert_eq!(Pkey(0x12).to_string(), "0x0012 (limited member)");
    }
}
