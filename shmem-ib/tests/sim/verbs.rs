//! Random verbs programs on a bad network, checked against a model.
//!
//! Each seed makes two or three HCAs, a few connections between them, a program for both
//! directions of each, and a network which loses, doubles and reorders up to 30 % of all
//! packets and flips a bit in up to 3 %. The model executes every program in its order of posting. Checked are: every
//! completion in order and with the right status; every value read or fetched; all memory at
//! the end, byte by byte; that additions to words shared by all connections were executed
//! exactly once.

use shmem_ib::rng::Rng;
use shmem_ib::soft::VecMemory;
use shmem_ib::verbs::{
    Completion, Cq, Mr, Psn, QpInit, QpState, QpType, Qpn, Rkey, SendOp, SendWr, Sge, VerbsError,
    WcStatus,
};
use shmem_ib_kit::sim::{NetConfig, RcEnd, SimNet, base};
use shmem_testkit::seeds;

/// Memory of a node: words that all connections add to, then an area per direction.
const SHARED_WORDS: usize = 4;
const AREA: usize = 8 << 10;
const AREAS: usize = 8;
const LOCAL: usize = 96 << 10;
const NODE_LEN: usize = 4096 + AREAS * AREA + AREAS * LOCAL;

/// What a request has to bring.
#[derive(Debug)]
enum Expect {
    Nothing,
    /// These bytes at this local offset.
    Bytes(usize, Vec<u8>),
    /// Some old value of a shared word at this local offset.
    Shared(usize, usize),
}

#[derive(Debug)]
struct Posted {
    wr_id: u64,
    signaled: bool,
    culprit: bool,
    expect: Expect,
}

/// One direction of a connection.
struct Direction {
    from: usize,
    to: usize,
    qpn: Qpn,
    cq: Cq,
    /// Places of the send queue.
    depth: usize,
    /// Offset of the target area on `to`, and of the local area on `from`.
    area: usize,
    local: usize,
    /// What the target area has to contain.
    model: Vec<u8>,
    used: usize,
    posted: Vec<Posted>,
    /// Index into `posted` of the first that has not completed.
    completed: usize,
    /// Ranges that READs in flight look at.
    reads: Vec<(usize, usize)>,
    left: usize,
    /// A request failed, here or in the opposite direction.
    broken: bool,
    /// At this step it posts a request with a wrong key.
    culprit_at: Option<usize>,
}

struct World {
    seed: u64,
    rng: Rng,
    net: SimNet<VecMemory>,
    mrs: Vec<Mr>,
    mtu: usize,
    directions: Vec<Direction>,
    /// Additions of 1 to each shared word of each node: how many, and which old values came.
    shared: Vec<Vec<u64>>,
    unsure_shared: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let nodes = 2 + rng.below(2) as usize;
        let config = NetConfig::drawn(&mut rng, 300_000);
        let (net, mrs) = SimNet::with_memory(config, nodes, NODE_LEN);
        let mut world = Self {
            seed,
            rng,
            net,
            mrs,
            mtu: config.mtu.bytes(),
            directions: Vec::new(),
            shared: vec![Vec::new(); nodes * SHARED_WORDS],
            unsure_shared: false,
        };
        for _ in 0..=world.rng.below(3) {
            let a = world.rng.below(nodes as u64) as usize;
            let b = (a + 1 + world.rng.below(nodes as u64 - 1) as usize) % nodes;
            world.connect(a, b);
        }
        if world.rng.below(5) == 0 {
            let n = world.directions.len() as u64;
            let i = world.rng.below(n) as usize;
            let left = world.directions[i].left as u64;
            world.directions[i].culprit_at = Some(world.rng.below(left) as usize);
        }
        world
    }

    fn connect(&mut self, a: usize, b: usize) {
        let ends = [a, b].map(|node| {
            let engine = self.net.engine(node);
            let cq = engine.create_cq(4096).unwrap();
            let init = QpInit {
                max_send_wr: 1 + self.rng.below(40) as u32,
                max_inline: 300,
                ..QpInit::new(QpType::Rc, cq)
            };
            let qpn = engine.create_qp(&init).unwrap();
            let near_wrap = Psn::new(0u32.wrapping_sub(self.rng.below(40) as u32));
            let psn = [near_wrap, Psn::new(self.rng.next_u32())][self.rng.below(2) as usize];
            let end = RcEnd {
                node,
                qpn,
                psn,
                max_rd_atomic: 1 + self.rng.below(6) as u8,
                min_rnr_timer: 1,
            };
            (end, cq, init.max_send_wr as usize)
        });
        self.net.connect(ends.map(|(end, ..)| end));
        for (me, peer) in [(0, 1), (1, 0)] {
            let (RcEnd { node, qpn, .. }, cq, depth) = ends[me];
            let to = ends[peer].0.node;
            let i = self.directions.len();
            self.directions.push(Direction {
                from: node,
                to,
                qpn,
                cq,
                depth,
                area: 4096 + i * AREA,
                local: 4096 + AREAS * AREA + i * LOCAL,
                model: vec![0; AREA],
                used: 0,
                posted: Vec::new(),
                completed: 0,
                reads: Vec::new(),
                left: 1 + self.rng.below(40) as usize,
                broken: false,
                culprit_at: None,
            });
        }
    }

    fn length(&mut self) -> usize {
        let mtu = self.mtu as u64;
        let len = match self.rng.below(8) {
            0 => 0,
            1 => 8,
            2 => self.rng.below(16),
            3 => mtu * (1 + self.rng.below(4)),
            4 => mtu * (1 + self.rng.below(4)) - 1,
            5 => mtu * (1 + self.rng.below(4)) + 1,
            _ => self.rng.below(6 * mtu),
        };
        (len as usize).min(AREA / 2)
    }

    /// Posts the next request of a direction; does nothing if the queue is full or it has to
    /// wait for READs.
    fn post(&mut self, d: usize) {
        let (op, len) = (self.rng.below(10), self.length());
        let signaled = self.rng.below(10) < 7;
        let add = self.rng.next_u64();
        let (offset, pick) = (
            self.rng.below((AREA - len) as u64 + 1) as usize,
            self.rng.below(4),
        );
        let use_inline = self.rng.below(2) == 0 && len <= 300;
        let data: Vec<u8> = (0..len).map(|_| self.rng.next_u32() as u8).collect();
        let dir = &mut self.directions[d];
        if dir.left == 0 || dir.broken {
            return;
        }
        let (mr, to, from) = (self.mrs[dir.from], self.mrs[dir.to], dir.from);
        let local = dir.local + dir.used;
        assert!(
            dir.used + len.max(8) <= LOCAL,
            "the program outgrew its local memory"
        );
        let overlaps = |reads: &[(usize, usize)], at: usize, n: usize| {
            reads
                .iter()
                .any(|(start, end)| at < *end && *start < at + n)
        };
        let mut inline = None;
        let target = |offset: usize| base(dir.to) + (dir.area + offset) as u64;
        let mut change: Option<(usize, Vec<u8>)> = None;
        let mut read = None;
        let word_at = offset.min(AREA - 8) & !7;
        let word = u64::from_ne_bytes(dir.model[word_at..word_at + 8].try_into().unwrap());
        let (mut op, local_len, expect) = match op {
            0..=3 => {
                // An unfenced WRITE may pass a READ: the model allows none that would matter.
                if overlaps(&dir.reads, offset, len) {
                    return;
                }
                if use_inline {
                    inline = Some(data.clone());
                } else {
                    let memory = self.net.engine(from).memory_mut();
                    memory.bytes_mut()[local..local + len].copy_from_slice(&data);
                }
                change = Some((offset, data));
                (SendOp::write(target(offset), to.rkey), len, Expect::Nothing)
            }
            4..=6 => {
                read = Some((offset, offset + len));
                let expected = dir.model[offset..offset + len].to_vec();
                let op = SendOp::Read {
                    raddr: target(offset),
                    rkey: to.rkey,
                };
                (op, len, Expect::Bytes(local, expected))
            }
            7 => {
                let index = dir.to * SHARED_WORDS + pick as usize;
                let raddr = base(dir.to) + 8 * pick;
                let op = SendOp::fetch_add(raddr, to.rkey, 1);
                (op, 8, Expect::Shared(local, index))
            }
            _ if overlaps(&dir.reads, word_at, 8) => return,
            8 => {
                let new = word.wrapping_add(add);
                change = Some((word_at, new.to_ne_bytes().to_vec()));
                let op = SendOp::fetch_add(target(word_at), to.rkey, add);
                (op, 8, Expect::Bytes(local, word.to_ne_bytes().to_vec()))
            }
            _ => {
                let compare = if pick < 2 { word } else { add };
                if compare == word {
                    change = Some((word_at, add.to_ne_bytes().to_vec()));
                }
                let (raddr, rkey) = (target(word_at), to.rkey);
                let op = SendOp::CmpSwap {
                    raddr,
                    rkey,
                    compare,
                    swap: add,
                };
                (op, 8, Expect::Bytes(local, word.to_ne_bytes().to_vec()))
            }
        };
        let culprit = dir.culprit_at == Some(dir.posted.len()) && (local_len > 0);
        if culprit {
            let bad = Rkey(to.rkey.0 ^ 0x55);
            match &mut op {
                SendOp::Write { rkey, .. }
                | SendOp::Read { rkey, .. }
                | SendOp::FetchAdd { rkey, .. }
                | SendOp::CmpSwap { rkey, .. } => *rkey = bad,
                op => unreachable!("{op:?}"),
            }
        } else if dir.culprit_at == Some(dir.posted.len()) {
            // A request of nothing touches no key: let the next one be the culprit.
            dir.culprit_at = Some(dir.posted.len() + 1);
        }
        let wr_id = dir.posted.len() as u64;
        // Unsignaled requests hold their places: a queue full of them would stay full.
        let unsignaled = dir.posted.iter().rev().take_while(|p| !p.signaled).count();
        let signaled = signaled || dir.left == 1 || unsignaled + 1 >= dir.depth;
        let sge = Sge {
            addr: base(from) + local as u64,
            len: local_len as u32,
            lkey: mr.lkey,
        };
        let sges = [sge];
        let wr = SendWr {
            inline: inline.as_deref(),
            signaled,
            ..SendWr::new(wr_id, op, &sges)
        };
        match self.net.engine(from).post_send(dir.qpn, &wr) {
            Ok(_) => {}
            Err(VerbsError::QueueFull { .. }) => return,
            Err(e) => panic!("seed {}: {e}", self.seed),
        }
        if let Some((at, bytes)) = change
            && dir.posted.iter().all(|p| !p.culprit)
            && !culprit
        {
            dir.model[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        dir.reads.extend(read);
        dir.used += local_len.next_multiple_of(8).max(8);
        dir.left -= 1;
        dir.posted.push(Posted {
            wr_id,
            signaled,
            culprit,
            expect,
        });
    }

    fn poll(&mut self, d: usize) {
        let mut out = [Completion::EMPTY; 8];
        loop {
            let dir = &mut self.directions[d];
            let n = self.net.engine(dir.from).poll_cq(dir.cq, &mut out);
            for c in &out[..n] {
                self.complete(d, c);
            }
            if n == 0 {
                return;
            }
        }
    }

    fn complete(&mut self, d: usize, c: &Completion) {
        let seed = self.seed;
        let dir = &mut self.directions[d];
        let upto = c.wr_id as usize;
        assert!(
            upto >= dir.completed && upto < dir.posted.len(),
            "seed {seed}: {c:?} twice"
        );
        for i in dir.completed..=upto {
            let p = &dir.posted[i];
            if i < upto {
                assert!(
                    !p.signaled && !p.culprit,
                    "seed {seed}: {:?} is missing",
                    p.wr_id
                );
            }
            if i < upto || c.status == WcStatus::Success {
                assert!(!dir.broken, "seed {seed}: success after a failure: {c:?}");
                assert!(!p.culprit, "seed {seed}: a wrong key was accepted");
                let memory = self.net.engine(dir.from).memory_mut().bytes();
                match &p.expect {
                    Expect::Nothing => {}
                    Expect::Bytes(at, bytes) => {
                        let got = &memory[*at..*at + bytes.len()];
                        let differs = got.iter().zip(bytes).position(|(a, b)| a != b);
                        let len = bytes.len();
                        assert_eq!(
                            differs, None,
                            "seed {seed}: request {} of {len} bytes",
                            p.wr_id
                        );
                    }
                    Expect::Shared(at, index) => {
                        let old = memory[*at..*at + 8].try_into().unwrap();
                        self.shared[*index].push(u64::from_ne_bytes(old));
                    }
                }
            } else {
                let right = match c.status {
                    WcStatus::RemAccessErr => p.culprit,
                    // The report may overtake the answers to READs before the culprit.
                    WcStatus::WrFlushErr => !p.culprit || self.unsure_shared,
                    _ => false,
                };
                assert!(right, "seed {seed}: {c:?} of {p:?}");
                dir.broken = true;
                self.unsure_shared = true;
            }
        }
        dir.completed = upto + 1;
        if dir.completed == dir.posted.len() {
            dir.reads.clear();
        }
    }

    fn is_done(&self) -> bool {
        self.directions
            .iter()
            .all(|d| (d.left == 0 || d.broken) && d.completed == d.posted.len())
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
            }
            for _ in 0..=self.rng.below(6) {
                self.net.step();
            }
            for d in 0..self.directions.len() {
                self.poll(d);
                // The opposite end of a failed connection fails without a completion if it
                // has nothing posted.
                let dir = &mut self.directions[d];
                let state = self.net.engine(dir.from).query_qp(dir.qpn).unwrap();
                if state == QpState::Err && dir.completed == dir.posted.len() {
                    dir.broken = true;
                }
            }
        }
    }

    fn check_memory(&mut self) {
        let seed = self.seed;
        for d in 0..self.directions.len() {
            let (to, area) = (self.directions[d].to, self.directions[d].area);
            let dir = &self.directions[d];
            // What was flushed may or may not have been executed, except behind a culprit.
            if dir.broken && !dir.posted.iter().any(|p| p.culprit) {
                continue;
            }
            let bytes = &self.net.engine(to).memory_mut().bytes()[area..area + AREA];
            let at = bytes.iter().zip(&dir.model).position(|(a, b)| a != b);
            assert_eq!(
                at, None,
                "seed {seed}: target memory of direction {d} differs"
            );
        }
        for (index, olds) in self.shared.iter_mut().enumerate() {
            let (node, word) = (index / SHARED_WORDS, index % SHARED_WORDS);
            let value = self.net.word(node, 8 * word);
            olds.sort_unstable();
            let distinct = olds.windows(2).all(|w| w[0] < w[1]);
            assert!(
                distinct,
                "seed {seed}: two additions saw the same value: {olds:?}"
            );
            if !self.unsure_shared {
                assert!(
                    olds.iter().copied().eq(0..value),
                    "seed {seed}: {olds:?} of {value}"
                );
            }
        }
        for i in 0..self.net.len() {
            let overrun = self.net.engine(i).overrun();
            assert_eq!(overrun, None, "seed {seed}");
        }
    }
}

#[test]
fn random_programs_match_the_model() {
    let (mut runs, mut posted, mut packets, mut lost, mut again, mut failed) = (0, 0, 0, 0, 0, 0);
    let (mut corrupted, mut noticed) = (0, 0);
    let mut virtual_ns = 0;
    seeds::each(150, |seed, _| {
        let mut world = World::new(seed);
        world.run();
        world.check_memory();
        runs += 1;
        posted += world
            .directions
            .iter()
            .map(|d| d.posted.len())
            .sum::<usize>();
        failed += usize::from(world.unsure_shared);
        let stats = world.net.stats();
        packets += stats.sent;
        lost += stats.lost;
        corrupted += stats.corrupted;
        virtual_ns += world.net.now();
        for i in 0..world.net.len() {
            let counters = world.net.engine(i).counters();
            again += counters.retransmitted;
            noticed += counters.icrc_errors;
        }
    });
    println!(
        "{runs} seeds, {failed} with a failed connection: {posted} requests, {packets} packets, \
         {lost} lost, {corrupted} corrupted ({noticed} noticed by CRC), {again} sent again, \
         {:.1} s of virtual time",
        virtual_ns as f64 / 1e9,
    );
    assert!(posted > 0);
}
