//! One conversation: a function of its seed.

use std::ops::AddAssign;

use shmem_ib::rng::Rng;
use shmem_ib::soft::VecMemory;
use shmem_ib::soft::stream::StreamConfig;
use shmem_ib::verbs::{
    Completion, Cq, Lkey, Mr, Mtu, Psn, QpInit, QpType, Qpn, RecvWr, Sge, VerbsError, WcOpcode,
};
use shmem_ib_kit::sim::{NetConfig, PipeConfig, Place, RcEnd, Reference, SimNet, Sums, base};

/// Words at the front of each memory that all connections add to.
const SHARED_WORDS: usize = 4;
/// Area of the target that a direction writes, and its local buffers.
const AREA: usize = 4096;
const LOCAL: usize = 128 << 10;
const DIRECTIONS: usize = 6;
const LOCAL_AT: usize = 4096 + DIRECTIONS * AREA;
/// Receive buffers of a queue pair.
const RECEIVES: usize = 16;
const MEMORY: usize = LOCAL_AT + DIRECTIONS * (LOCAL + RECEIVES * MAX_LEN);
/// Deepest send queue; with the longest payload it fills half of the local buffers.
const DEPTH: u64 = 32;
const MAX_LEN: usize = 2000;

/// Where the receive buffers for what direction `d` sends are, at its target.
fn receives_at(d: usize) -> usize {
    LOCAL_AT + DIRECTIONS * LOCAL + d * RECEIVES * MAX_LEN
}

/// What happened.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) conversations: u64,
    pub(crate) ops: u64,
    pub(crate) packets: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) again: u64,
    pub(crate) virtual_ns: u64,
    pub(crate) streams: u64,
    pub(crate) broken: u64,
    pub(crate) by_stream: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.conversations += other.conversations;
        self.ops += other.ops;
        self.packets += other.packets;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.again += other.again;
        self.virtual_ns += other.virtual_ns;
        self.streams += other.streams;
        self.broken += other.broken;
        self.by_stream += other.by_stream;
    }
}

/// Streams for most requests or the longest only, of runs of few packets, which come whole or in crumbs, most of which break
/// sometimes.
fn pipes(rng: &mut Rng) -> PipeConfig {
    let ppm = |rng: &mut Rng, max: u64| match rng.below(3) {
        0 => 0,
        _ => rng.below(max) as u32,
    };
    PipeConfig {
        seed: rng.next_u64(),
        streams: StreamConfig {
            from: 1 + rng.below(1500) as u32,
            run: 1 + rng.below(3000) as u32,
            direct: 1 + rng.below(2000) as u32,
        },
        refuse_ppm: ppm(rng, 500_000),
        break_ppm: ppm(rng, 30_000),
        mute_ppm: ppm(rng, 3_000),
        portion: [1, 50, 5000][rng.below(3) as usize] + rng.below(200),
        capacity: 1 + rng.below(10_000) as usize,
        delay_ns: 1 + rng.below(200_000),
    }
}

struct Direction {
    from: usize,
    to: usize,
    qpn: Qpn,
    cq: Cq,
    reference: Reference,
    /// Requests that are still to be posted.
    left: u64,
    local: usize,
    /// Receive buffers of this queue pair that are not posted. What arrives in them is sent by the
    /// opposite direction, the one whose number differs in the last bit.
    idle: Vec<u64>,
    lkey: Lkey,
    /// Of the send queue.
    depth: usize,
}

pub(crate) struct Conversation {
    rng: Rng,
    net: SimNet<VecMemory>,
    directions: Vec<Direction>,
    /// Per node.
    sums: Vec<Sums>,
}

impl Conversation {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xc0e7_e25a_7102_0001);
        let nodes = 2 + rng.below(2) as usize;
        let mtu = [Mtu::M256, Mtu::M512, Mtu::M1024][rng.below(3) as usize];
        let trouble = |rng: &mut Rng, max: u64| match rng.below(4) {
            0 => 0,
            1 => rng.below(max / 50) as u32,
            _ => rng.below(max) as u32,
        };
        let config = NetConfig {
            seed: rng.next_u64(),
            // Every eighth network is as bad as it gets.
            loss_ppm: if rng.below(8) == 0 {
                500_000
            } else {
                trouble(&mut rng, 300_000)
            },
            duplicate_ppm: trouble(&mut rng, 300_000),
            reorder_ppm: trouble(&mut rng, 300_000),
            corrupt_ppm: trouble(&mut rng, 10_000),
            delay_ns: 1_000 + rng.below(50_000),
            jitter_ns: rng.below(50_000),
            mtu,
            link_ns: 0,
            receiver: None,
        };
        let (mut net, mrs) = SimNet::with_memory(config, nodes, MEMORY);
        if rng.below(3) > 0 {
            net.set_streams(pipes(&mut rng));
        }
        let mut conversation = Self {
            rng,
            net,
            directions: Vec::new(),
            sums: vec![Sums::default(); nodes],
        };
        for _ in 0..=conversation.rng.below(DIRECTIONS as u64 / 2) {
            let a = conversation.rng.below(nodes as u64) as usize;
            let b = (a + 1 + conversation.rng.below(nodes as u64 - 1) as usize) % nodes;
            conversation.connect([a, b], &mrs);
        }
        // At least a thousand requests, however many connections there are.
        let n = conversation.directions.len() as u64;
        for direction in &mut conversation.directions {
            direction.left = 1 + (1000 + conversation.rng.below(300)) / n;
        }
        conversation
    }

    fn connect(&mut self, nodes: [usize; 2], mrs: &[Mr]) {
        let ends = nodes.map(|node| {
            let engine = self.net.engine(node);
            let cq = engine.create_cq(4096).expect("a CQ");
            let init = QpInit {
                max_send_wr: 1 + self.rng.below(DEPTH) as u32,
                max_recv_wr: RECEIVES as u32,
                max_inline: 64,
                ..QpInit::new(QpType::Rc, cq)
            };
            let qpn = engine.create_qp(&init).expect("a queue pair");
            let near_wrap = Psn::new(0_u32.wrapping_sub(self.rng.below(2000) as u32));
            let psn = [near_wrap, Psn::new(self.rng.next_u32())][self.rng.below(2) as usize];
            let end = RcEnd {
                node,
                qpn,
                psn,
                max_rd_atomic: 1 + self.rng.below(16) as u8,
                min_rnr_timer: 1 + self.rng.below(12) as u8,
            };
            (end, cq, init.max_send_wr as usize)
        });
        self.net.connect(ends.map(|(end, ..)| end));
        for (me, peer) in [(0, 1), (1, 0)] {
            let (RcEnd { node, qpn, .. }, cq, depth) = ends[me];
            let to = nodes[peer];
            let i = self.directions.len();
            let local = LOCAL_AT + i * LOCAL;
            let place = Place {
                local: base(node) + local as u64,
                local_len: LOCAL,
                lkey: mrs[node].lkey,
                remote: base(to) + (4096 + i * AREA) as u64,
                remote_len: AREA,
                shared: base(to),
                shared_words: SHARED_WORDS,
                rkey: mrs[to].rkey,
                max_len: MAX_LEN,
                receives: base(to) + receives_at(i) as u64,
                sends: true,
            };
            self.directions.push(Direction {
                from: node,
                to,
                qpn,
                cq,
                reference: Reference::new(place),
                left: 0,
                local,
                idle: (0..RECEIVES as u64).collect(),
                lkey: mrs[node].lkey,
                depth,
            });
        }
    }

    /// Posts up to `n` requests of direction `d`.
    fn post(&mut self, d: usize, n: u64) {
        let dir = &mut self.directions[d];
        let engine = self.net.engine(dir.from);
        for _ in 0..n.min(dir.left) {
            let rng = &mut self.rng;
            let memory = engine.memory_mut();
            let Some(mut proposal) = dir.reference.propose(memory, |n| rng.below(n)) else {
                return;
            };
            // Unsignaled requests hold their place until a later one completes: the last place
            // of the queue has to be for a signaled one.
            let full = dir.reference.outstanding() + 1 >= dir.depth;
            proposal.signal(full || dir.left == 1);
            let mut inline = [0; 64];
            let data = if proposal.inline {
                let len = proposal.data.len();
                let start = dir.local + proposal.data.start;
                inline[..len].copy_from_slice(&memory.bytes()[start..start + len]);
                Some(&inline[..len])
            } else {
                None
            };
            let sges = [proposal.sge()];
            let wr = proposal.wr(&sges, data);
            match engine.post_send(dir.qpn, &wr) {
                Ok(_) => {}
                Err(VerbsError::QueueFull { .. }) => return,
                Err(e) => panic!("{e}"),
            }
            dir.reference.posted(proposal, engine.memory_mut());
            dir.left -= 1;
        }
    }

    /// Posts some of the idle receive buffers of direction `d`'s queue pair, or all.
    fn post_receives(&mut self, d: usize, all: bool) {
        let dir = &mut self.directions[d];
        let engine = self.net.engine(dir.from);
        while !dir.idle.is_empty() && (all || self.rng.below(3) > 0) {
            let i = self.rng.below(dir.idle.len() as u64) as usize;
            let wr_id = dir.idle.swap_remove(i);
            let at = receives_at(d ^ 1) + wr_id as usize * MAX_LEN;
            let sge = Sge {
                addr: base(dir.from) + at as u64,
                len: MAX_LEN as u32,
                lkey: dir.lkey,
            };
            let wr = RecvWr {
                wr_id,
                sges: &[sge],
            };
            engine.post_recv(dir.qpn, &wr).expect("there is room");
        }
    }

    fn poll(&mut self, d: usize) -> Result<(), String> {
        let mut out = [Completion::EMPTY; 16];
        let (from, to, cq) = {
            let dir = &self.directions[d];
            (dir.from, dir.to, dir.cq)
        };
        let engine = self.net.engine(from);
        loop {
            let n = engine.poll_cq(cq, &mut out);
            for c in &out[..n] {
                let memory = engine.memory_mut();
                let right = if matches!(c.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm) {
                    self.directions[d].idle.push(c.wr_id);
                    self.directions[d ^ 1].reference.receive(c, memory)
                } else {
                    let sums = &mut self.sums[to];
                    self.directions[d].reference.complete(c, memory, sums)
                };
                right.map_err(|e| format!("direction {d}: {e}"))?;
            }
            if n == 0 {
                return Ok(());
            }
        }
    }

    pub(crate) fn run(mut self) -> Result<Tally, String> {
        let mut steps = 0_u64;
        let is_done = |d: &Direction| {
            d.left == 0 && d.reference.outstanding() == 0 && d.reference.unreceived() == 0
        };
        while !self.directions.iter().all(is_done) {
            for d in 0..self.directions.len() {
                let n = self.rng.below(12);
                self.post(d, n);
                self.post_receives(d, false);
            }
            for _ in 0..=self.rng.below(12) {
                steps += 1;
                self.net.step();
            }
            if steps > 10_000_000 {
                let left = |d: &Direction| {
                    let r = &d.reference;
                    (d.left, r.outstanding(), r.unreceived(), d.idle.len())
                };
                let left: Vec<_> = self.directions.iter().map(left).collect();
                return Err(format!(
                    "no end in sight: (to post, posted, not received, idle receives) are {left:?}, \
                     the next event is at {:?}",
                    self.net.next_event()
                ));
            }
            for d in 0..self.directions.len() {
                self.poll(d)?;
            }
        }
        for (d, dir) in self.directions.iter().enumerate() {
            let memory = self.net.engine(dir.to).memory_mut();
            dir.reference
                .check(memory)
                .map_err(|e| format!("direction {d}: {e}"))?;
        }
        let mut tally = Tally {
            conversations: 1,
            ops: self.directions.iter().map(|d| d.reference.count()).sum(),
            packets: self.net.stats().sent,
            lost: self.net.stats().lost,
            doubled: self.net.stats().duplicated,
            again: 0,
            virtual_ns: self.net.now(),
            streams: self.net.pipe_stats().opened,
            broken: self.net.pipe_stats().broken,
            by_stream: self.net.pipe_stats().bytes,
        };
        for (node, sums) in self.sums.iter().enumerate() {
            if let Some(cq) = self.net.engine(node).overrun() {
                return Err(format!("node {node}: {cq:?} has lost completions"));
            }
            tally.again += self.net.engine(node).counters().retransmitted;
            for word in 0..SHARED_WORDS {
                let value = self.net.word(node, 8 * word);
                sums.check(word, value, false)
                    .map_err(|e| format!("node {node}: {e}"))?;
            }
        }
        Ok(tally)
    }
}
