//! Output on its way up: put in order, and bounded by credit.
//!
//! What the PEs, the child agents and their remote shells say is put in order by one [`Turns`] for
//! each stream. Of PEs at most [`BUDGET`] bytes wait for their turn or for the end of their line: then
//! nobody is read but the PE whose line is open.
//!
//! A receiver (the parent agent, finally the launcher and its terminal) grants [`OUTPUT_WINDOW`]
//! bytes and renews them as it gets rid of them. What is to go without credit is held, and while
//! anything is held the agent's own PEs are not read and its children get no new credit, so a
//! blocked terminal stops the writers instead of filling memory. An agent holds at most one window
//! per child, its budget, and one read of its own. Other frames never wait for credit.

use std::collections::VecDeque;

use crate::frame::{self, CREDIT_STEP, OUTPUT_WINDOW, OutBuf, Stream};
use crate::stdio::{Said, Turns};

/// Bytes of its own PEs that an agent keeps back, all together.
pub const BUDGET: usize = 4 << 20;

/// Data of one frame at most.
const PIECE: usize = 128 << 10;

/// Whose output may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Everybody's.
    All,
    /// That of the PEs of these local numbers, for each stream.
    Only([Option<u32>; 2]),
    /// Nobody's.
    Nothing,
}

/// The way to the parent.
#[derive(Debug)]
struct Upstream {
    credit: usize,
    held: VecDeque<(Option<usize>, Vec<u8>)>,
    /// Bytes of these.
    holding: usize,
    /// Bytes passed on for each child and not yet given back as credit.
    owed: Vec<u32>,
}

impl Upstream {
    /// Sends a frame if there is credit. It came from this child, if from one.
    fn send(
        &mut self,
        child: Option<usize>,
        (rank, stream): (u32, Stream),
        head: &[u8],
        tail: &[u8],
        up: &mut OutBuf,
    ) {
        let len = frame::OUTPUT_OVERHEAD + head.len() + tail.len();
        if self.held.is_empty() && len <= self.credit {
            self.left(child, len);
            frame::encode_output(up.tail(), rank, stream, head, tail);
        } else {
            let mut bytes = Vec::with_capacity(len);
            frame::encode_output(&mut bytes, rank, stream, head, tail);
            self.holding += bytes.len();
            self.held.push_back((child, bytes));
        }
    }

    fn left(&mut self, child: Option<usize>, len: usize) {
        self.credit -= len;
        if let Some(child) = child {
            self.owed[child] += len as u32;
        }
    }

    fn grant(&mut self, n: u32, up: &mut OutBuf) {
        self.credit = self.credit.saturating_add(n as usize);
        while let Some((child, bytes)) = self.held.front() {
            if bytes.len() > self.credit {
                break;
            }
            let (child, len) = (*child, bytes.len());
            up.tail().extend_from_slice(bytes);
            self.held.pop_front();
            self.holding -= len;
            self.left(child, len);
        }
    }
}

/// The output of a node and of those below it. Sources of the turns are the local numbers of PEs, then
/// the links of children, then their remote shells.
#[derive(Debug)]
pub(super) struct Output {
    /// Lines are not put together: there is one PE, and nobody looks at its lines.
    raw: bool,
    first_rank: u32,
    n_local: u32,
    children: u32,
    /// The job is stopped: nobody is to blame for being silent.
    stopped: bool,
    turns: [Turns; 2],
    upstream: Upstream,
}

impl Output {
    pub(super) fn new(raw: bool, first_rank: u32, n_local: u32, children: usize) -> Self {
        Self {
            raw,
            first_rank,
            n_local,
            children: children as u32,
            stopped: false,
            turns: Default::default(),
            upstream: Upstream {
                credit: OUTPUT_WINDOW as usize,
                held: VecDeque::new(),
                holding: 0,
                owed: vec![0; children],
            },
        }
    }

    /// Whether there is credit for more output.
    pub(super) fn may_read(&self) -> bool {
        self.upstream.held.is_empty()
    }

    /// Whose output may be read.
    pub(super) fn reading(&self) -> Reading {
        if !self.may_read() {
            return Reading::Nothing;
        }
        if self.waiting() <= BUDGET {
            return Reading::All;
        }
        let pe = |turns: &Turns| turns.owner().filter(|&source| source < self.n_local);
        Reading::Only([pe(&self.turns[0]), pe(&self.turns[1])])
    }

    /// Whether there is room for words of PEs, which come whether output may be read or not: messages that need no
    /// room come the same way, and are not to wait for a reader who is slow, but only for one who is not there.
    pub(super) fn may_read_messages(&self) -> bool {
        self.upstream.holding <= BUDGET && self.waiting() <= BUDGET
    }

    fn waiting(&self) -> usize {
        self.turns.iter().map(Turns::held).sum()
    }

    /// Whether everything has been passed on.
    pub(super) fn is_empty(&self) -> bool {
        self.may_read() && self.turns.iter().all(Turns::is_empty)
    }

    /// When [`Output::tick`] is due at the latest.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.turns.iter().filter_map(Turns::deadline).min()
    }

    /// Has the turns of a stream do something, and passes on what they give.
    fn turn(
        &mut self,
        stream: Stream,
        now: u64,
        up: &mut OutBuf,
        act: impl FnOnce(&mut Turns, &mut dyn FnMut(Said<'_>)),
    ) {
        let Self {
            upstream,
            first_rank,
            n_local,
            children,
            ..
        } = self;
        act(&mut self.turns[stream as usize], &mut |said| {
            let link = said.source.checked_sub(*n_local);
            let child = link.filter(|child| child < children);
            let rank = match link {
                None => *first_rank + said.source,
                Some(_) => said.tag,
            };
            let child = child.map(|child| child as usize);
            if child.is_some() || said.head.len() + said.tail.len() <= PIECE {
                return upstream.send(child, (rank, stream), said.head, said.tail, up);
            }
            for piece in said.head.chunks(PIECE).chain(said.tail.chunks(PIECE)) {
                upstream.send(child, (rank, stream), piece, &[], up);
            }
        });
        self.set_blocked(now);
    }

    fn set_blocked(&mut self, now: u64) {
        let blocked = self.stopped || !self.may_read();
        for turns in &mut self.turns {
            turns.set_blocked(blocked, now);
        }
    }

    /// A PE of this node wrote something.
    pub(super) fn own(
        &mut self,
        local: u32,
        stream: Stream,
        data: &[u8],
        now: u64,
        up: &mut OutBuf,
    ) {
        if self.raw {
            let from = (self.first_rank + local, stream);
            return self.upstream.send(None, from, data, &[], up);
        }
        self.turn(stream, now, up, |turns, emit| {
            turns.write(local, 0, data, now, emit);
        });
        if self.waiting() > BUDGET {
            self.press(local, stream, now, up);
        }
    }

    /// What a PE has written is passed on as soon as it has its turn, though its line has no end.
    pub(super) fn press(&mut self, local: u32, stream: Stream, now: u64, up: &mut OutBuf) {
        self.turn(stream, now, up, |turns, emit| turns.press(local, now, emit));
    }

    /// The job is stopped, or goes on.
    pub(super) fn set_stopped(&mut self, stopped: bool, now: u64) {
        self.stopped = stopped;
        self.set_blocked(now);
    }

    /// A PE writes nothing more to a stream.
    pub(super) fn closed(&mut self, local: u32, stream: Stream, now: u64, up: &mut OutBuf) {
        self.turn(stream, now, up, |turns, emit| turns.close(local, now, emit));
    }

    /// Output from a child.
    pub(super) fn relay(
        &mut self,
        child: usize,
        (rank, stream): (u32, Stream),
        data: &[u8],
        now: u64,
        up: &mut OutBuf,
    ) {
        let source = self.n_local + child as u32;
        self.turn(stream, now, up, |turns, emit| {
            turns.relay(source, rank, data, now, emit);
        });
    }

    /// Nothing more comes from a child.
    pub(super) fn child_closed(&mut self, child: usize, now: u64, up: &mut OutBuf) {
        let source = self.n_local + child as u32;
        for stream in Stream::ALL {
            self.turn(stream, now, up, |turns, emit| {
                turns.close(source, now, emit)
            });
        }
    }

    /// What a child's remote shell says goes up as output of this number.
    pub(super) fn shell(
        &mut self,
        child: usize,
        number: u32,
        text: &[u8],
        now: u64,
        up: &mut OutBuf,
    ) {
        let source = self.n_local + self.children + child as u32;
        self.turn(Stream::Err, now, up, |turns, emit| {
            turns.write(source, number, text, now, emit);
        });
    }

    /// It says nothing more.
    pub(super) fn shell_closed(&mut self, child: usize, now: u64, up: &mut OutBuf) {
        let source = self.n_local + self.children + child as u32;
        self.turn(Stream::Err, now, up, |turns, emit| {
            turns.close(source, now, emit)
        });
    }

    /// The parent has room for `n` more bytes.
    pub(super) fn grant(&mut self, n: u32, now: u64, up: &mut OutBuf) {
        self.upstream.grant(n, up);
        self.set_blocked(now);
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: u64, up: &mut OutBuf) {
        for stream in Stream::ALL {
            if self.turns[stream as usize]
                .deadline()
                .is_some_and(|at| at <= now)
            {
                self.turn(stream, now, up, |turns, emit| turns.tick(now, emit));
            }
        }
    }

    /// Credit that is due to `child` now, if it is worth a message.
    pub(super) fn take_owed(&mut self, child: usize) -> Option<u32> {
        let owed = &mut self.upstream.owed[child];
        (*owed >= CREDIT_STEP).then(|| std::mem::take(owed))
    }
}
