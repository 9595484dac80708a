//! Random XRC traffic in a network that loses, doubles and reorders: two initiators, and a node of two
//! processes in one domain, each with a target, receives and memory. What is in memory and in receives
//! at the end of each batch is what a model says.

use std::fs::File;
use std::os::fd::AsFd;

use shmem_ib::rng::Rng;
use shmem_ib::verbs::{
    Access, Completion, Cq, Hca, Mtu, Psn, QpInit, QpType, Qpn, RcDest, RcStart, RecvWr, SendOp,
    SendWr, Srq, SrqInit, SrqKind, SrqNum, WcOpcode, WcStatus,
};
use shmem_ib_kit::conformance::Region;
use shmem_ib_kit::sim::{NetConfig, SimFabric, SimHca};
use shmem_testkit::seeds;

const BATCHES: usize = 6;
/// Memory of a process that one initiator has to itself.
const AREA: usize = 8192;
const SLOT: usize = 2048;

fn file(seed: u64) -> File {
    let path = std::env::temp_dir().join(format!("xrc-sim-{}-{seed}", std::process::id()));
    let file = File::create_new(&path).expect("a file in the temporary directory");
    std::fs::remove_file(&path).expect("remove it");
    file
}

/// A process of the node.
struct Owner {
    mem: Region,
    cq: Cq,
    srq: Srq,
    srqn: SrqNum,
    receives: u64,
}

struct Initiator {
    cq: Cq,
    /// To the target of each process.
    qps: Vec<Qpn>,
    mem: Region,
    /// What its area of each process holds.
    model: Vec<Vec<u8>>,
}

struct World {
    fabric: SimFabric,
    owners: Vec<Owner>,
    initiators: Vec<Initiator>,
    rng: Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let config = NetConfig {
            loss_ppm: rng.below(60_000) as u32,
            duplicate_ppm: rng.below(60_000) as u32,
            reorder_ppm: rng.below(60_000) as u32,
            jitter_ns: rng.below(20_000),
            mtu: [Mtu::M256, Mtu::M1024, Mtu::M4096][rng.below(3) as usize],
            ..NetConfig::perfect(seed)
        };
        let fabric = SimFabric::new(config, 4);
        let file = file(seed);
        let hcas = fabric.hcas();
        let mut owners = Vec::new();
        let mut domains = Vec::new();
        for hca in &hcas[..2] {
            let xrcd = hca.open_xrcd(Some(file.as_fd())).unwrap();
            let cq = hca.create_cq(512).unwrap();
            let kind = SrqKind::Xrc { xrcd, cq };
            let (max_wr, max_sge) = (64, 1);
            let srq = hca.create_srq(&SrqInit {
                max_wr,
                max_sge,
                kind,
            });
            let srq = srq.unwrap();
            owners.push(Owner {
                mem: Region::new(&**hca, 2 * AREA + 64 * SLOT, Access::ALL),
                cq,
                srq,
                srqn: hca.srq_num(srq).unwrap(),
                receives: 0,
            });
            domains.push(xrcd);
        }
        let mut initiators = Vec::new();
        for hca in &hcas[2..] {
            let cq = hca.create_cq(512).unwrap();
            let mut qps = Vec::new();
            for (target, xrcd) in hcas.iter().zip(&domains) {
                let ini = QpInit {
                    max_send_wr: 64,
                    ..QpInit::new(QpType::XrcIni, cq)
                };
                let tgt = QpInit {
                    xrcd: Some(*xrcd),
                    ..QpInit::new(QpType::XrcTgt, cq)
                };
                let ini = hca.create_qp(&ini).unwrap();
                let tgt = target.create_qp(&tgt).unwrap();
                let mtu = config.mtu;
                connect(target, tgt, hca, ini, mtu);
                connect(hca, ini, target, tgt, mtu);
                qps.push(ini);
            }
            initiators.push(Initiator {
                cq,
                qps,
                mem: Region::new(&**hca, 64 * SLOT, Access::ALL),
                model: vec![vec![0; AREA]; 2],
            });
        }
        Self {
            fabric,
            owners,
            initiators,
            rng,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    fn post(&self, i: usize, qp: usize, wr_id: usize, op: SendOp, to: usize, len: usize) {
        let me = &self.initiators[i];
        let sges = [me.mem.sge(wr_id * SLOT, len)];
        let wr = SendWr {
            srqn: Some(self.owners[to].srqn),
            ..SendWr::new(wr_id as u64, op, &sges)
        };
        // SAFETY: regions are never freed.
        unsafe { self.fabric.hcas()[2 + i].post_send(me.qps[qp], &wr) }.unwrap();
    }

    /// Polls until `n` completions have come, all of them successes.
    fn take(&self, hca: usize, cq: Cq, n: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        let mut steps = 0;
        while all.len() < n {
            let mut out = [Completion::EMPTY; 16];
            let got = self.fabric.hcas()[hca].poll_cq(cq, &mut out);
            all.extend_from_slice(&out[..got]);
            if got == 0 {
                assert!(self.fabric.step(), "nothing happens any more");
                steps += 1;
                assert!(steps < 2_000_000, "no end in sight");
            }
        }
        assert!(all.iter().all(|c| c.status == WcStatus::Success), "{all:?}");
        all
    }

    /// Writes, additions and sends of both initiators; then all of it is read and compared.
    fn batch(&mut self) {
        let mut posted = [0; 2];
        // Messages that each process gets, per initiator, and through which target they go.
        let mut messages: [[Vec<Vec<u8>>; 2]; 2] = Default::default();
        // All that an initiator does to an area in one batch goes through one target: that is where
        // order is kept.
        let via = [(); 2].map(|()| [(); 2].map(|()| self.below(2)));
        for i in 0..2 {
            for _ in 0..1 + self.below(12) {
                let (to, id) = (self.below(2), posted[i]);
                let qp = via[i][to];
                let area = self.owners[to].mem.at(i * AREA);
                let rkey = self.owners[to].mem.mr.rkey;
                let choice = self.below(4);
                match choice {
                    0 => {
                        let at = self.below(AREA / 8 - 1) * 8;
                        let add = self.rng.next_u64();
                        let word = &mut self.initiators[i].model[to][at..at + 8];
                        let old = u64::from_ne_bytes(word[..].try_into().unwrap());
                        word.copy_from_slice(&old.wrapping_add(add).to_ne_bytes());
                        let raddr = area + at as u64;
                        let op = SendOp::fetch_add(raddr, rkey, add);
                        self.post(i, qp, id, op, to, 8);
                    }
                    // A send goes through a target of the process that it is for.
                    1 if qp == to => {
                        let len = self.below(SLOT);
                        let data: Vec<u8> = (0..len).map(|_| self.rng.next_u64() as u8).collect();
                        self.initiators[i].mem.fill(id * SLOT, &data);
                        messages[to][i].push(data);
                        let imm = Some(i as u32);
                        self.post(i, qp, id, SendOp::Send { imm }, to, len);
                    }
                    _ => {
                        let len = self.below(SLOT);
                        let at = self.below(AREA - len);
                        let data: Vec<u8> = (0..len).map(|_| self.rng.next_u64() as u8).collect();
                        self.initiators[i].mem.fill(id * SLOT, &data);
                        self.initiators[i].model[to][at..at + len].copy_from_slice(&data);
                        let raddr = area + at as u64;
                        let imm = None;
                        let op = SendOp::Write { raddr, rkey, imm };
                        self.post(i, qp, id, op, to, len);
                    }
                }
                posted[i] += 1;
            }
        }
        // Receives come late.
        for _ in 0..self.below(300) {
            self.fabric.step();
        }
        for (to, owner) in self.owners.iter_mut().enumerate() {
            for _ in 0..messages[to].iter().map(Vec::len).sum() {
                let slot = 2 * AREA + (owner.receives as usize % 64) * SLOT;
                let sges = [owner.mem.sge(slot, SLOT)];
                let wr = RecvWr {
                    wr_id: slot as u64,
                    sges: &sges,
                };
                // SAFETY: regions are never freed.
                unsafe { self.fabric.hcas()[to].post_srq_recv(owner.srq, &wr) }.unwrap();
                owner.receives += 1;
            }
        }
        for (i, posted) in posted.into_iter().enumerate() {
            self.take(2 + i, self.initiators[i].cq, posted);
        }
        for (to, of_initiators) in messages.iter().enumerate() {
            let n = of_initiators.iter().map(Vec::len).sum();
            let mut next = [0; 2];
            for c in self.take(to, self.owners[to].cq, n) {
                let from = c.imm.expect("immediate data") as usize;
                let want = &of_initiators[from][next[from]];
                next[from] += 1;
                let got = (c.opcode, c.srqn, c.byte_len as usize);
                let srqn = Some(self.owners[to].srqn);
                assert_eq!(got, (WcOpcode::Recv, srqn, want.len()), "{c:?}");
                let data = self.owners[to].mem.bytes(c.wr_id as usize, want.len());
                assert_eq!(data, *want);
            }
        }
        self.compare();
    }

    /// Reads everything through the other target, and looks at it directly.
    fn compare(&mut self) {
        for i in 0..2 {
            for to in 0..2 {
                let area = self.owners[to].mem.at(i * AREA);
                let rkey = self.owners[to].mem.mr.rkey;
                for part in 0..AREA / SLOT {
                    let raddr = area + (part * SLOT) as u64;
                    let op = SendOp::Read { raddr, rkey };
                    self.post(i, 1 - to, part, op, to, SLOT);
                }
                self.take(2 + i, self.initiators[i].cq, AREA / SLOT);
                let me = &self.initiators[i];
                let want = &me.model[to];
                assert!(me.mem.bytes(0, AREA) == *want, "read from {to} by {i}");
                let there = self.owners[to].mem.bytes(i * AREA, AREA);
                assert!(there == *want, "memory of {to} for {i}");
            }
        }
    }
}

fn connect(hca: &SimHca, qp: Qpn, peer: &SimHca, peer_qp: Qpn, mtu: Mtu) {
    let dest = RcDest {
        max_dest_rd_atomic: 4,
        min_rnr_timer: 1,
        ..RcDest::new(peer.port().av, peer_qp, Psn(0xff_fff0), mtu)
    };
    let start = RcStart {
        timeout: 22,
        ..RcStart::new(dest, Psn(0xff_fff0))
    };
    for attr in start.attrs() {
        hca.modify_qp(qp, &attr).unwrap();
    }
}

#[test]
fn memory_and_receives_are_what_the_model_says() {
    seeds::each(50, |seed, _| {
        let mut world = World::new(seed);
        for _ in 0..BATCHES {
            world.batch();
        }
    });
}
