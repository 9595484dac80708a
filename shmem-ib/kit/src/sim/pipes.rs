//! Streams in the simulated network: pipes that take and bring bytes in portions of any size, and break at any byte.

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::{address, index_of};
use shmem_soft::stream::{StreamAction, StreamConfig, StreamId};
use shmem_soft::{Engine, Memory};
use shmem_verbs::rng::Rng;
use shmem_verbs::{AddressVector, Gid};

/// What the network does to streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipeConfig {
    /// Decides everything that is random.
    pub seed: u64,
    /// For all engines.
    pub streams: StreamConfig,
    /// Connections refused, in a million; half as many ports cannot be had.
    pub refuse_ppm: u32,
    /// Portions after which the pipe breaks, in a million.
    pub break_ppm: u32,
    /// Breaks of which no side hears: the pipe brings nothing more, or late what was on the way, in a million.
    pub mute_ppm: u32,
    /// Most bytes at a time.
    pub portion: u64,
    /// Most bytes on the way.
    pub capacity: usize,
    /// Most time on the way, and to connect.
    pub delay_ns: u64,
}

impl PipeConfig {
    /// Streams that never break.
    #[must_use]
    pub const fn reliable(seed: u64, streams: StreamConfig) -> Self {
        Self {
            seed,
            streams,
            refuse_ppm: 0,
            break_ppm: 0,
            mute_ppm: 0,
            portion: 1 << 16,
            capacity: 1 << 18,
            delay_ns: 10_000,
        }
    }
}

/// How late what was on the way can come.
const LATE_NS: u64 = 8_000_000_000;

/// What happened to streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PipeStats {
    /// Streams that were connected.
    pub opened: u64,
    /// Those refused.
    pub refused: u64,
    /// Those that the network broke.
    pub broken: u64,
    /// Bytes brought.
    pub bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// Of an engine, its stream, to a port of another engine.
    Connect(usize, StreamId, usize, u16),
    /// Bytes to this side of a pipe.
    Deliver(usize, usize),
    /// This side of a pipe hears of the end.
    End(usize, usize),
}

#[derive(Debug)]
struct Side {
    engine: usize,
    /// `None`: closed.
    id: Option<StreamId>,
    /// Bytes on the way to it.
    coming: VecDeque<u8>,
    /// It waits for room on the way to the other side.
    blocked: bool,
}

#[derive(Debug)]
struct Pipe {
    sides: [Side; 2],
    /// Nothing is brought any more.
    dead: bool,
    /// Nor does anybody hear of the end.
    mute: bool,
    /// What was on the way then still comes.
    late: bool,
}

#[derive(Debug)]
pub(super) struct Pipes {
    config: PipeConfig,
    rng: Rng,
    ports: Vec<Option<u16>>,
    pipes: Vec<Pipe>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    stats: PipeStats,
}

impl Pipes {
    pub(super) fn new(config: PipeConfig, engines: usize) -> Self {
        Self {
            config,
            rng: Rng::new(config.seed),
            ports: vec![None; engines],
            pipes: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            stats: PipeStats::default(),
        }
    }

    pub(super) const fn stats(&self) -> PipeStats {
        self.stats
    }

    pub(super) fn next_event(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    fn schedule(&mut self, now: u64, event: Event) {
        self.sequence += 1;
        let at = now + 1 + self.rng.below(self.config.delay_ns);
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// The pipe of a stream, and on which side of it that is.
    fn find(&self, engine: usize, id: StreamId) -> Option<(usize, usize)> {
        self.pipes.iter().enumerate().rev().find_map(|(p, pipe)| {
            let ours = |side: &Side| side.engine == engine && side.id == Some(id);
            Some((p, pipe.sides.iter().position(ours)?))
        })
    }

    /// Takes what engines want done and sent; says whether there was anything.
    pub(super) fn flush<M: Memory>(&mut self, now: u64, engines: &mut [Engine<M>]) -> bool {
        let mut any = false;
        for (index, engine) in engines.iter_mut().enumerate() {
            while let Some(action) = engine.poll_stream_action() {
                any = true;
                self.act(now, index, engine, action);
            }
            while let Some(id) = engine.next_stream() {
                any = true;
                self.send(now, index, engine, id);
            }
        }
        any
    }

    fn act<M: Memory>(
        &mut self,
        now: u64,
        index: usize,
        engine: &mut Engine<M>,
        action: StreamAction,
    ) {
        match action {
            StreamAction::Listen => {
                let refused = self.rng.chance_ppm(self.config.refuse_ppm / 2);
                let port = (!refused).then(|| 1 + self.rng.below(60_000) as u16);
                self.ports[index] = port;
                engine.stream_listening(port);
            }
            StreamAction::Unlisten => self.ports[index] = None,
            StreamAction::Connect(id, to) => {
                let av = AddressVector {
                    gid: Gid::from(to.ip()),
                    udp_port: 4791,
                };
                let peer = index_of(av).unwrap_or(usize::MAX);
                self.schedule(now, Event::Connect(index, id, peer, to.port()));
            }
            StreamAction::Close(id) => {
                if let Some((p, s)) = self.find(index, id) {
                    self.pipes[p].sides[s].id = None;
                    // What is on the way may come before the end, or not.
                    if self.rng.below(2) == 0 {
                        self.pipes[p].sides[1 - s].coming.clear();
                    }
                    if !self.pipes[p].mute {
                        self.schedule(now, Event::End(p, 1 - s));
                    }
                }
            }
        }
    }

    fn send<M: Memory>(&mut self, now: u64, index: usize, engine: &mut Engine<M>, id: StreamId) {
        let Some((p, s)) = self.find(index, id) else {
            return; // Not connected yet, or not any more.
        };
        loop {
            let room = self.config.capacity - self.pipes[p].sides[1 - s].coming.len();
            let most = room.min(1 + self.rng.below(self.config.portion) as usize);
            let Some(output) = engine.stream_output(now, id) else {
                return;
            };
            if most == 0 {
                self.pipes[p].sides[s].blocked = true;
                return;
            }
            let mut bytes = output.head.to_vec();
            for piece in output.pieces {
                let at = bytes.len();
                bytes.resize(at + piece.len, 0);
                engine.memory_mut().read(piece.addr, &mut bytes[at..]);
            }
            bytes.truncate(most);
            engine.stream_sent(now, id, bytes.len());
            if !self.pipes[p].dead {
                self.pipes[p].sides[1 - s].coming.extend(bytes);
                self.schedule(now, Event::Deliver(p, 1 - s));
            }
        }
    }

    /// Lets everything happen that is due.
    pub(super) fn advance_to<M: Memory>(&mut self, now: u64, engines: &mut [Engine<M>]) {
        while self.next_event().is_some_and(|at| at <= now) {
            let Some(Reverse((_, _, event))) = self.events.pop() else {
                break;
            };
            match event {
                Event::Connect(from, id, to, port) => {
                    self.connect(now, engines, (from, id), to, port)
                }
                Event::Deliver(p, s) => self.deliver(now, engines, p, s),
                Event::End(p, s) => {
                    let rest = !self.pipes[p].sides[s].coming.is_empty();
                    if rest && !self.pipes[p].dead {
                        self.deliver(now, engines, p, s);
                        self.schedule(now, event);
                    } else if let Some(id) = self.pipes[p].sides[s].id.take() {
                        engines[self.pipes[p].sides[s].engine].stream_broke(id);
                    }
                }
            }
        }
    }

    fn connect<M: Memory>(
        &mut self,
        now: u64,
        engines: &mut [Engine<M>],
        (from, id): (usize, StreamId),
        to: usize,
        port: u16,
    ) {
        let refused = self.rng.chance_ppm(self.config.refuse_ppm);
        let listens = !refused && self.ports.get(to).copied().flatten() == Some(port);
        let accepted = match listens {
            true => engines[to].stream_accepted(now, address(from).gid.ip()),
            false => None,
        };
        let Some(other) = accepted else {
            self.stats.refused += 1;
            engines[from].stream_broke(id);
            return;
        };
        self.stats.opened += 1;
        let side = |engine, id| Side {
            engine,
            id: Some(id),
            coming: VecDeque::new(),
            blocked: false,
        };
        self.pipes.push(Pipe {
            sides: [side(from, id), side(to, other)],
            dead: false,
            mute: false,
            late: false,
        });
        engines[from].stream_connected(id);
    }

    fn deliver<M: Memory>(&mut self, now: u64, engines: &mut [Engine<M>], p: usize, s: usize) {
        if self.rng.chance_ppm(self.config.break_ppm) {
            self.stats.broken += 1;
            self.pipes[p].dead = true;
            self.schedule(now, Event::End(p, 0));
            self.schedule(now, Event::End(p, 1));
        }
        if self.rng.chance_ppm(self.config.mute_ppm) {
            self.stats.broken += 1;
            let late = self.rng.below(2) == 0;
            let pipe = &mut self.pipes[p];
            (pipe.dead, pipe.mute, pipe.late) = (true, true, late);
            if late {
                // After what a requester has patience for, by turns with what it sends then.
                for side in [0, 1] {
                    let pause = self.rng.below(LATE_NS);
                    self.schedule(now + pause, Event::Deliver(p, side));
                }
                return;
            }
        }
        let pipe = &mut self.pipes[p];
        if pipe.dead && !pipe.late {
            return;
        }
        let most = 1 + self.rng.below(self.config.portion) as usize;
        let side = &mut pipe.sides[s];
        let Some(id) = side.id else {
            side.coming.clear();
            return;
        };
        let engine = &mut engines[side.engine];
        if side.coming.is_empty() {
            return;
        }
        let Some(room) = engine.stream_room(id) else {
            return;
        };
        let (at, direct) = room.direct.unwrap_or((0, 0));
        let all = (direct + room.ahead.len()).min(most).min(side.coming.len());
        let bytes: Vec<u8> = side.coming.drain(..all).collect();
        let (first, rest) = bytes.split_at(direct.min(all));
        room.ahead[..rest.len()].copy_from_slice(rest);
        if !first.is_empty() {
            engine.memory_mut().write(at, first);
        }
        engine.stream_received(now, id, all);
        self.stats.bytes += all as u64;
        let more = !side.coming.is_empty();
        let sender = &mut pipe.sides[1 - s];
        if std::mem::take(&mut sender.blocked)
            && let Some(id) = sender.id
        {
            engines[sender.engine].stream_unblocked(id);
        }
        if more {
            self.schedule(now, Event::Deliver(p, s));
        }
    }
}
