//! The network: packets on their way, ordered by the time of their arrival.

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::pipes::{PipeConfig, PipeStats, Pipes};
use super::{address, index_of};
use shmem_soft::wire::PACKET_MAX;
use shmem_soft::{Engine, Memory, VecMemory};
use shmem_verbs::rng::Rng;
use shmem_verbs::{Access, AddressVector, Mr, Mtu, Psn, Qpn, RcDest, RcStart};

/// What the network does to packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetConfig {
    /// Decides everything that is random.
    pub seed: u64,
    /// Packets lost, in a million.
    pub loss_ppm: u32,
    /// Packets that arrive twice, in a million.
    pub duplicate_ppm: u32,
    /// Packets that take up to eight times longer, in a million: later ones overtake them.
    pub reorder_ppm: u32,
    /// Packets of which a bit is flipped, in a million.
    pub corrupt_ppm: u32,
    /// Shortest time on the way.
    pub delay_ns: u64,
    /// Random addition to it.
    pub jitter_ns: u64,
    /// Payload per packet.
    pub mtu: Mtu,
    /// Every sender needs so long for a packet, and is asked for the next one then; 0: it sends all at once.
    pub link_ns: u64,
    /// Every receiver takes so long for a packet, and keeps so many bytes of them; what finds no room is
    /// lost.
    pub receiver: Option<Receiver>,
}

/// A receiver of limited speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiver {
    /// Time for a packet.
    pub service_ns: u64,
    /// Bytes that wait, at most. A packet takes 256 more than its length, and 2304 at least.
    pub buffer: u32,
}

impl NetConfig {
    /// A network that loses nothing and keeps the order.
    #[must_use]
    pub const fn perfect(seed: u64) -> Self {
        Self {
            seed,
            loss_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            corrupt_ppm: 0,
            delay_ns: 10_000,
            jitter_ns: 0,
            mtu: Mtu::M4096,
            link_ns: 0,
            receiver: None,
        }
    }

    /// A network whose faults, delays and MTU are drawn. Each fault is absent, or hits less than `most_ppm`
    /// packets of a million; a tenth of that have a bit flipped.
    pub fn drawn(rng: &mut Rng, most_ppm: u32) -> Self {
        let fault = |rng: &mut Rng| match rng.below(3) {
            0 => 0,
            _ => rng.below(most_ppm.into()) as u32,
        };
        let mtu = [Mtu::M256, Mtu::M512, Mtu::M1024][rng.below(3) as usize];
        Self {
            seed: rng.next_u64(),
            loss_ppm: fault(rng),
            duplicate_ppm: fault(rng),
            reorder_ppm: fault(rng),
            corrupt_ppm: fault(rng) / 10,
            delay_ns: 1_000 + rng.below(50_000),
            jitter_ns: rng.below(50_000),
            mtu,
            link_ns: 0,
            receiver: None,
        }
    }
}

/// One end of a connection that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct RcEnd {
    /// Whose queue pair.
    pub node: usize,
    /// The queue pair.
    pub qpn: Qpn,
    /// Of its first request.
    pub psn: Psn,
    /// READs and atomics that it answers at a time.
    pub max_rd_atomic: u8,
    /// How long it lets a peer wait that finds no receive.
    pub min_rnr_timer: u8,
}

/// What happened in the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetStats {
    /// Packets given to the network.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
    /// Of those, the ones for which their receiver had no room.
    pub overflowed: u64,
    /// Packets doubled.
    pub duplicated: u64,
    /// Packets of which a bit was flipped.
    pub corrupted: u64,
    /// Packets delivered, with doubles.
    pub delivered: u64,
    /// Times that the clock jumped to the next event.
    pub steps: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct InFlight {
    at: u64,
    /// Order of sending: packets that arrive at the same time keep it.
    sequence: u64,
    to: usize,
    from: usize,
    bytes: Vec<u8>,
}

/// Engines and the network between them. Engine `i` has address `10.0.i/256.i%256`, port 4791.
#[derive(Debug)]
pub struct SimNet<M> {
    engines: Vec<Engine<M>>,
    config: NetConfig,
    rng: Rng,
    now: u64,
    queue: BinaryHeap<Reverse<InFlight>>,
    sequence: u64,
    stats: NetStats,
    buf: Vec<u8>,
    /// When each sender may send the next packet.
    sends_at: Vec<u64>,
    /// When each receiver will have taken all that waits for it.
    free_at: Vec<u64>,
    /// What waits: when it will be taken, and its bytes.
    waiting: Vec<VecDeque<(u64, u32)>>,
    /// The streams between engines, if there are any.
    pipes: Option<Pipes>,
}

impl<M: Memory> SimNet<M> {
    /// One engine per memory.
    pub fn new(config: NetConfig, memories: impl IntoIterator<Item = M>) -> Self {
        let mut rng = Rng::new(config.seed);
        let engines = memories
            .into_iter()
            .enumerate()
            .map(|(i, memory)| Engine::new(address(i), config.mtu, rng.next_u64(), memory))
            .map(|mut engine| {
                if let Some(receiver) = config.receiver {
                    engine.set_receive_buffer(receiver.buffer);
                }
                engine
            })
            .collect::<Vec<_>>();
        Self {
            sends_at: vec![0; engines.len()],
            free_at: vec![0; engines.len()],
            waiting: engines.iter().map(|_| VecDeque::new()).collect(),
            engines,
            config,
            rng,
            now: 0,
            queue: BinaryHeap::new(),
            sequence: 0,
            stats: NetStats::default(),
            buf: vec![0; PACKET_MAX],
            pipes: None,
        }
    }

    /// Connects two queue pairs. Their requests never give up: simulated networks are worse than any budget.
    pub fn connect(&mut self, [a, b]: [RcEnd; 2]) {
        for (me, peer) in [(a, b), (b, a)] {
            let dest = RcDest {
                av: address(peer.node),
                qpn: peer.qpn,
                rq_psn: peer.psn,
                mtu: self.config.mtu,
                max_dest_rd_atomic: me.max_rd_atomic,
                min_rnr_timer: me.min_rnr_timer,
            };
            let start = RcStart {
                timeout: 0,
                max_rd_atomic: peer.max_rd_atomic,
                ..RcStart::new(dest, me.psn)
            };
            for attr in start.attrs() {
                let moved = self.engines[me.node].modify_qp(me.qpn, &attr);
                moved.expect("a legal transition");
            }
        }
    }

    /// Lets engines have streams, which do what `config` says. To be called before queue pairs are made.
    pub fn set_streams(&mut self, config: PipeConfig) {
        for engine in &mut self.engines {
            engine.set_streams(config.streams);
        }
        self.pipes = Some(Pipes::new(config, self.engines.len()));
    }

    /// What became of streams.
    pub fn pipe_stats(&self) -> PipeStats {
        self.pipes
            .as_ref()
            .map_or_else(PipeStats::default, Pipes::stats)
    }

    /// Virtual time in nanoseconds.
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Counts so far.
    pub const fn stats(&self) -> NetStats {
        self.stats
    }

    /// How many engines there are.
    pub fn len(&self) -> usize {
        self.engines.len()
    }

    /// Whether there is no engine.
    pub fn is_empty(&self) -> bool {
        self.engines.is_empty()
    }

    /// One engine. After posting, [`SimNet::flush`] or [`SimNet::step`] sends.
    pub fn engine(&mut self, index: usize) -> &mut Engine<M> {
        &mut self.engines[index]
    }

    /// From now on nothing is lost, doubled, overtaken or corrupted.
    pub fn heal(&mut self) {
        self.config.loss_ppm = 0;
        self.config.duplicate_ppm = 0;
        self.config.reorder_ppm = 0;
        self.config.corrupt_ppm = 0;
    }

    /// Takes what all engines may send now into the network.
    pub fn flush(&mut self) {
        self.flush_datagrams();
        // What streams have taken or refused may let datagrams go.
        while let Some(pipes) = &mut self.pipes
            && pipes.flush(self.now, &mut self.engines)
        {
            self.flush_datagrams();
        }
    }

    fn flush_datagrams(&mut self) {
        for from in 0..self.engines.len() {
            while self.sends_at[from] <= self.now
                && let Some(t) = self.engines[from].poll_transmit(self.now, &mut self.buf)
            {
                self.sends_at[from] = self.now + self.config.link_ns;
                let bytes = self.buf[..t.len].to_vec();
                self.send(from, t.dst, bytes);
            }
        }
    }

    fn send(&mut self, from: usize, dst: AddressVector, bytes: Vec<u8>) {
        self.stats.sent += 1;
        let to = index_of(dst).filter(|to| *to < self.engines.len());
        let Some(to) = to.filter(|_| !self.rng.chance_ppm(self.config.loss_ppm)) else {
            self.stats.lost += 1;
            return;
        };
        if self.rng.chance_ppm(self.config.duplicate_ppm) {
            self.stats.duplicated += 1;
            self.enqueue(from, to, bytes.clone());
        }
        self.enqueue(from, to, bytes);
    }

    fn enqueue(&mut self, from: usize, to: usize, mut bytes: Vec<u8>) {
        if self.rng.chance_ppm(self.config.corrupt_ppm) {
            let bit = self.rng.below(8 * bytes.len() as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            self.stats.corrupted += 1;
        }
        let mut delay = self.config.delay_ns + self.rng.below(self.config.jitter_ns);
        if self.rng.chance_ppm(self.config.reorder_ppm) {
            delay += self.rng.below(7 * delay.max(1));
        }
        self.sequence += 1;
        let Some(at) = self.taken_at(to, self.now + delay, bytes.len() as u32) else {
            self.stats.lost += 1;
            self.stats.overflowed += 1;
            return;
        };
        let sequence = self.sequence;
        self.queue.push(Reverse(InFlight {
            at,
            sequence,
            to,
            from,
            bytes,
        }));
    }

    /// When a receiver will have taken a packet that arrives at `at`; `None` if it has no room.
    fn taken_at(&mut self, to: usize, at: u64, len: u32) -> Option<u64> {
        let Some(Receiver { service_ns, buffer }) = self.config.receiver else {
            return Some(at);
        };
        let (waiting, free_at) = (&mut self.waiting[to], &mut self.free_at[to]);
        while waiting.front().is_some_and(|(taken, _)| *taken <= at) {
            waiting.pop_front();
        }
        let len = len.max(2048) + 256;
        let held: u32 = waiting.iter().map(|(_, len)| len).sum();
        if held + len > buffer {
            return None;
        }
        *free_at = at.max(*free_at) + service_ns;
        waiting.push_back((*free_at, len));
        Some(*free_at)
    }

    /// When something happens next.
    pub fn next_event(&mut self) -> Option<u64> {
        let timer = self
            .engines
            .iter_mut()
            .filter_map(Engine::next_timeout)
            .min();
        let arrival = self.queue.peek().map(|Reverse(p)| p.at);
        let senders = self.engines.iter().zip(&self.sends_at);
        let departure = senders
            .filter(|(engine, _)| engine.has_ready())
            .map(|(_, at)| *at)
            .min();
        timer
            .into_iter()
            .chain(arrival)
            .chain(departure)
            .chain(self.pipes.as_ref().and_then(Pipes::next_event))
            .min()
            .map(|at| at.max(self.now))
    }

    /// Sends, jumps to the next event, and lets everything happen that is due then. Returns
    /// whether there was an event.
    pub fn step(&mut self) -> bool {
        self.flush();
        let Some(at) = self.next_event() else {
            return false;
        };
        self.advance_to(at);
        true
    }

    /// Lets the clock run to `until`, and everything happen on the way.
    pub fn run_until(&mut self, until: u64) {
        self.flush();
        while let Some(at) = self.next_event().filter(|at| *at <= until) {
            self.advance_to(at);
        }
        self.now = self.now.max(until);
    }

    fn advance_to(&mut self, at: u64) {
        self.now = at;
        self.stats.steps += 1;
        while self.queue.peek().is_some_and(|Reverse(p)| p.at <= at) {
            let Some(Reverse(p)) = self.queue.pop() else {
                break;
            };
            self.stats.delivered += 1;
            self.engines[p.to].handle_datagram(at, address(p.from), &p.bytes);
        }
        if let Some(pipes) = &mut self.pipes {
            pipes.advance_to(at, &mut self.engines);
        }
        for engine in &mut self.engines {
            engine.handle_timeout(at);
        }
        self.flush();
    }
}

/// Where the memory of a node begins.
#[must_use]
pub const fn base(node: usize) -> u64 {
    0x1000_0000 * (node as u64 + 1)
}

impl SimNet<VecMemory> {
    /// Engines with `len` bytes of memory each, which all may access, and its registrations.
    #[must_use]
    pub fn with_memory(config: NetConfig, nodes: usize, len: usize) -> (Self, Vec<Mr>) {
        let mut net = Self::new(config, (0..nodes).map(|i| VecMemory::new(base(i), len)));
        let all = net.engines.iter_mut().enumerate();
        let register = |(i, engine): (usize, &mut Engine<_>)| {
            let mr = engine.reg_mr(base(i), len as u64, Access::ALL);
            mr.expect("memory is registered")
        };
        let mrs = all.map(register).collect();
        (net, mrs)
    }

    /// The word at an offset of a node's memory.
    pub fn word(&mut self, node: usize, at: usize) -> u64 {
        let bytes = self.engine(node).memory_mut().bytes();
        u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
    }
}
