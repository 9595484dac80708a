//! Many senders of long messages to one receiver whose buffer is as small as Linux has it by default:
//! how much has to be sent again.

use shmem_ib::sim::{NetConfig, Receiver, SimNet, VecMemory};
use shmem_ib::verbs::{
    Access, Completion, Cq, Mr, Mtu, Psn, QpAttr, QpInit, QpType, Qpn, RcDest, SendOp, SendWr, Sge,
    WcStatus,
};

#[path = "common/seeds.rs"]
mod seeds;

const MESSAGE: usize = 1 << 20;
/// `net.core.rmem_max` of Linux, which the kernel doubles.
const BUFFER: u32 = 2 * 212_992;

struct Sender {
    node: usize,
    qp: Qpn,
    cq: Cq,
    mr: Mr,
}

struct Totals {
    packets: u64,
    again: u64,
    overflowed: u64,
    nanos: u64,
}

impl Totals {
    /// Packets sent again, in a thousand.
    fn again(&self) -> u64 {
        1000 * self.again / self.packets
    }
}

/// `senders` nodes write to node 0, `rounds` times one message each at the same time.
fn incast(seed: u64, senders: usize, rounds: u32, tells: bool, mtu: Mtu) -> Totals {
    let config = NetConfig {
        delay_ns: 20_000,
        jitter_ns: 5_000,
        mtu,
        receiver: Some(Receiver {
            service_ns: 2_000,
            buffer: BUFFER,
        }),
        ..NetConfig::perfect(seed)
    };
    let len = |node: usize| {
        if node == 0 {
            senders * MESSAGE
        } else {
            MESSAGE
        }
    };
    let base = 0x10_0000;
    let mut net = SimNet::new(
        config,
        (0..=senders).map(|node| VecMemory::new(base, len(node))),
    );
    if !tells {
        (0..=senders).for_each(|node| net.engine(node).set_receive_buffer(0));
    }
    let target = net.engine(0).reg_mr(base, len(0) as u64, Access::ALL);
    let target = target.expect("memory");
    let sending: Vec<Sender> = (1..=senders)
        .map(|node| connect(&mut net, node, mtu))
        .collect();
    for round in 0..rounds {
        for s in &sending {
            let fill = (16 * round as u8).wrapping_add(s.node as u8);
            net.engine(s.node).memory_mut().bytes_mut().fill(fill);
            let sge = Sge {
                addr: base,
                len: MESSAGE as u32,
                lkey: s.mr.lkey,
            };
            let op = SendOp::Write {
                raddr: base + ((s.node - 1) * MESSAGE) as u64,
                rkey: target.rkey,
                imm: None,
            };
            let posted = net
                .engine(s.node)
                .post_send(s.qp, &SendWr::new(1, op, &[sge]));
            posted.expect("post_send");
        }
        let mut left = senders;
        let mut steps = 0;
        while left > 0 {
            assert!(net.step(), "nothing happens any more, {left} are left");
            steps += 1;
            assert!(steps < 10_000_000, "{left} are left");
            for s in &sending {
                let mut one = [Completion::EMPTY];
                if net.engine(s.node).poll_cq(s.cq, &mut one) == 1 {
                    assert_eq!(one[0].status, WcStatus::Success, "{one:?}");
                    left -= 1;
                }
            }
        }
        let memory = net.engine(0).memory_mut().bytes();
        for s in &sending {
            let fill = (16 * round as u8).wrapping_add(s.node as u8);
            let part = &memory[(s.node - 1) * MESSAGE..s.node * MESSAGE];
            assert!(part.iter().all(|b| *b == fill), "from node {}", s.node);
        }
        // The program computes; sometimes for longer than anybody remembers.
        let pause = if round % 4 == 3 {
            1_000_000_000
        } else {
            300_000
        };
        let until = net.now() + pause;
        net.run_until(until);
    }
    let (mut packets, mut again) = (0, 0);
    for s in &sending {
        let counters = net.engine(s.node).counters();
        packets += counters.packets_sent;
        again += counters.retransmitted;
    }
    Totals {
        packets,
        again,
        overflowed: net.stats().overflowed,
        nanos: net.now(),
    }
}

fn connect(net: &mut SimNet<VecMemory>, node: usize, mtu: Mtu) -> Sender {
    let ends = [0, node].map(|node| {
        let engine = net.engine(node);
        let cq = engine.create_cq(64).expect("create_cq");
        let qp = engine
            .create_qp(&QpInit::new(QpType::Rc, cq))
            .expect("create_qp");
        (node, cq, qp, engine.port().av)
    });
    for (me, peer) in [(0, 1), (1, 0)] {
        let (node, _, qp, _) = ends[me];
        let (_, _, peer_qpn, av) = ends[peer];
        let dest = RcDest {
            av,
            qpn: peer_qpn,
            rq_psn: Psn::new(1),
            mtu,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
        };
        for attr in [
            QpAttr::Init {
                access: Access::ALL,
                qkey: None,
            },
            QpAttr::Rtr { dest: Some(dest) },
            QpAttr::Rts {
                sq_psn: Psn::new(1),
                timeout: 0,
                retry_cnt: 7,
                rnr_retry: 7,
                max_rd_atomic: 4,
            },
        ] {
            net.engine(node).modify_qp(qp, &attr).expect("modify_qp");
        }
    }
    let mr = net
        .engine(node)
        .reg_mr(0x10_0000, MESSAGE as u64, Access::ALL);
    let (node, cq, qp, _) = ends[1];
    Sender {
        node,
        qp,
        cq,
        mr: mr.expect("memory"),
    }
}

#[test]
fn many_senders_send_little_again() {
    seeds::each_seed(2, |seed, verbose| {
        for (senders, mtu) in [(4, Mtu::M4096), (15, Mtu::M4096), (15, Mtu::M1024)] {
            let shared = incast(seed, senders, 8, true, mtu);
            let greedy = incast(seed, senders, 8, false, mtu);
            let text = |t: &Totals| {
                format!(
                    "{} of {} packets again ({} found no room), {} us",
                    t.again,
                    t.packets,
                    t.overflowed,
                    t.nanos / 1000
                )
            };
            if verbose {
                eprintln!("{senders} senders, {mtu:?}: {}", text(&shared));
                eprintln!("  without shares: {}", text(&greedy));
            }
            assert!(shared.again() < 50, "{senders} {mtu:?}: {}", text(&shared));
            assert!(
                4 * shared.again < greedy.again,
                "{senders} {mtu:?}: {}, and without shares {}",
                text(&shared),
                text(&greedy)
            );
        }
    });
}

#[test]
fn one_sender_has_the_receiver_to_itself() {
    seeds::each_seed(2, |seed, _| {
        let alone = incast(seed, 1, 8, true, Mtu::M4096);
        assert_eq!((alone.again, alone.overflowed), (0, 0));
        let untold = incast(seed, 1, 8, false, Mtu::M4096);
        assert_eq!(alone.nanos, untold.nanos, "a share is no brake on one");
    });
}
