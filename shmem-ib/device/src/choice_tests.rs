//! The choice among made-up devices.

use std::net::IpAddr;

use super::choice::{Choice, NoChoice, PortRequest, Usable, Verdict, Wanted};
use super::choice::{choose_on, judge_on};
use super::hardware::{
    GidEntry, GidKind, LinkLayer, PhysicalState, PortState, RdmaDevice, RdmaPort, Survey, Transport,
};
use super::seat::Seat;
use shmem_verbs::{Fabric, Gid, Pkey};

const V1: GidKind = GidKind::RoceV1;
const V2: GidKind = GidKind::RoceV2;

fn gids(list: &[(&str, GidKind)]) -> Vec<GidEntry> {
    let seen = |(index, (text, kind)): (usize, &(&str, GidKind))| {
        let ip: IpAddr = text.parse().expect("an address");
        GidEntry {
            index: index as u16,
            gid: Gid::from(ip),
            kind: *kind,
        }
    };
    list.iter().enumerate().map(seen).collect()
}

/// Who asks for a GID at most judges so,
fn judge(survey: &Survey, gid_index: Option<u8>) -> Vec<Verdict> {
    let asked = PortRequest {
        gid_index,
        ..PortRequest::default()
    };
    judge_on(true, survey, asked)
}

/// and chooses so as the PE of this number, which may run anywhere.
fn choose(
    wanted: &Wanted,
    local: usize,
    gid_index: Option<u8>,
    survey: &Survey,
) -> Result<Choice, NoChoice> {
    let asked = PortRequest {
        gid_index,
        ..PortRequest::default()
    };
    let seat = Seat {
        local,
        ..Seat::default()
    };
    choose_on(true, wanted, &seat, asked, survey)
}

fn roce(list: &[(&str, GidKind)]) -> RdmaPort {
    RdmaPort {
        number: 1,
        state: PortState::Active,
        physical: PhysicalState::Up,
        link: LinkLayer::Ethernet,
        rate: 25_000,
        lid: 0,
        lmc: 0,
        sm_lid: 0,
        needs_grh: false,
        pkeys: vec![(0, Pkey::DEFAULT)],
        gids: gids(list),
    }
}

fn infiniband(lid: u16) -> RdmaPort {
    RdmaPort {
        link: LinkLayer::InfiniBand,
        rate: 100_000,
        lid,
        ..roce(&[("fe80::1:2:3:4", V1)])
    }
}

fn device(name: &str, ports: Vec<RdmaPort>) -> RdmaDevice {
    RdmaDevice {
        name: name.into(),
        transport: Transport::InfiniBand,
        emulated: false,
        guid: String::new(),
        numa: None,
        access: Ok(()),
        ports,
    }
}

fn survey(devices: Vec<RdmaDevice>) -> Survey {
    Survey {
        devices,
        ..Survey::default()
    }
}

fn nothing() -> Survey {
    Survey {
        trouble: Some("no devices at all".into()),
        ..Survey::default()
    }
}

/// What `auto` takes first.
fn best(survey: &Survey) -> Usable {
    match choose(&Wanted::Auto, 0, None, survey) {
        Ok(Choice::Verbs {
            ports,
            or_soft: true,
        }) => ports[0].clone(),
        other => panic!("{other:?}"),
    }
}

/// Why the one port of a device is refused.
fn refusal(port: RdmaPort) -> String {
    let survey = survey(vec![device("a", vec![port])]);
    let why = judge(&survey, None).remove(0).outcome.unwrap_err();
    // Nobody who leaves the choice to us sees an error because of it.
    let auto = choose(&Wanted::Auto, 0, None, &survey).expect("always something");
    assert!(
        matches!(&auto, Choice::Soft(text) if text.contains(&why)),
        "{auto:?}"
    );
    let forced = choose(&Wanted::Verbs, 0, None, &survey).unwrap_err();
    let text = forced.to_string();
    for part in ["SHMEM_HCA=verbs", &why, "SHMEM_HCA=soft", "shmem-info"] {
        assert!(text.contains(part), "{text}");
    }
    why
}

const ALL: [(&str, GidKind); 5] = [
    ("fe80::5054:ff:fe12:3456", V2),
    ("10.1.0.7", V1),
    ("2001:db8::7", V2),
    ("10.1.0.7", V2),
    ("10.2.0.7", V2),
];

#[test]
fn ipv4_of_rocev2_goes_before_ipv6_and_the_first_of_equals_is_taken() {
    let port = |count| survey(vec![device("a", vec![roce(&ALL[..count])])]);
    assert_eq!(best(&port(5)).gid_index, 3);
    assert_eq!(best(&port(3)).gid_index, 2);
    assert_eq!(best(&port(5)).fabric, Fabric::Roce);
}

#[test]
fn what_cannot_be_used_says_why() {
    assert!(refusal(roce(&ALL[..2])).contains("SHMEM_GID_INDEX=0"));
    assert!(refusal(roce(&ALL[1..2])).contains("v1 only"));
    assert!(refusal(roce(&[])).contains("no GID"));
    let down = RdmaPort {
        state: PortState::Down,
        ..roce(&ALL)
    };
    assert!(refusal(down).contains("DOWN"));
    assert!(refusal(infiniband(0)).contains("subnet manager"));
    let odd = RdmaPort {
        link: LinkLayer::Other("Unknown".into()),
        ..roce(&ALL)
    };
    assert!(refusal(odd).contains("Unknown"));
}

#[test]
fn devices_that_are_not_ours_to_use_say_why() {
    let good = || device("a", vec![roce(&ALL)]);
    let iwarp = RdmaDevice {
        transport: Transport::Iwarp,
        ..good()
    };
    let closed = RdmaDevice {
        access: Err("group rdma".into()),
        ..good()
    };
    let foreign = RdmaDevice {
        transport: Transport::Other("usNIC".into()),
        ..good()
    };
    let bare = device("a", Vec::new());
    for (device, part) in [
        (iwarp, "iWARP"),
        (closed, "group rdma"),
        (foreign, "usNIC"),
        (bare, "no ports"),
    ] {
        let verdicts = judge(&survey(vec![device]), None);
        let [verdict] = &verdicts[..] else {
            panic!("{verdicts:?}")
        };
        assert!(verdict.to_string().contains(part), "{verdict}");
    }
}

#[test]
fn the_fastest_port_that_reaches_others_is_the_best() {
    let lo = RdmaPort {
        rate: 400_000,
        ..roce(&[("127.0.0.1", V2)])
    };
    let two = device("b", vec![roce(&ALL), infiniband(7)]);
    let mut port = infiniband(9);
    port.number = 2;
    let ib = device("c", vec![port]);
    let found = best(&survey(vec![device("lo", vec![lo.clone()]), two, ib]));
    assert_eq!((found.device.as_str(), found.rate), ("b", 100_000));
    assert_eq!((found.fabric, found.gid_index), (Fabric::InfiniBand, 0));
    assert_eq!(best(&survey(vec![device("lo", vec![lo])])).device, "lo");
}

#[test]
fn a_given_index_decides() {
    let survey = survey(vec![device("a", vec![roce(&ALL)])]);
    let with = |index| judge(&survey, Some(index)).remove(0).outcome;
    assert_eq!(with(0).unwrap().gid_index, 0);
    assert_eq!(with(4).unwrap().gid_index, 4);
    assert!(with(1).unwrap_err().contains("v1"));
    assert!(with(5).unwrap_err().contains("nothing at index 5"));
}

#[test]
fn lists_are_taken_by_turns() {
    let mut second = roce(&ALL);
    second.number = 2;
    let mut first = second.clone();
    (first.number, first.state) = (1, PortState::Down);
    let survey = survey(vec![
        device("a", vec![roce(&ALL)]),
        device("b", vec![first, second]),
    ]);
    let list = Wanted::Ports(vec![
        ("a".into(), Some(1)),
        ("b".into(), None),
        ("b".into(), Some(1)),
        ("b".into(), Some(3)),
        ("c".into(), None),
    ]);
    let take = |number| match choose(&list, number, None, &survey) {
        Ok(Choice::Verbs {
            ports,
            or_soft: false,
        }) => Ok(format!("{}:{}", ports[0].device, ports[0].port)),
        Ok(other) => panic!("{other:?}"),
        Err(e) => Err(e.to_string()),
    };
    assert_eq!(take(0).as_deref(), Ok("a:1"));
    assert_eq!(take(5).as_deref(), Ok("a:1"));
    assert_eq!(take(1).as_deref(), Ok("b:2"));
    assert!(take(2).unwrap_err().contains("DOWN"));
    assert!(take(3).unwrap_err().contains("no such port"));
    assert!(take(4).unwrap_err().contains("no device c, only a, b"));
}

#[test]
fn without_devices_auto_is_soft_and_others_fail() {
    let soft = |wanted| choose(&wanted, 0, None, &nothing());
    let text = |wanted| soft(wanted).unwrap_err().to_string();
    assert!(matches!(soft(Wanted::Soft), Ok(Choice::Soft(_))));
    assert!(matches!(soft(Wanted::Auto), Ok(Choice::Soft(why)) if why.contains("at all")));
    assert!(text(Wanted::Verbs).contains("no devices at all"));
    assert!(text(Wanted::Ports(vec![("a".into(), None)])).contains("no devices at all"));
    assert!(text(Wanted::Ports(Vec::new())).contains("empty"));
}

#[test]
fn a_processor_that_orders_devices_in_an_unknown_way_uses_none() {
    let survey = survey(vec![device("a", vec![roce(&ALL)])]);
    let (seat, asked) = (Seat::default(), PortRequest::default());
    let on_it = |wanted| choose_on(false, &wanted, &seat, asked, &survey);
    let part = format!("how {} processors order", std::env::consts::ARCH);
    let auto = on_it(Wanted::Auto);
    assert!(
        matches!(&auto, Ok(Choice::Soft(why)) if why.contains(&part)),
        "{auto:?}"
    );
    for wanted in [Wanted::Verbs, Wanted::Ports(vec![("a".into(), Some(1))])] {
        let text = on_it(wanted).unwrap_err().to_string();
        for part in [&part, "SHMEM_HCA=soft"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn soft_roce_is_taken_only_when_named_or_asked_for() {
    let emulated = RdmaDevice {
        emulated: true,
        ..device("rxe0", vec![roce(&[("10.0.0.1", V2)])])
    };
    let alone = survey(vec![emulated.clone()]);
    match choose(&Wanted::Auto, 0, None, &alone) {
        Ok(Choice::Soft(why)) => assert!(why.contains("SHMEM_HCA=rxe0"), "{why}"),
        other => panic!("{other:?}"),
    }
    let named = Wanted::Ports(vec![("rxe0".into(), None)]);
    for wanted in [Wanted::Verbs, named] {
        let choice = choose(&wanted, 0, None, &alone);
        assert!(matches!(choice, Ok(Choice::Verbs { .. })), "{choice:?}");
    }
    // However fast it says that it is.
    let mut slow = roce(&[("10.0.0.2", V2)]);
    slow.rate = 1;
    let both = survey(vec![emulated, device("mlx5_0", vec![slow])]);
    for (wanted, names) in [
        (Wanted::Auto, vec!["mlx5_0"]),
        (Wanted::Verbs, vec!["mlx5_0", "rxe0"]),
    ] {
        let Ok(Choice::Verbs { ports, .. }) = choose(&wanted, 0, None, &both) else {
            panic!("{wanted:?}");
        };
        let found: Vec<_> = ports.iter().map(|p| p.device.as_str()).collect();
        assert_eq!(found, names);
    }
}
