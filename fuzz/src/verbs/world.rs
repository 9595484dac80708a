//! Two HCAs and a network in which the input decides about each packet.

use shmem_ib::soft::Engine;
use shmem_ib::soft::VecMemory;
use shmem_ib::verbs::{
    Access, AddressVector, Completion, Cq, GRH_LEN, Gid, Mr, Mtu, Psn, Qkey, QpAttr, QpInit,
    QpType, Qpn, RecvWr, Rkey, SendOp, SendWr, Sge, WcOpcode, WcStatus,
};
use shmem_ib::wire::{
    Aeth, AtomicEth, Bth, Deth, Ext, Flow, Header, Opcode, PACKET_MAX, Reth, Syndrome,
};
use shmem_ib_kit::sim::Sums;

use super::layout::{MEMORY, PAIRS, RECEIVES, SHARED_WORDS, base};
use super::pair::Pair;
use crate::Choices;

const UD_AT: usize = 512;
const UD_RECV: usize = 256;
const QKEY: Qkey = Qkey(0x77);
/// Packets on their way; what is beyond that is lost.
const FLIGHT: usize = 512;

fn address(node: usize) -> AddressVector {
    AddressVector {
        gid: Gid::from(std::net::Ipv4Addr::new(10, 0, 0, node as u8)),
        udp_port: 4791,
    }
}

#[derive(Clone)]
struct InFlight {
    from: usize,
    to: usize,
    bytes: Vec<u8>,
}

pub(super) struct World {
    engines: [Engine<VecMemory>; 2],
    mrs: [Mr; 2],
    pairs: Vec<Pair>,
    /// The UD queue pair of each HCA, and its CQ.
    ud: [(Qpn, Cq); 2],
    sums: [Sums; 2],
    now: u64,
    flight: Vec<InFlight>,
    /// A packet was forged in the name of a peer, or is perhaps left from a former connection: also
    /// words that both connections share may be wrong.
    forged: bool,
    buf: Vec<u8>,
}

impl World {
    pub(super) fn new(choices: &mut Choices<'_>) -> Self {
        let mut engines = [0, 1].map(|node| {
            let memory = VecMemory::new(base(node), MEMORY);
            let seed = choices.below(256) + 1000 * node as u64;
            Engine::new(address(node), Mtu::M512, seed, memory)
        });
        let mrs = [0, 1].map(|node| {
            let engine = &mut engines[node];
            let mr = engine.reg_mr(base(node), MEMORY as u64, Access::ALL);
            mr.expect("memory is registered")
        });
        let pairs = (0..PAIRS)
            .map(|i| Pair::new(&mut engines, &mrs, i, choices))
            .collect();
        let ud = [0, 1].map(|node| {
            let engine = &mut engines[node];
            let cq = engine.create_cq(64).expect("a CQ");
            let init = QpInit {
                max_send_wr: 8,
                max_recv_wr: 4,
                ..QpInit::new(QpType::Ud, cq)
            };
            let qpn = engine.create_qp(&init).expect("a queue pair");
            for attr in [
                QpAttr::Init {
                    access: Access::NONE,
                    qkey: Some(QKEY),
                },
                QpAttr::Rtr { dest: None },
                QpAttr::Rts {
                    sq_psn: Psn(0),
                    timeout: 0,
                    retry_cnt: 0,
                    rnr_retry: 0,
                    max_rd_atomic: 0,
                },
            ] {
                engine.modify_qp(qpn, &attr).expect("a legal transition");
            }
            (qpn, cq)
        });
        Self {
            engines,
            mrs,
            pairs,
            ud,
            sums: Default::default(),
            now: 1000,
            flight: Vec::new(),
            forged: false,
            buf: vec![0; PACKET_MAX],
        }
    }

    /// Does what the next bytes say.
    pub(super) fn step(&mut self, c: &mut Choices<'_>) {
        let op = c.below(32);
        let (pair, me) = (c.below(PAIRS as u64) as usize, c.below(2) as usize);
        match op {
            0..10 => self.pairs[pair].post(&mut self.engines[me], me, c),
            10..13 => {
                let most = 1 + c.below(8) as usize;
                let sums = &mut self.sums[1 - me];
                self.pairs[pair].poll(&mut self.engines[me], me, most, sums);
            }
            13 => {
                let most = 1 + c.below(8) as usize;
                self.pairs[pair].post_receives(&mut self.engines[me], me, most);
            }
            14..16 => self.deliver_some(1 + c.below(16) as usize),
            16 => {
                if let Some(i) = self.one(c) {
                    let packet = self.flight.remove(i);
                    self.deliver(&packet);
                }
            }
            17..20 => {
                if let Some(i) = self.one(c) {
                    self.flight.remove(i);
                }
            }
            20 | 21 => {
                if let Some(i) = self.one(c) {
                    let packet = self.flight[i].clone();
                    self.deliver(&packet);
                }
            }
            22 => {
                if let Some(i) = self.one(c) {
                    let packet = &mut self.flight[i];
                    let bit = c.below(8 * packet.bytes.len() as u64) as usize;
                    packet.bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
            23 => self.flight.reverse(),
            24 | 25 => {
                let timer = |e: &mut Engine<_>| e.next_timeout();
                let next = self.engines.iter_mut().filter_map(timer).min();
                self.pass(next.unwrap_or(0).saturating_sub(self.now));
            }
            26 => self.pass(1 << c.below(30)),
            27 => self.post_ud(me, c),
            28 => self.poll_ud(me),
            29 => self.forge(pair, me, c),
            30 => {
                let pairs = &mut self.pairs[pair];
                let anew = pairs.interfere(&mut self.engines, &mut self.sums, me, c);
                if anew {
                    self.forged = true;
                    self.pairs.iter_mut().for_each(Pair::distrust);
                }
            }
            _ => self.lose_all(c.below(2) == 0),
        }
        self.flush();
    }

    fn one(&self, c: &mut Choices<'_>) -> Option<usize> {
        let n = self.flight.len();
        (n > 0).then(|| c.below(n.min(256) as u64) as usize)
    }

    fn flush(&mut self) {
        for from in 0..2 {
            while let Some(t) = self.engines[from].poll_transmit(self.now, &mut self.buf) {
                let to = (0..2).find(|to| address(*to) == t.dst);
                let bytes = self.buf[..t.len].to_vec();
                if let Some(to) = to.filter(|_| self.flight.len() < FLIGHT) {
                    self.flight.push(InFlight { from, to, bytes });
                }
            }
        }
    }

    fn deliver(&mut self, packet: &InFlight) {
        self.now += 100;
        let src = address(packet.from);
        self.engines[packet.to].handle_datagram(self.now, src, &packet.bytes);
    }

    fn deliver_some(&mut self, n: usize) {
        let n = n.min(self.flight.len());
        for packet in self.flight.drain(..n).collect::<Vec<_>>() {
            self.deliver(&packet);
        }
    }

    fn lose_all(&mut self, really: bool) {
        if really {
            self.flight.clear();
        } else {
            self.deliver_some(FLIGHT);
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now += ns.min(1 << 40);
        for engine in &mut self.engines {
            engine.handle_timeout(self.now);
        }
    }

    fn post_ud(&mut self, me: usize, c: &mut Choices<'_>) {
        let (qpn, _) = self.ud[me];
        let engine = &mut self.engines[me];
        let len = 1 + c.below(255) as u32;
        let at = base(me) + UD_AT as u64;
        let lkey = self.mrs[me].lkey;
        if c.below(2) == 0 {
            let sge = Sge {
                addr: at + 1024,
                len: (GRH_LEN + UD_RECV) as u32,
                lkey,
            };
            let sges = &[sge];
            let _ = engine.post_recv(qpn, &RecvWr { wr_id: 1, sges });
            return;
        }
        // All bytes are the length; the buffer is not written before the next flush.
        let (start, end) = (UD_AT, UD_AT + len as usize);
        engine.memory_mut().bytes_mut()[start..end].fill(len as u8);
        let op = SendOp::UdSend {
            av: address(1 - me),
            qpn: self.ud[1 - me].0,
            qkey: QKEY,
            imm: None,
        };
        let sge = Sge {
            addr: at,
            len,
            lkey,
        };
        let sges = &[sge];
        let wr = SendWr::new(2, op, sges);
        let _ = engine.post_send(qpn, &wr);
    }

    fn poll_ud(&mut self, me: usize) {
        let mut out = [Completion::EMPTY; 1];
        let engine = &mut self.engines[me];
        if engine.poll_cq(self.ud[me].1, &mut out) == 0 {
            return;
        }
        assert_eq!(out[0].status, WcStatus::Success);
        assert_eq!(
            out[0].wr_id,
            if out[0].opcode == WcOpcode::Recv {
                1
            } else {
                2
            }
        );
        if out[0].opcode == WcOpcode::Recv && !self.forged {
            let len = out[0].byte_len as usize - GRH_LEN;
            assert!((1..256).contains(&len));
        }
    }

    /// A packet with a right ICRC, of any kind, to any queue pair, from a stranger or, worse, from
    /// the address of the peer.
    fn forge(&mut self, pair: usize, me: usize, c: &mut Choices<'_>) {
        let Some(opcode) = Opcode::from_code(c.below(256) as u8) else {
            return;
        };
        let stranger = c.below(2) == 0;
        let qpn = match c.below(8) {
            0 => self.ud[me].0,
            1 => Qpn(c.below(1 << 24) as u32),
            _ => self.pairs[pair].ends[me].qpn,
        };
        let psn = Psn::new((c.below(512) as u32).wrapping_sub(256));
        let va = base(me) + c.below(MEMORY as u64 + 64);
        let rkey = Rkey(self.mrs[me].rkey.0 ^ u32::from(c.below(8) == 0));
        let reth = Reth {
            va,
            rkey,
            len: c.below(1 << 16) as u32,
        };
        let aeth = Aeth {
            syndrome: Syndrome::from_code(c.below(256) as u8),
            msn: c.below(256) as u32,
        };
        let deth = Deth {
            qkey: QKEY,
            src_qp: Qpn(c.below(256) as u32),
        };
        let atomic = AtomicEth {
            va,
            rkey,
            swap_add: 1,
            compare: 0,
        };
        let kinds = [
            Ext::None,
            Ext::Imm(1),
            Ext::Reth(reth),
            Ext::RethImm(reth, 1),
            Ext::Aeth(aeth),
            Ext::AtomicAck(aeth, 3),
            Ext::Atomic(atomic),
            Ext::Deth(deth),
            Ext::DethImm(deth, 1),
        ];
        let Some(ext) = kinds.into_iter().find(|e| e.kind() == opcode.ext()) else {
            return;
        };
        let from = if stranger { 2 } else { 1 - me };
        // A datagram of a stranger who knows the Q_Key is a right one.
        if !stranger {
            self.forged = true;
            self.pairs.iter_mut().for_each(Pair::distrust);
        }
        let header = Header {
            bth: Bth::new(opcode, qpn, psn, c.below(2) == 0),
            ext,
        };
        let len = c.below(600) as usize;
        let mut bytes = vec![0xf0; PACKET_MAX];
        header.encode(&mut bytes, len);
        let flow = Flow {
            src: address(from),
            dst: address(me),
        };
        let total = header.seal(&mut bytes, len, &flow);
        bytes.truncate(total);
        self.deliver(&InFlight {
            from,
            to: me,
            bytes,
        });
    }

    /// Heals the network, and lets everything come to its end.
    pub(super) fn finish(mut self) {
        // Enough for every resend that the timers allow, many times over.
        for _ in 0..4000 {
            self.flush();
            if self.flight.is_empty() {
                let timer = |e: &mut Engine<_>| e.next_timeout();
                let Some(at) = self.engines.iter_mut().filter_map(timer).min() else {
                    break;
                };
                self.now = self.now.max(at);
                for engine in &mut self.engines {
                    engine.handle_timeout(self.now);
                }
            }
            self.deliver_some(FLIGHT);
            for me in 0..2 {
                let sums = &mut self.sums[1 - me];
                for pair in &mut self.pairs {
                    pair.poll(&mut self.engines[me], me, 8, sums);
                    pair.post_receives(&mut self.engines[me], me, RECEIVES);
                }
            }
        }
        for pair in &mut self.pairs {
            pair.check(&mut self.engines, &mut self.sums);
        }
        // The last requests of a direction may be unsignaled: what they fetched is not looked at.
        let unsure = self
            .pairs
            .iter()
            .any(|p| !p.is_sure() || p.outstanding() > 0);
        for node in 0..2 {
            let engine = &mut self.engines[node];
            assert_eq!(engine.overrun(), None);
            if self.forged {
                continue;
            }
            for word in 0..SHARED_WORDS {
                let mut value = [0; 8];
                value.copy_from_slice(&engine.memory_mut().bytes()[8 * word..8 * word + 8]);
                let right = self.sums[node].check(word, u64::from_ne_bytes(value), unsure);
                right.unwrap_or_else(|e| panic!("node {node}: {e}"));
            }
        }
    }
}
