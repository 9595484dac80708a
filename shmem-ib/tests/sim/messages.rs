//! Random messages on a bad network: every SEND and every WRITE with immediate data arrives once,
//! in order, in a receive of its own.
//!
//! Each seed makes two HCAs with up to four connections, whose receives come from queues of their
//! own or from a shared one, and a network which loses, doubles, delays and corrupts packets.
//! Receives are posted late and a few at a time, so that receivers are often not
//! ready. Checked are: all completions in order; payload, length and
//! immediate data of every message; that each receive is used once, and in order if the
//! queue is not shared; that WRITEs before a message are visible when it has arrived.

use std::collections::VecDeque;

use shmem_ib::rng::Rng;
use shmem_ib::soft::VecMemory;
use shmem_ib::verbs::{
    Completion, Cq, Mr, Psn, QpInit, QpType, Qpn, RecvWr, SendOp, SendWr, Sge, Srq, SrqInit,
    SrqKind, VerbsError, WcOpcode, WcStatus,
};
use shmem_ib_kit::sim::{NetConfig, RcEnd, SimNet, base};
use shmem_testkit::seeds;

/// Longest message and bytes between two buffers.
const MAX_LEN: usize = 5000;
const SLOT: usize = MAX_LEN + 64;
/// Most messages in both directions of all connections.
const MESSAGES: usize = 4 * 2 * 24;
/// Memory of a node: a counter per connection, what it sends, what it receives, and what is
/// written with immediate data.
const COUNTERS: usize = 64;
const SENT: usize = COUNTERS;
const RECEIVED: usize = SENT + MESSAGES * SLOT;
const WRITTEN: usize = RECEIVED + MESSAGES * SLOT;
const NODE_LEN: usize = WRITTEN + MESSAGES * SLOT;

/// What a receive has to bring.
struct Message {
    data: Vec<u8>,
    imm: Option<u32>,
    /// Where a WRITE with immediate data goes.
    written_to: Option<usize>,
    /// The counter that was written before.
    counter: u64,
}

/// A receive that was posted.
struct Posted {
    id: u64,
    sges: Vec<Sge>,
}

/// One direction of a connection.
struct Direction {
    index: usize,
    from: usize,
    to: usize,
    qpn: Qpn,
    peer: Qpn,
    depth: usize,
    left: usize,
    counter: u64,
    /// Requests posted and completed; those that complete visibly.
    posted: Vec<(u64, bool)>,
    completed: usize,
    on_the_way: VecDeque<Message>,
    /// Receives still to be posted for it, if it has its own queue.
    receives_due: usize,
}

struct World {
    seed: u64,
    rng: Rng,
    net: SimNet<VecMemory>,
    mrs: Vec<Mr>,
    cqs: Vec<Cq>,
    srqs: Vec<Option<Srq>>,
    /// Receives still to be posted to the shared queue of each node.
    shared_due: [usize; 2],
    directions: Vec<Direction>,
    /// Receives in use, per node for a shared queue, else per direction.
    receives: Vec<VecDeque<Posted>>,
    sent_slots: usize,
    received_slots: usize,
    arrived: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let config = NetConfig::drawn(&mut rng, 250_000);
        let (mut net, mrs) = SimNet::with_memory(config, 2, NODE_LEN);
        let (mut cqs, mut srqs) = (Vec::new(), Vec::new());
        for i in 0..2 {
            let engine = net.engine(i);
            cqs.push(engine.create_cq(4096).unwrap());
            let init = SrqInit {
                max_wr: 1000,
                max_sge: 3,
                kind: SrqKind::Basic,
            };
            srqs.push((rng.below(2) == 0).then(|| engine.create_srq(&init).unwrap()));
        }
        let mut world = Self {
            seed,
            rng,
            net,
            mrs,
            cqs,
            srqs,
            shared_due: [0; 2],
            directions: Vec::new(),
            receives: (0..2 + 8).map(|_| VecDeque::new()).collect(),
            sent_slots: 0,
            received_slots: 0,
            arrived: 0,
        };
        for _ in 0..=world.rng.below(4) {
            world.connect();
        }
        world
    }

    fn connect(&mut self) {
        let ends = [0, 1].map(|node| {
            let depth = 1 + self.rng.below(20) as u32;
            let init = QpInit {
                srq: self.srqs[node],
                max_send_wr: depth,
                max_recv_wr: 1000,
                max_send_sge: 3,
                max_recv_sge: 3,
                max_inline: 100,
                ..QpInit::new(QpType::Rc, self.cqs[node])
            };
            let end = RcEnd {
                node,
                qpn: self.net.engine(node).create_qp(&init).unwrap(),
                psn: Psn::new(self.rng.next_u32()),
                max_rd_atomic: 4,
                min_rnr_timer: 1 + self.rng.below(10) as u8,
            };
            (end, depth as usize)
        });
        self.net.connect(ends.map(|(end, _)| end));
        for (me, peer) in [(0, 1), (1, 0)] {
            let ((end, depth), (peer_end, _)) = (ends[me], ends[peer]);
            self.directions.push(Direction {
                index: self.directions.len(),
                from: me,
                to: peer,
                qpn: end.qpn,
                peer: peer_end.qpn,
                depth,
                left: 1 + self.rng.below(23) as usize,
                counter: 0,
                posted: Vec::new(),
                completed: 0,
                on_the_way: VecDeque::new(),
                receives_due: 0,
            });
        }
    }

    /// Up to three buffers within a slot, of together `len` bytes.
    fn split(&mut self, node: usize, at: usize, len: usize) -> Vec<Sge> {
        let cut = self.rng.below(len as u64 + 1) as usize;
        let gap = self.rng.below(30) as usize;
        let (addr, lkey) = (base(node) + at as u64, self.mrs[node].lkey);
        let sge = |offset: usize, len: usize| Sge {
            addr: addr + offset as u64,
            len: len as u32,
            lkey,
        };
        match self.rng.below(3) {
            0 => vec![sge(gap, len)],
            1 => vec![sge(0, cut), sge(cut + gap, len - cut)],
            // The second part lies in front.
            _ => vec![sge(len - cut + gap, cut), sge(0, 0), sge(0, len - cut)],
        }
    }

    fn write_memory(&mut self, node: usize, sges: &[Sge], data: &[u8]) {
        let bytes = self.net.engine(node).memory_mut().bytes_mut();
        let mut done = 0;
        for sge in sges {
            let (at, len) = ((sge.addr - base(node)) as usize, sge.len as usize);
            bytes[at..at + len].copy_from_slice(&data[done..done + len]);
            done += len;
        }
    }

    fn read_memory(&mut self, node: usize, sges: &[Sge], len: usize) -> Vec<u8> {
        let bytes = self.net.engine(node).memory_mut().bytes();
        let part = |sge: &Sge| {
            let at = (sge.addr - base(node)) as usize;
            bytes[at..at + sge.len as usize].to_vec()
        };
        let mut all: Vec<u8> = sges.iter().flat_map(part).collect();
        all.truncate(len);
        all
    }

    /// Posts the next request of a direction, if there is room.
    fn post(&mut self, d: usize) {
        let dir = &self.directions[d];
        if dir.left == 0 {
            return;
        }
        let (from, to, qpn) = (dir.from, dir.to, dir.qpn);
        let unsignaled = dir.posted.iter().rev().take_while(|(_, s)| !s).count();
        let signaled = self.rng.below(3) > 0 || dir.left == 1 || unsignaled + 1 >= dir.depth;
        let wr_id = dir.posted.len() as u64;
        let (counter_at, counter) = (8 * d as u64, dir.counter);
        let (kind, slot) = (self.rng.below(5), self.sent_slots);
        let written_to = WRITTEN + slot * SLOT;
        let rkey = self.mrs[to].rkey;
        let imm = (kind > 2 || self.rng.below(2) == 0).then(|| self.rng.next_u32());
        let len = match self.rng.below(4) {
            _ if kind == 0 => 8,
            0 => self.rng.below(16) as usize,
            _ => self.rng.below(MAX_LEN as u64 + 1) as usize,
        };
        let data: Vec<u8> = match kind {
            0 => (counter + 1).to_ne_bytes().to_vec(),
            _ => (0..len).map(|_| self.rng.next_u32() as u8).collect(),
        };
        let op = match kind {
            0 => SendOp::write(base(to) + counter_at, rkey),
            1 | 2 => SendOp::Send { imm },
            _ => SendOp::Write {
                raddr: base(to) + written_to as u64,
                rkey,
                imm,
            },
        };
        let sges = self.split(from, SENT + slot * SLOT, len);
        let inline = (len <= 100 && self.rng.below(2) == 0).then_some(&data[..]);
        if inline.is_none() {
            self.write_memory(from, &sges, &data);
        }
        let wr = SendWr {
            inline,
            signaled,
            fence: self.rng.below(4) == 0,
            ..SendWr::new(wr_id, op, &sges)
        };
        match self.net.engine(from).post_send(qpn, &wr) {
            Ok(_) => {}
            Err(VerbsError::QueueFull { .. }) => return,
            Err(e) => panic!("seed {}: {e}", self.seed),
        }
        self.sent_slots += 1;
        let dir = &mut self.directions[d];
        dir.left -= 1;
        dir.posted.push((wr_id, signaled));
        if kind == 0 {
            dir.counter += 1;
            return;
        }
        dir.on_the_way.push_back(Message {
            data,
            imm,
            written_to: (kind > 2).then_some(written_to),
            counter: dir.counter,
        });
        match self.srqs[to] {
            Some(_) => self.shared_due[to] += 1,
            None => dir.receives_due += 1,
        }
    }

    /// Posts a receive for a direction, if it will need one more.
    fn post_receive(&mut self, d: usize) {
        let (to, peer) = (self.directions[d].to, self.directions[d].peer);
        let srq = self.srqs[to];
        let due = match srq {
            Some(_) => &mut self.shared_due[to],
            None => &mut self.directions[d].receives_due,
        };
        if *due == 0 {
            return;
        }
        *due -= 1;
        let id = self.received_slots as u64;
        self.received_slots += 1;
        let sges = self.split(to, RECEIVED + id as usize * SLOT, MAX_LEN);
        let wr = RecvWr {
            wr_id: id,
            sges: &sges,
        };
        match srq {
            Some(srq) => self.net.engine(to).post_srq_recv(srq, &wr).unwrap(),
            None => self.net.engine(to).post_recv(peer, &wr).unwrap(),
        }
        let queue = srq.map_or(2 + d, |_| to);
        self.receives[queue].push_back(Posted { id, sges });
    }

    fn poll(&mut self, node: usize) {
        let mut out = [Completion::EMPTY; 8];
        loop {
            let n = self.net.engine(node).poll_cq(self.cqs[node], &mut out);
            for c in &out[..n] {
                assert_eq!(c.status, WcStatus::Success, "seed {}: {c:?}", self.seed);
                match c.opcode {
                    WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => self.received(node, c),
                    _ => self.sent(c, node),
                }
            }
            if n == 0 {
                return;
            }
        }
    }

    fn sent(&mut self, c: &Completion, node: usize) {
        let seed = self.seed;
        let of_qp = |d: &&mut Direction| d.from == node && d.qpn == c.qpn;
        let dir = self.directions.iter_mut().find(of_qp).expect("a direction");
        let mut rest = dir.posted[dir.completed..].iter();
        let skipped = rest.position(|(_, signaled)| *signaled);
        let skipped = skipped.unwrap_or_else(|| panic!("seed {seed}: {c:?} was not signaled"));
        dir.completed += skipped + 1;
        assert_eq!(
            dir.posted[dir.completed - 1].0,
            c.wr_id,
            "seed {seed}: {c:?}"
        );
    }

    fn received(&mut self, node: usize, c: &Completion) {
        let seed = self.seed;
        let of_qp = |d: &&mut Direction| d.to == node && d.peer == c.qpn;
        let dir = self.directions.iter_mut().find(of_qp).expect("a direction");
        let message = dir.on_the_way.pop_front();
        let message = message.unwrap_or_else(|| panic!("seed {seed}: {c:?} came twice"));
        let d = dir.index;
        let queue = self.srqs[node].map_or(2 + d, |_| node);
        let place = self.receives[queue].iter().position(|p| p.id == c.wr_id);
        let place = place.unwrap_or_else(|| panic!("seed {seed}: {c:?} of no receive"));
        if self.srqs[node].is_none() {
            assert_eq!(place, 0, "seed {seed}: {c:?} out of order");
        }
        let posted = self.receives[queue].remove(place).expect("it is there");
        let len = message.data.len();
        assert_eq!(
            (c.byte_len as usize, c.imm),
            (len, message.imm),
            "seed {seed}: {c:?}"
        );
        let got = match message.written_to {
            None => self.read_memory(node, &posted.sges, len),
            Some(at) => self.net.engine(node).memory_mut().bytes()[at..at + len].to_vec(),
        };
        let write = message.written_to.is_some();
        assert_eq!(
            c.opcode == WcOpcode::RecvRdmaWithImm,
            write,
            "seed {seed}: {c:?}"
        );
        assert!(got == message.data, "seed {seed}: payload of {c:?}");
        let counter = self.net.word(node, 8 * d);
        assert!(
            counter >= message.counter,
            "seed {seed}: {c:?} overtook a WRITE"
        );
        self.arrived += 1;
    }

    fn is_done(&self) -> bool {
        let done =
            |d: &Direction| d.left == 0 && d.completed == d.posted.len() && d.on_the_way.is_empty();
        self.directions.iter().all(done)
    }

    fn run(&mut self) {
        let mut rounds = 0_u32;
        while !self.is_done() {
            rounds += 1;
            assert!(rounds < 1_000_000, "seed {}: no end", self.seed);
            for d in 0..self.directions.len() {
                for _ in 0..self.rng.below(4) {
                    self.post(d);
                }
                if self.rng.below(6) == 0 {
                    for _ in 0..self.rng.below(4) {
                        self.post_receive(d);
                    }
                }
            }
            for _ in 0..=self.rng.below(6) {
                self.net.step();
            }
            for node in 0..2 {
                self.poll(node);
            }
        }
        for (d, dir) in self.directions.iter().enumerate() {
            let counter = self.net.word(dir.to, 8 * d);
            assert_eq!(counter, dir.counter, "seed {}: direction {d}", self.seed);
        }
        for queue in &self.receives {
            assert!(
                queue.is_empty(),
                "seed {}: a receive is left over",
                self.seed
            );
        }
    }
}

#[test]
fn every_message_arrives_once_and_in_order() {
    let (mut runs, mut arrived, mut lost, mut again, mut naks) = (0, 0, 0, 0, 0);
    seeds::each(40, |seed, _| {
        let mut world = World::new(seed);
        world.run();
        runs += 1;
        arrived += world.arrived;
        lost += world.net.stats().lost;
        for node in 0..2 {
            let counters = world.net.engine(node).counters();
            again += counters.retransmitted;
            naks += counters.naks_sent;
        }
    });
    println!(
        "{runs} seeds: {arrived} messages, {lost} packets lost, {again} sent again, {naks} NAKs"
    );
    assert!(arrived > 0);
}
