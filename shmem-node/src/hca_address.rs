//! Which address each software HCA of a job binds: one per node, so that emulated nodes differ as
//! real ones do; one per PE where all must use the same UDP port (RoCEv2's own is 4791); or one for
//! all, told apart by ports.
//!
//! Nodes that are emulated on one machine get what the launcher decides for all ([`HcaAddresses`]):
//! every PE computes its own address from three facts in the node segment, so no table of addresses
//! exists. On several machines only a machine itself knows its addresses, so there the launcher
//! decides how each node finds its own ([`AddressPlan`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::ip_network::IpNetwork;

/// What `SHMEM_SOFT_ADDRESS` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressChoice {
    /// Loopback addresses of this job's own on one machine; on several, the one of each that the
    /// others reach.
    Auto,
    /// One address for all PEs.
    Shared(IpAddr),
    /// Consecutive addresses that begin with this one.
    From(IpAddr),
    /// The address that each machine has in this network.
    Network(IpNetwork),
}

/// What `SHMEM_SOFT_PORT` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortChoice {
    /// Any that is free.
    Any,
    /// The same for all, each at an address of its own.
    One(u16),
    /// The first that is free of these, both ends included: those that a firewall lets through.
    Among(u16, u16),
}

impl PortChoice {
    /// The first and the last of the ports; 0 and 0 for any.
    pub fn ends(self) -> (u16, u16) {
        match self {
            Self::Any => (0, 0),
            Self::One(port) => (port, port),
            Self::Among(first, last) => (first, last),
        }
    }
}

/// Where the addresses of a job's software HCAs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressPlan {
    /// The launcher knows them all.
    Known(HcaAddresses),
    /// Each node takes the address of its machine from which packets go to `anchor`, the address of
    /// node 0. For node 0, which makes that choice, there is none yet.
    Routed {
        /// Address of node 0.
        anchor: Option<IpAddr>,
    },
    /// Each node takes the address of its machine in this network.
    Network(IpNetwork),
}

/// How far apart PEs are in addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Spread {
    Job,
    Node,
    Pe,
}

/// The addresses of a job's software HCAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HcaAddresses {
    first: IpAddr,
    spread: Spread,
}

/// Addresses that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Several PEs on one address and port.
    #[error(
        "SHMEM_SOFT_PORT={port} with SHMEM_SOFT_ADDRESS={address}: {n_pes} PEs cannot bind one \
         address and port; use SHMEM_SOFT_ADDRESS={address}+ for consecutive addresses, or \
         SHMEM_SOFT_PORT=0"
    )]
    OnePort {
        /// The fixed port.
        port: u16,
        /// The one address.
        address: IpAddr,
        /// PEs of the job.
        n_pes: u32,
    },
    /// Several PEs of a machine on its one address and port.
    #[error(
        "SHMEM_SOFT_PORT={port}: {n_pes} PEs of one machine cannot bind its one address and that port; \
         use SHMEM_SOFT_ADDRESS=A+ with consecutive addresses that the machines have, one PE a host, \
         or SHMEM_SOFT_PORT=0"
    )]
    OnePortEach {
        /// The fixed port.
        port: u16,
        /// PEs of the fullest machine.
        n_pes: u32,
    },
    /// More PEs at an address than there are ports.
    #[error(
        "SHMEM_SOFT_PORT={first}-{last}: {n_pes} PEs at one address need as many ports; name more of them, or \
         addresses for each node with SHMEM_SOFT_ADDRESS=A+"
    )]
    FewPorts {
        /// The first port.
        first: u16,
        /// The last one.
        last: u16,
        /// PEs at an address.
        n_pes: u32,
    },
    /// Packets from any port have to be told apart by their addresses.
    #[error(
        "SHMEM_SOFT_INTEROP=yes needs one SHMEM_SOFT_PORT: devices of other makes send from any port, so \
         all have to listen on one; use SHMEM_SOFT_PORT=4791"
    )]
    InteropPort,
    /// The last address would be outside of the address family.
    #[error("SHMEM_SOFT_ADDRESS={first}+: there are no {count} addresses from there on")]
    TooMany {
        /// The first address.
        first: IpAddr,
        /// How many are needed.
        count: u32,
    },
}

/// A job, as far as its addresses depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Nodes of the job.
    pub n_nodes: u32,
    /// PEs of the job.
    pub n_pes: u32,
    /// Most PEs on one machine.
    pub per_machine: u32,
    /// Whether all nodes are on one machine.
    pub one_machine: bool,
}

impl Shape {
    /// That PEs of one address find ports enough.
    fn check_ports(self, choice: AddressChoice, port: PortChoice) -> Result<(), AddressError> {
        let n_pes = match choice {
            AddressChoice::Shared(_) => self.n_pes,
            _ if self.one_machine => self.n_pes.div_ceil(self.n_nodes),
            _ => self.per_machine,
        };
        match (port, choice) {
            (PortChoice::One(port), AddressChoice::Shared(address)) => Err(AddressError::OnePort {
                port,
                address,
                n_pes,
            }),
            (PortChoice::Among(first, last), _) if n_pes > u32::from(last - first) + 1 => {
                Err(AddressError::FewPorts { first, last, n_pes })
            }
            _ => Ok(()),
        }
    }
}

impl AddressPlan {
    /// Addresses for a job. With one `port` for all each PE gets its own address, else each
    /// node. `random` picks the loopback addresses of [`AddressChoice::Auto`], so that jobs which
    /// run at the same time hardly ever share one.
    ///
    /// # Errors
    /// There are not enough addresses for the choice.
    pub fn choose(
        choice: AddressChoice,
        port: PortChoice,
        random: u32,
        shape: Shape,
    ) -> Result<Self, AddressError> {
        let Shape { n_nodes, n_pes, .. } = shape;
        let (spread, count) = match port {
            PortChoice::One(_) => (Spread::Pe, n_pes),
            _ => (Spread::Node, n_nodes),
        };
        // A job of one node has no HCAs.
        if n_nodes > 1 {
            shape.check_ports(choice, port)?;
        }
        let own = |plan| match port {
            PortChoice::One(port) if n_nodes > 1 && shape.per_machine > 1 => {
                Err(AddressError::OnePortEach {
                    port,
                    n_pes: shape.per_machine,
                })
            }
            _ => Ok(plan),
        };
        match choice {
            AddressChoice::Auto if !shape.one_machine => own(Self::Routed { anchor: None }),
            AddressChoice::Network(network) => own(Self::Network(network)),
            AddressChoice::Auto => Ok(Self::Known(HcaAddresses {
                first: loopback(random, count).into(),
                spread,
            })),
            AddressChoice::Shared(address) => Ok(Self::Known(HcaAddresses::shared(address))),
            AddressChoice::From(first) => match nth(first, count - 1) {
                Some(_) => Ok(Self::Known(HcaAddresses { first, spread })),
                None => Err(AddressError::TooMany { first, count }),
            },
        }
    }
}

impl HcaAddresses {
    /// Bytes of the encoded form.
    pub const LEN: usize = 17;

    /// One address for all, each PE with a port of its own.
    pub const fn shared(address: IpAddr) -> Self {
        Self {
            first: address,
            spread: Spread::Job,
        }
    }

    /// The address of `pe`, which is on `node`.
    pub fn of(&self, node: u32, pe: u32) -> IpAddr {
        let n = match self.spread {
            Spread::Job => 0,
            Spread::Node => node,
            Spread::Pe => pe,
        };
        // Beyond the last address only if the numbers are not of this job.
        nth(self.first, n).unwrap_or(self.first)
    }

    /// Address (IPv4 as `::ffff:a.b.c.d`), and one byte for the spread.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let ip = match self.first {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        out[..16].copy_from_slice(&ip.octets());
        out[16] = match self.spread {
            Spread::Job => 0,
            Spread::Node => 1,
            Spread::Pe => 2,
        };
        out
    }

    /// Reads what [`Self::to_bytes`] wrote; `None` if the last byte means nothing.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let (ip, spread) = bytes.split_first_chunk::<16>()?;
        Some(Self {
            first: IpAddr::V6(Ipv6Addr::from(*ip)).to_canonical(),
            spread: match spread {
                [0] => Spread::Job,
                [1] => Spread::Node,
                [2] => Spread::Pe,
                _ => return None,
            },
        })
    }
}

/// The first of `count` loopback addresses; 127.0.x.y, where services listen, is left out.
fn loopback(random: u32, count: u32) -> Ipv4Addr {
    let first = u32::from(Ipv4Addr::new(127, 1, 0, 1));
    let last = u32::from(Ipv4Addr::new(127, 255, 255, 254)) - count;
    Ipv4Addr::from(first + random % (last - first))
}

/// The `n`-th address after `first`.
fn nth(first: IpAddr, n: u32) -> Option<IpAddr> {
    match first {
        IpAddr::V4(ip) => u32::from(ip)
            .checked_add(n)
            .map(|ip| Ipv4Addr::from(ip).into()),
        IpAddr::V6(ip) => u128::from(ip)
            .checked_add(n.into())
            .map(|ip| Ipv6Addr::from(ip).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::PortChoice::{Among, Any};
    use super::*;

    const ROCE: PortChoice = PortChoice::One(4791);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn loopback_addresses_stay_in_their_network() {
        for random in [0, 1, u32::MAX, 0x7fff_ffff] {
            for count in [1, 512, 1 << 20] {
                let base = loopback(random, count);
                let last = u32::from(base) + count;
                assert_eq!(base.octets()[0], 127);
                assert!(
                    base.octets()[1] >= 1 && last < u32::from(Ipv4Addr::new(127, 255, 255, 255))
                );
            }
        }
    }

    fn choose(
        choice: AddressChoice,
        port: PortChoice,
        n_nodes: u32,
        n_pes: u32,
    ) -> Result<AddressPlan, AddressError> {
        let shape = Shape {
            n_nodes,
            n_pes,
            per_machine: n_pes,
            one_machine: true,
        };
        AddressPlan::choose(choice, port, 7, shape)
    }

    fn known(choice: AddressChoice, port: PortChoice) -> HcaAddresses {
        match choose(choice, port, 2, 8) {
            Ok(AddressPlan::Known(addresses)) => addresses,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nodes_have_addresses_and_with_a_fixed_port_pes() {
        let auto = known(AddressChoice::Auto, Any);
        assert_eq!(auto.of(1, 5), auto.of(1, 7));
        assert_ne!(auto.of(0, 0), auto.of(1, 4));
        let fixed = known(AddressChoice::Auto, ROCE);
        let all: std::collections::BTreeSet<_> = (0..8).map(|pe| fixed.of(pe / 4, pe)).collect();
        assert_eq!(all.len(), 8);
        let from = known(AddressChoice::From(ip("127.9.8.255")), Any);
        assert_eq!(from.of(1, 4), ip("127.9.9.0"));
        let v6 = known(AddressChoice::From(ip("fd00::ffff")), ROCE);
        assert_eq!(v6.of(0, 1), ip("fd00::1:0"));
        let one = known(AddressChoice::Shared(ip("::1")), Any);
        assert_eq!((one.of(0, 0), one.of(1, 5)), (ip("::1"), ip("::1")));
        for a in [auto, fixed, from, one] {
            assert_eq!(HcaAddresses::from_bytes(&a.to_bytes()), Some(a));
        }
        assert_eq!(HcaAddresses::from_bytes(&[3; 17]), None);
    }

    #[test]
    fn machines_find_their_own_addresses() {
        let several = Shape {
            n_nodes: 2,
            n_pes: 4,
            per_machine: 2,
            one_machine: false,
        };
        let plan = |choice, port, shape| AddressPlan::choose(choice, port, 7, shape);
        let network = "10.5.0.0/24".parse().unwrap();
        assert_eq!(
            plan(AddressChoice::Auto, Any, several),
            Ok(AddressPlan::Routed { anchor: None })
        );
        assert_eq!(
            plan(AddressChoice::Network(network), Any, several),
            Ok(AddressPlan::Network(network))
        );
        let crowded = plan(AddressChoice::Auto, ROCE, several).unwrap_err();
        assert!(crowded.to_string().contains("SHMEM_SOFT_PORT=0"));
        let sparse = Shape {
            n_pes: 2,
            per_machine: 1,
            ..several
        };
        assert!(plan(AddressChoice::Auto, ROCE, sparse).is_ok());
        let from = AddressChoice::From(ip("10.0.0.1"));
        assert!(matches!(
            plan(from, Any, several),
            Ok(AddressPlan::Known(_))
        ));
    }

    #[test]
    fn a_range_of_ports_has_one_for_each_pe_of_an_address() {
        let auto = known(AddressChoice::Auto, Among(20_000, 20_003));
        assert_eq!(auto.of(1, 5), auto.of(1, 7));
        let few = |choice, last| choose(choice, Among(20_000, last), 2, 8);
        assert!(few(AddressChoice::Auto, 20_003).is_ok());
        let shared = AddressChoice::Shared(ip("::1"));
        assert!(few(shared, 20_007).is_ok());
        for (choice, last, part) in [
            (AddressChoice::Auto, 20_002, "20000-20002: 4 PEs"),
            (shared, 20_006, "20000-20006: 8 PEs"),
        ] {
            let text = few(choice, last).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
        // A job of one node binds none.
        assert!(choose(AddressChoice::Auto, Among(1, 1), 1, 8).is_ok());
    }

    #[test]
    fn impossible_choices_say_what_to_do() {
        let text = choose(AddressChoice::Shared(ip("::1")), ROCE, 2, 4)
            .unwrap_err()
            .to_string();
        for part in ["SHMEM_SOFT_PORT=4791", "4 PEs", "SHMEM_SOFT_ADDRESS=::1+"] {
            assert!(text.contains(part), "{text}");
        }
        let end = AddressChoice::From(ip("255.255.255.254"));
        assert!(choose(end, Any, 2, 4).is_ok());
        assert!(matches!(
            choose(end, Any, 3, 4),
            Err(AddressError::TooMany { count: 3, .. })
        ));
    }
}
