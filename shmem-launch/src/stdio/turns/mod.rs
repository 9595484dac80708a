//! Whose line is open on a stream, what the others have to say meanwhile, and when they get their turn.
//!
//! A source is a PE, whose writes are put together to lines here, or a link, on which lines have been
//! put in order already. The owner of the open line passes on everything at once; others wait in the
//! order in which they came, with complete lines and with such beginnings of lines as are *due*. The
//! beginning of a PE's line becomes due when it has rested for [`REST`], when it is longer than
//! [`LINE_MAX`], when there is no room to keep it ([`Turns::press`]), or when nothing more can come.
//!
//! A beginning that came with a write of whole blocks does not become due by time: the program's
//! buffer ran over in the middle of a line, and nobody has asked for that part to be seen. Its rest
//! is still in the program, so showing the beginning would only get other lines into its middle.

use std::collections::{HashMap, VecDeque};

/// Longest beginning of a line in bytes that is kept back while nobody else's line is open.
pub const LINE_MAX: usize = 64 << 10;

/// How long the beginning of a line rests before it is passed on, in nanoseconds. Twice that is the
/// bound for all that was flushed.
const REST: u64 = 40_000_000;

/// How long a PE may be silent in the middle of a line while others wait, in nanoseconds.
pub const SILENCE: u64 = 1_000_000_000;

/// The time in nanoseconds in which an open line that others wait for has to bring [`FLOW`] bytes.
pub const DRIBBLE: u64 = 5_000_000_000;

/// See [`DRIBBLE`].
pub const FLOW: usize = 64 << 10;

/// Sizes of programs' output buffers are multiples of this.
const BLOCK: usize = 4096;

/// Something to be passed on now, in two parts that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// Who said it.
    pub source: u32,
    /// What the source called it.
    pub tag: u32,
    /// The beginning.
    pub head: &'a [u8],
    /// The rest.
    pub tail: &'a [u8],
}

/// What a source has said and what was not passed on yet.
#[derive(Debug, Default)]
struct Held {
    tag: u32,
    /// Of a PE.
    bytes: Vec<u8>,
    /// How many of them are complete lines.
    complete: usize,
    /// When the line began that has no end yet.
    began: u64,
    /// Whether that beginning is to be passed on as it is.
    due: bool,
    /// Whether somebody will look if it has become due.
    timed: bool,
    /// Of a link.
    parts: VecDeque<(u32, Vec<u8>)>,
    /// When the last of it came.
    last: u64,
    /// Nothing more will come.
    closed: bool,
    /// Whether it stands in the queue.
    waiting: bool,
}

impl Held {
    /// Whether anything is to be passed on when its turn comes.
    fn ready(&self) -> bool {
        self.complete > 0 || !self.parts.is_empty() || (self.due && !self.bytes.is_empty())
    }
}

#[derive(Debug)]
struct Owner {
    source: u32,
    /// When it last brought something.
    last: u64,
    /// When it last had brought [`FLOW`] bytes, and the bytes since then.
    renewed: u64,
    flown: usize,
}

impl Owner {
    /// When the turn is over, if others wait.
    fn end(&self) -> u64 {
        (self.last + SILENCE).min(self.renewed + DRIBBLE)
    }
}

/// The turns of one stream.
#[derive(Debug, Default)]
pub struct Turns {
    owner: Option<Owner>,
    /// Of those who have said something that was not passed on.
    held: HashMap<u32, Held>,
    waiting: VecDeque<u32>,
    /// Beginnings of lines that rest, with the time of the next look at each.
    resting: VecDeque<(u64, u32)>,
    /// Bytes of PEs that are held, and of links.
    bytes: usize,
    relayed: usize,
    /// Nobody takes what is passed on, so that nobody is to blame for being silent.
    blocked: Option<u64>,
}

fn ends_line(bytes: &[u8]) -> bool {
    bytes.last() == Some(&b'\n')
}

impl Turns {
    /// Bytes of PEs that are held back.
    pub fn held(&self) -> usize {
        self.bytes
    }

    /// Bytes that are held back, those of links with them.
    pub fn stored(&self) -> usize {
        self.bytes + self.relayed
    }

    /// Whether nothing is held back at all.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whose line is open.
    pub fn owner(&self) -> Option<u32> {
        self.owner.as_ref().map(|o| o.source)
    }

    /// When [`Turns::tick`] has something to do at the latest.
    pub fn deadline(&self) -> Option<u64> {
        let rest = self.resting.front().map(|&(at, _)| at);
        let owner = self.owner.as_ref();
        let owner = owner.filter(|_| self.blocked.is_none() && !self.waiting.is_empty());
        let end = owner.map(Owner::end);
        [rest, end].into_iter().flatten().min()
    }

    /// A PE wrote something.
    pub fn write(
        &mut self,
        source: u32,
        tag: u32,
        data: &[u8],
        now: u64,
        mut emit: impl FnMut(Said<'_>),
    ) {
        if data.is_empty() {
            return;
        }
        let owns = self.owner() == Some(source);
        let lines = data
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1);
        // Of the owner everything belongs to the open line, until that ends.
        let passes = match (owns, lines) {
            (true, 0) => data.len(),
            _ => lines,
        };
        let free = owns || self.owner.is_none();
        if free && passes == data.len() && !self.held.contains_key(&source) {
            // Most output: nothing is kept back of it, neither before nor after.
            emit(Said {
                source,
                tag,
                head: &[],
                tail: data,
            });
            return self.passed(source, data.len(), ends_line(data), now, emit);
        }
        let held = self.held.entry(source).or_default();
        let line = held.bytes.len() > held.complete;
        if lines > 0 || !line {
            held.began = now;
            held.due = false;
        }
        if lines > 0 {
            held.complete = held.bytes.len() + lines;
        }
        (held.tag, held.last, held.closed) = (tag, now, false);
        held.bytes.extend_from_slice(data);
        self.bytes += data.len();
        let unfinished = held.bytes.len() - held.complete;
        held.due |= (owns && lines == 0) || unfinished > LINE_MAX;
        if unfinished > 0 && !held.timed && !data.len().is_multiple_of(BLOCK) {
            held.timed = true;
            self.resting.push_back((now + REST, source));
        }
        self.ask(source, now, emit);
    }

    /// Something came over a link, on which lines are in order.
    pub fn relay(
        &mut self,
        source: u32,
        tag: u32,
        data: &[u8],
        now: u64,
        mut emit: impl FnMut(Said<'_>),
    ) {
        let free = self.owner().is_none_or(|owner| owner == source);
        if free && !self.held.contains_key(&source) {
            emit(Said {
                source,
                tag,
                head: &[],
                tail: data,
            });
            if !data.is_empty() {
                self.passed(source, data.len(), ends_line(data), now, emit);
            }
            return;
        }
        let held = self.held.entry(source).or_default();
        held.parts.push_back((tag, data.to_vec()));
        self.relayed += data.len();
        (held.last, held.closed) = (now, false);
        self.ask(source, now, emit);
    }

    /// Nothing more comes from a source.
    pub fn close(&mut self, source: u32, now: u64, emit: impl FnMut(Said<'_>)) {
        if let Some(held) = self.held.get_mut(&source) {
            (held.closed, held.due) = (true, true);
            self.ask(source, now, emit);
        } else if self.owner() == Some(source) {
            self.owner = None;
            self.serve(now, emit);
        }
    }

    /// There is no room for what a PE has said, or it has ended: the beginning of its line is due.
    pub fn press(&mut self, source: u32, now: u64, emit: impl FnMut(Said<'_>)) {
        if let Some(held) = self.held.get_mut(&source) {
            held.due = true;
            self.ask(source, now, emit);
        }
    }

    /// Time has passed, and what there was to read by then was read.
    pub fn tick(&mut self, now: u64, mut emit: impl FnMut(Said<'_>)) {
        while let Some(&(at, source)) = self.resting.front()
            && at <= now
        {
            self.resting.pop_front();
            let Some(held) = self.held.get_mut(&source) else {
                continue;
            };
            held.timed = false;
            if held.bytes.len() == held.complete || held.due {
                continue;
            }
            if held.began + REST <= now {
                held.due = true;
                self.ask(source, now, &mut emit);
            } else {
                // Another line than that which was to be looked at.
                held.timed = true;
                self.resting.push_back((held.began + REST, source));
            }
        }
        // Only now: that others write first does not prove that the owner is silent.
        while self.is_over(now) {
            self.owner = None;
            self.serve(now, &mut emit);
        }
    }

    /// Whether the owner's turn is over before its line.
    fn is_over(&self, now: u64) -> bool {
        let owner = self.owner.as_ref();
        owner.is_some_and(|owner| now >= owner.end())
            && !self.waiting.is_empty()
            && self.blocked.is_none()
    }

    /// Nobody takes what is passed on; or somebody does again: the time between does not count.
    pub fn set_blocked(&mut self, blocked: bool, now: u64) {
        if blocked {
            self.blocked.get_or_insert(now);
        } else if let Some(since) = self.blocked.take()
            && let Some(owner) = &mut self.owner
        {
            for at in [&mut owner.last, &mut owner.renewed] {
                *at += now.saturating_sub(since.max(*at));
            }
        }
    }

    /// A source wants its turn, if it has something for it.
    fn ask(&mut self, source: u32, now: u64, mut emit: impl FnMut(Said<'_>)) {
        let free = self.owner().is_none_or(|owner| owner == source);
        let Some(held) = self.held.get_mut(&source).filter(|held| held.ready()) else {
            return;
        };
        if free {
            self.give(source, now, &mut emit);
        } else if !std::mem::replace(&mut held.waiting, true) {
            self.waiting.push_back(source);
        }
        self.serve(now, emit);
    }

    /// Passes on what a source has ready: it is its turn.
    fn give(&mut self, source: u32, now: u64, emit: &mut impl FnMut(Said<'_>)) {
        let Some(mut held) = self.held.remove(&source) else {
            return;
        };
        let (mut passed, mut ends) = (0, true);
        for (tag, part) in held.parts.drain(..) {
            self.relayed -= part.len();
            if !part.is_empty() {
                (passed, ends) = (passed + part.len(), ends_line(&part));
            }
            emit(Said {
                source,
                tag,
                head: &part,
                tail: &[],
            });
        }
        let n = match held.due {
            true => held.bytes.len(),
            false => held.complete,
        };
        if n > 0 {
            let now_said = &held.bytes[..n];
            (passed, ends) = (passed + n, ends_line(now_said));
            emit(Said {
                source,
                tag: held.tag,
                head: now_said,
                tail: &[],
            });
            held.bytes.drain(..n);
            self.bytes -= n;
        }
        let (last, closed) = (held.last, held.closed);
        (held.complete, held.due) = (0, false);
        if !held.bytes.is_empty() {
            held.bytes.shrink_to_fit();
            self.held.insert(source, held);
        }
        if passed > 0 {
            self.note(source, passed, ends || closed, last, now);
        } else if closed && self.owner() == Some(source) {
            self.owner = None;
        }
    }

    /// Notes what was passed on of a source whose turn it is, and looks who is next.
    fn passed(&mut self, source: u32, n: usize, ends: bool, now: u64, emit: impl FnMut(Said<'_>)) {
        self.note(source, n, ends, now, now);
        self.serve(now, emit);
    }

    fn note(&mut self, source: u32, n: usize, ends: bool, last: u64, now: u64) {
        if ends {
            self.owner = None;
            return;
        }
        let owner = self.owner.get_or_insert(Owner {
            source,
            last,
            renewed: now,
            flown: 0,
        });
        owner.last = last;
        owner.flown += n;
        if owner.flown >= FLOW {
            (owner.renewed, owner.flown) = (now, 0);
        }
    }

    /// Gives turns to those who wait, as long as nobody's line keeps them from it.
    fn serve(&mut self, now: u64, mut emit: impl FnMut(Said<'_>)) {
        while self.owner.is_none() {
            let Some(source) = self.waiting.pop_front() else {
                return;
            };
            if let Some(held) = self.held.get_mut(&source) {
                held.waiting = false;
            }
            self.give(source, now, &mut emit);
        }
    }
}

#[cfg(test)]
mod tests;
