//! What reaches queue pairs and address handles of a device that is found, judged and opened by the way of all
//! devices.

use std::net::IpAddr;

use rdma_sys::{ibv_ah_attr, ibv_qp_attr_mask as m, ibv_qp_type};

use super::fake::{Fake, Modified, NAME, Port};
use crate::choice::Wanted;
use crate::sysfs::tests::Tree;
use crate::{OpenError, Opened, Request, VerbsOptions, open};
use shmem_soft::SoftConfig;
use shmem_verbs::{
    AddressVector, Gid, Hca, Mtu, Pkey, Psn, Qkey, QpAttr, QpInit, QpType, Qpn, RcDest, RcStart,
    SendOp, SendWr,
};

/// A machine with a fake device, and what is asked of it.
struct Machine {
    tree: Tree,
    fake: &'static Fake,
    wanted: Wanted,
    local: usize,
    options: VerbsOptions,
}

impl Machine {
    fn new(name: &str, port: Port) -> Self {
        let (tree, fake) = (Tree::new(name), Fake::with(port));
        fake.describe(&tree);
        Self {
            tree,
            fake,
            wanted: Wanted::Verbs,
            local: 0,
            options: VerbsOptions::default(),
        }
    }

    fn open(&self) -> Result<Opened, OpenError> {
        open(&Request {
            wanted: self.wanted.clone(),
            node: 0,
            local: self.local,
            places: self.tree.places(),
            gid_index: None,
            memory: 0,
            xrc: false,
            verbs: self.options,
            soft: &SoftConfig::loopback(1),
        })
    }

    fn refusal(&self) -> String {
        self.open().expect_err("it cannot be used").to_string()
    }

    /// Connects a queue pair of each kind with a peer, and sends a datagram there: what the device was told.
    fn talk_to(&self, av: AddressVector) -> Told {
        let Opened { device, why } = self.open().expect("the fake opens");
        let cq = device.create_cq(8).expect("a completion queue");
        let start = RcStart::new(
            RcDest::new(av, Qpn(9), Psn::new(1), Mtu::M1024),
            Psn::new(2),
        );
        let connect = |init: &QpInit| {
            let qpn = device.create_qp(init).expect("a queue pair");
            for attr in start.attrs() {
                device.modify_qp(qpn, &attr).expect("its next state");
            }
        };
        let xrcd = device.open_xrcd(None).expect("an XRC domain");
        connect(&QpInit::new(QpType::Rc, cq));
        connect(&QpInit::new(QpType::XrcIni, cq));
        connect(&QpInit {
            xrcd: Some(xrcd),
            ..QpInit::new(QpType::XrcTgt, cq)
        });
        let ud = device
            .create_qp(&QpInit::new(QpType::Ud, cq))
            .expect("a queue pair");
        for attr in QpAttr::of_ud(Qkey(1), Psn::new(3)) {
            device.modify_qp(ud, &attr).expect("its next state");
        }
        let op = SendOp::UdSend {
            av,
            qpn: Qpn(9),
            qkey: Qkey(1),
            imm: None,
        };
        // SAFETY: there is no buffer.
        unsafe { device.post_send(ud, &SendWr::new(0, op, &[])) }.expect("a datagram");
        let (modified, handles) = self.fake.told();
        Told {
            why,
            av: device.port().av,
            lane: device.port().lane.to_string(),
            modified,
            handles,
        }
    }
}

struct Told {
    why: String,
    av: AddressVector,
    lane: String,
    modified: Vec<Modified>,
    handles: Vec<ibv_ah_attr>,
}

impl Told {
    /// Every way to the peer, of queue pairs and of datagrams.
    fn ways(&self) -> Vec<ibv_ah_attr> {
        let has_way = |told: &&Modified| told.mask & m::IBV_QP_AV != 0;
        let connected: Vec<&Modified> = self.modified.iter().filter(has_way).collect();
        let types: Vec<u32> = connected.iter().map(|told| told.ty).collect();
        use ibv_qp_type as t;
        assert_eq!(
            types,
            [t::IBV_QPT_RC, t::IBV_QPT_XRC_SEND, t::IBV_QPT_XRC_RECV]
        );
        assert_eq!(self.handles.len(), 1);
        let ways = connected.iter().map(|told| told.attr.ah_attr);
        ways.chain(self.handles.iter().copied()).collect()
    }

    /// The place of the partition that every queue pair was told.
    fn partition(&self) -> u16 {
        let has_place = |told: &&Modified| told.mask & m::IBV_QP_PKEY_INDEX != 0;
        let all = self.modified.iter().filter(has_place);
        let all: Vec<u16> = all.map(|told| told.attr.pkey_index).collect();
        assert_eq!(all.len(), 4, "each kind of queue pair");
        assert!(all.iter().all(|index| *index == all[0]), "{all:?}");
        all[0]
    }
}

fn gid(text: &str) -> Gid {
    text.parse::<IpAddr>().expect("an address").into()
}

fn roce() -> Port {
    Port {
        gid: gid("10.1.0.1"),
        pkeys: vec![0xffff, 0x8001, 0x0007],
        ..Port::default()
    }
}

fn infiniband() -> Port {
    Port {
        infiniband: true,
        gid: gid("fe80::1"),
        lid: 0x18,
        ..roce()
    }
}

/// A peer of which GID and LID are known.
fn peer(text: &str, lid: u16) -> AddressVector {
    AddressVector {
        gid: gid(text),
        udp_port: lid,
    }
}

#[test]
fn what_a_user_says_of_packets_reaches_every_kind_of_queue_pair() {
    let mut machine = Machine::new("marks", roce());
    let told = machine.talk_to(peer("10.1.0.2", 4791));
    assert_eq!(told.partition(), 0);
    for way in told.ways() {
        assert_eq!((way.is_global, way.sl, way.grh.traffic_class), (1, 0, 0));
    }
    machine.options = VerbsOptions {
        pkey: Some(Pkey(0x8001)),
        service_level: 5,
        traffic_class: 106,
        ..VerbsOptions::default()
    };
    let told = machine.talk_to(peer("10.1.0.2", 4791));
    assert_eq!(told.partition(), 1);
    for way in told.ways() {
        assert_eq!((way.is_global, way.sl, way.grh.traffic_class), (1, 5, 106));
        assert_eq!((way.grh.hop_limit, way.port_num), (64, 1));
    }
    assert_eq!(
        told.lane,
        "partition 0x8001 (full member), service level 5, traffic class 106"
    );
    assert_eq!(
        told.why,
        "fake0 port 1 (RoCEv2, GID 10.1.0.1): the only one"
    );
}

#[test]
fn retries_and_times_reach_connections() {
    let machine = Machine::new("times", roce());
    let told = machine.talk_to(peer("10.1.0.2", 4791));
    let with = |bit: u32| move |told: &&Modified| told.mask & bit != 0;
    // Of RcStart and RcDest: the device takes 7 for a count.
    let retries: Vec<_> = told
        .modified
        .iter()
        .filter(with(m::IBV_QP_RETRY_CNT))
        .collect();
    assert_eq!(retries.len(), 2, "RC and XRC initiator");
    for Modified { attr, .. } in retries {
        assert_eq!((attr.timeout, attr.rnr_retry), (18, 7));
    }
    let waits: Vec<_> = told
        .modified
        .iter()
        .filter(with(m::IBV_QP_MIN_RNR_TIMER))
        .collect();
    assert_eq!(waits.len(), 2, "RC and XRC target");
    assert!(waits.iter().all(|told| told.attr.min_rnr_timer == 12));
}

#[test]
fn infiniband_has_a_global_header_where_it_is_needed() {
    let in_subnet = peer("fe80::2", 7);
    let behind_a_router = peer("fec0:0:9::2", 7);
    let needs = Port {
        needs_grh: true,
        ..infiniband()
    };
    for (name, port, always, peer, global) in [
        ("plain", infiniband(), false, in_subnet, 0),
        ("router", infiniband(), false, behind_a_router, 1),
        ("virtual", needs, false, in_subnet, 1),
        ("always", infiniband(), true, in_subnet, 1),
    ] {
        let mut machine = Machine::new(name, port);
        machine.options.global_route = always;
        machine.options.traffic_class = 32;
        for way in machine.talk_to(peer).ways() {
            assert_eq!((way.is_global, way.dlid), (global, 7), "{name}");
            // SAFETY: all parts of the union are 16 plain bytes.
            let dgid = unsafe { way.grh.dgid.raw };
            assert_eq!((Gid(dgid), way.grh.traffic_class), (peer.gid, 32), "{name}");
        }
    }
}

#[test]
fn pes_take_the_ways_of_a_port_with_several_lids_by_turns() {
    let port = Port {
        lmc: 2,
        ..infiniband()
    };
    for (local, bits) in [(0, 0), (3, 3), (5, 1)] {
        let mut machine = Machine::new(&format!("lmc{local}"), port.clone());
        machine.local = local;
        let told = machine.talk_to(peer("fe80::2", 7));
        assert_eq!(told.av.udp_port, 0x18 + u16::from(bits));
        assert!(told.ways().iter().all(|way| way.src_path_bits == bits));
    }
}

#[test]
fn a_partition_that_the_port_is_not_in_says_what_there_is() {
    let mut machine = Machine::new("partition", roce());
    machine.options.pkey = Some(Pkey(0x8005));
    let text = machine.refusal();
    for part in [
        "fake0 port 1",
        "0x8005 (SHMEM_PKEY)",
        "0xffff (full member), 0x8001",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // Seven is there, with a limited membership: for who asks for no other.
    machine.options.pkey = Some(Pkey(0x8007));
    assert!(machine.refusal().contains("SHMEM_PKEY=0x0007 takes that"));
    machine.options.pkey = Some(Pkey(7));
    let told = machine.talk_to(peer("10.1.0.2", 4791));
    assert_eq!(told.partition(), 2);
    assert!(told.lane.contains("limited"), "{}", told.lane);
    // One that is asked for without the bit is a full one, if there is one.
    machine.options.pkey = Some(Pkey(1));
    assert_eq!(machine.talk_to(peer("10.1.0.2", 4791)).partition(), 1);
}

#[test]
fn what_stands_against_a_port_takes_one_line_and_says_what_to_do() {
    let down = |infiniband_too, state, physical| Port {
        infiniband: infiniband_too,
        state,
        physical,
        ..infiniband()
    };
    for (name, port, parts) in [
        (
            "init",
            down(true, "2: INIT", "5: LinkUp"),
            ["INIT", "subnet manager", "opensm"],
        ),
        (
            "polling",
            down(true, "1: DOWN", "2: Polling"),
            ["DOWN", "Polling", "cable"],
        ),
        (
            "disabled",
            down(true, "1: DOWN", "3: Disabled"),
            ["DOWN", "switched off", "ibportstate"],
        ),
        (
            "ethernet",
            down(false, "1: DOWN", "3: Disabled"),
            ["DOWN", "ip link set", "cable"],
        ),
    ] {
        let mut machine = Machine::new(name, port);
        let text = machine.refusal();
        for part in parts
            .iter()
            .chain(&["SHMEM_HCA=verbs cannot be had", "SHMEM_HCA=soft"])
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains('\n'), "{text}");
        // Who leaves the choice to us is told why it is the software HCA.
        machine.wanted = Wanted::Auto;
        let opened = machine.open().expect("the software HCA");
        assert!(opened.why.contains(parts[0]), "{}", opened.why);
    }
}

#[test]
fn a_device_without_a_provider_is_told_from_one_that_is_not_there() {
    let machine = Machine::new("provider", roce());
    // The kernel has another device, which the library does not list.
    let other = Tree::new("provider-other");
    machine.fake.describe(&other);
    let places = other.places();
    let class = places.class.join("infiniband");
    std::fs::rename(class.join(NAME), class.join("mlx5_7")).expect("it is there");
    other.file("class/infiniband_verbs/uverbs0/ibdev", "mlx5_7");
    let machine = Machine {
        tree: other,
        ..machine
    };
    let text = machine.refusal();
    for part in [
        "mlx5_7 port 1",
        "no provider",
        "ibverbs-providers",
        "SHMEM_HCA=soft",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains('\n'), "{text}");
}
