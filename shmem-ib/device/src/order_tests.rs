//! Who takes which port, on many simulated machines.

use std::net::Ipv4Addr;

use super::choice::{Choice, PortRequest, Usable, Wanted, choose};
use super::hardware::{
    GidEntry, GidKind, LinkLayer, Network, PhysicalState, PortState, RdmaDevice, RdmaPort, Survey,
    Transport,
};
use super::seat::Seat;
use super::seat::tests::seat;
use shmem_verbs::rng::Rng;
use shmem_verbs::{Fabric, Gid, Pkey};

const ROCE_NETWORK_BITS: u8 = 96 + 24;

fn ethernet(network: u8, host: u8) -> RdmaPort {
    let gid = Gid::from(Ipv4Addr::new(10, 0, network, host));
    RdmaPort {
        number: 1,
        state: PortState::Active,
        physical: PhysicalState::Up,
        link: LinkLayer::Ethernet,
        rate: 100_000,
        lid: 0,
        lmc: 0,
        sm_lid: 0,
        needs_grh: false,
        gids: vec![GidEntry {
            index: 3,
            gid,
            kind: GidKind::RoceV2,
        }],
        pkeys: vec![(0, Pkey::DEFAULT)],
    }
}

/// A port in the subnet of the manager at this LID.
fn infiniband(manager: u16, lid: u16) -> RdmaPort {
    let gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, lid as u8]);
    RdmaPort {
        link: LinkLayer::InfiniBand,
        lid,
        sm_lid: manager,
        gids: vec![GidEntry {
            index: 0,
            gid,
            kind: GidKind::InfiniBand,
        }],
        ..ethernet(0, 0)
    }
}

fn device(name: &str, numa: Option<u32>, port: RdmaPort) -> RdmaDevice {
    RdmaDevice {
        name: name.into(),
        transport: Transport::InfiniBand,
        emulated: false,
        guid: String::new(),
        numa,
        access: Ok(()),
        ports: vec![port],
    }
}

/// A machine that is connected to the networks 10.0.0.0/24 to 10.0.3.0/24.
fn machine(devices: Vec<RdmaDevice>) -> Survey {
    let network = |n| Network {
        address: Gid::from(Ipv4Addr::new(10, 0, n, 0)),
        bits: ROCE_NETWORK_BITS,
    };
    Survey {
        devices,
        networks: (0..4).map(network).collect(),
        ..Survey::default()
    }
}

/// The ports in the order in which a PE tries them.
fn order(survey: &Survey, seat: &Seat) -> Vec<Usable> {
    match choose(&Wanted::Auto, seat, PortRequest::default(), survey) {
        Ok(Choice::Verbs { ports, .. }) => ports,
        Ok(Choice::Soft(_)) => Vec::new(),
        Err(e) => panic!("{e}"),
    }
}

fn names(ports: &[Usable]) -> Vec<&str> {
    ports.iter().map(|port| port.device.as_str()).collect()
}

/// Four equal devices, two at each of two NUMA nodes.
fn four() -> Survey {
    machine(
        [("a", 0), ("b", 0), ("c", 1), ("d", 1)]
            .into_iter()
            .enumerate()
            .map(|(i, (name, numa))| device(name, Some(numa), infiniband(1, 10 + i as u16)))
            .collect(),
    )
}

#[test]
fn pes_take_what_is_near_by_turns_and_are_told_why() {
    let survey = four();
    let of = |local, bound: &[u32]| order(&survey, &seat(local, 2, bound));
    // Two to a NUMA node, in a block.
    let taken: Vec<_> = [(0, 0), (1, 0), (2, 1), (3, 1)]
        .map(|(local, numa)| of(local, &[numa])[0].device.clone())
        .to_vec();
    assert_eq!(taken[..2], ["a", "b"]);
    assert!(taken[2] != taken[3] && taken[2..].iter().all(|d| ["c", "d"].contains(&&**d)));
    let first = of(0, &[0]);
    assert_eq!(names(&first), ["a", "b", "c", "d"]);
    assert_eq!(
        first[0].why,
        "the best there is, and the nearest (NUMA node 0) to this PE, which runs on NUMA node 0, by turns \
         with b port 1"
    );
    assert_eq!(
        first[1].why,
        "as good as a port 1, and the turn of another PE"
    );
    assert_eq!(
        first[2].why,
        "as good as a port 1, but farther (NUMA node 1) from NUMA node 0"
    );
    // Those that may run anywhere take all.
    let free: Vec<_> = (0..5).map(|i| of(i, &[0, 1])[0].device.clone()).collect();
    assert_eq!(free, ["a", "b", "c", "d", "a"]);
    assert_eq!(
        of(1, &[0, 1])[0].why,
        "the best there is, by turns with a port 1, c port 1, d port 1"
    );
}

#[test]
fn a_faster_port_goes_before_a_near_one() {
    let mut slow = infiniband(1, 7);
    slow.rate = 25_000;
    let survey = machine(vec![
        device("near", Some(0), slow),
        device("far", Some(1), infiniband(1, 8)),
    ]);
    let ports = order(&survey, &seat(0, 2, &[0]));
    assert_eq!(names(&ports), ["far", "near"]);
    assert_eq!(ports[0].why, "the best there is");
    assert_eq!(ports[1].why, "slower than far port 1");
}

#[test]
fn ports_of_different_networks_are_not_shared_out() {
    let apart = |one, other| machine(vec![device("a", None, one), device("b", None, other)]);
    let two = |survey: &Survey| [0, 1].map(|i| order(survey, &seat(i, 1, &[0]))[0].device.clone());
    for survey in [
        apart(ethernet(1, 1), ethernet(2, 1)),
        apart(infiniband(1, 7), infiniband(2, 7)),
    ] {
        assert_eq!(two(&survey), ["a", "a"]);
        let other = &order(&survey, &seat(1, 1, &[0]))[1];
        assert!(other.why.contains("SHMEM_HCA with both"), "{}", other.why);
    }
    assert_eq!(two(&apart(ethernet(1, 1), ethernet(1, 2))), ["a", "b"]);
    assert_eq!(two(&apart(infiniband(1, 7), infiniband(1, 8))), ["a", "b"]);
    // Equal, but for what carries packets.
    let mixed = apart(ethernet(1, 1), infiniband(1, 8));
    assert_eq!(two(&mixed), ["b", "b"]);
    assert!(
        order(&mixed, &seat(0, 1, &[0]))[1]
            .why
            .starts_with("InfiniBand goes before")
    );
}

#[test]
fn the_nearest_of_several_sockets_counts() {
    let survey = machine(vec![
        device("a", Some(2), infiniband(1, 7)),
        device("b", Some(1), infiniband(1, 8)),
    ]);
    let mut here = seat(0, 3, &[0]);
    for (number, distance) in [(1, 12), (2, 32)] {
        here.numa[number].distance = distance;
    }
    assert_eq!(names(&order(&survey, &here)), ["b", "a"]);
}

/// A machine and the PEs on it, made of random numbers.
struct Case {
    survey: Survey,
    seats: Vec<Seat>,
    numa_nodes: usize,
    even: bool,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let numa_nodes = 1 << rng.below(4);
        let mut devices = Vec::new();
        for i in 0..rng.below(9) as usize {
            let host = i as u8 + 1;
            let mut port = match rng.below(2) {
                0 => ethernet(rng.below(3) as u8, host),
                _ => infiniband(1 + rng.below(2) as u16, host.into()),
            };
            port.rate = [25_000, 100_000, 200_000][rng.below(3) as usize];
            if rng.below(5) == 0 {
                port.state = PortState::Down;
            }
            let at = match rng.below(6) {
                0 => None,
                _ => Some(rng.below(numa_nodes) as u32),
            };
            let emulated = rng.below(8) == 0;
            devices.push(RdmaDevice {
                emulated,
                ..device(&format!("dev{i}"), at, port)
            });
        }
        // Launchers bind in blocks, in a circle, or not at all.
        let per_node = 1 + rng.below(16) as usize;
        let (numa, pes) = (numa_nodes as usize, per_node * numa_nodes as usize);
        let how = rng.below(3);
        let free: Vec<u32> = (0..numa_nodes as u32).collect();
        let sit = |i: usize| match how {
            0 => seat(i, numa_nodes as u32, &[(i / per_node) as u32]),
            1 => seat(i, numa_nodes as u32, &[(i % numa) as u32]),
            _ => seat(i, numa_nodes as u32, &free),
        };
        Self {
            survey: machine(devices),
            seats: (0..pes).map(sit).collect(),
            numa_nodes: numa,
            even: how == 2,
        }
    }
}

#[test]
fn on_any_machine_all_pes_reach_each_other_over_what_is_near_and_evenly() {
    for seed in 0..3000 {
        let case = Case::new(seed);
        let orders: Vec<_> = case.seats.iter().map(|s| order(&case.survey, s)).collect();
        let good = |d: &&RdmaDevice| d.ports[0].state.is_active() && !d.emulated;
        let usable = case.survey.devices.iter().filter(good).count();
        for (seat, ports) in case.seats.iter().zip(&orders) {
            // Each that can be used, once, for a reason.
            let mut all = names(ports);
            all.sort_unstable();
            all.dedup();
            assert_eq!((all.len(), ports.len()), (usable, usable), "seed {seed}");
            assert!(ports.iter().all(|p| !p.why.is_empty()), "seed {seed}");
            let Some(taken) = ports.first() else { continue };
            let first = &orders[0][0];
            // All PEs, wherever they are, are on one network, and the fastest one.
            assert_eq!(
                (taken.fabric, taken.rate),
                (first.fabric, first.rate),
                "seed {seed}"
            );
            match taken.fabric {
                Fabric::InfiniBand => assert_eq!(taken.sm_lid, first.sm_lid, "seed {seed}"),
                _ => assert_eq!(taken.gid.0[..15], first.gid.0[..15], "seed {seed}"),
            }
            assert!(ports.iter().all(|p| p.rate <= taken.rate), "seed {seed}");
            // Nobody passes a nearer one that is as good.
            let shared =
                |p: &&Usable| p.why.starts_with("as good as") && !p.why.contains("network");
            let far = |p: &Usable| seat.distance(p.numa);
            let nearest = ports.iter().filter(shared).map(far).min();
            assert!(nearest.is_none_or(|n| far(taken) <= n), "seed {seed}");
            // Where it is in the job is no matter.
            let elsewhere = Seat {
                node: 5,
                ..seat.clone()
            };
            assert_eq!(&order(&case.survey, &elsewhere), ports, "seed {seed}");
        }
        if usable == 0 {
            continue;
        }
        // Those that are at one place share out what is near, as evenly as it goes.
        for place in 0..case.numa_nodes {
            let mut taken = std::collections::HashMap::<&str, usize>::new();
            let here = |s: &Seat| case.even || s.numa[place].allowed;
            for (_, ports) in case.seats.iter().zip(&orders).filter(|(s, _)| here(s)) {
                for port in ports {
                    let turn = port.why.contains("the turn of another PE");
                    if turn || port == &ports[0] {
                        *taken.entry(&port.device).or_default() += usize::from(port == &ports[0]);
                    }
                }
            }
            let least = taken.values().min().expect("somebody");
            let most = taken.values().max().expect("somebody");
            let slack = if case.even { 1 } else { case.numa_nodes };
            assert!(most - least <= slack, "seed {seed}: {taken:?}");
        }
    }
}
