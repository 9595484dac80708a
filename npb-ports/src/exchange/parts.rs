//! Everybody sends numbers to everybody, as many as it happens to have for each: redistribution.
//!
//! How many numbers a PE has for another one is known only when it has looked at all of them, and may
//! be anything from none to all. So they go in *pieces*, in *rounds*: a PE looks at its numbers block by
//! block and puts each aside for its destination; as soon as another block might not find room with one
//! of them, it sends every other PE a piece, maybe an empty one, and takes a piece of each. Pieces are small enough
//! for the caches, and are read where they land. A landing slot holds a piece, whatever the numbers are.
//!
//! What a PE needs to know besides is in the head of each piece: how many numbers it has, whether its sender
//! has looked at all of its numbers, and how many it has found for lower PEs than the receiver, of which the
//! receiver makes the place of its numbers among those of all.
//!
//! # Why no slot is overwritten
//!
//! A PE takes the pieces of a round after it has sent those of the next one, so that they had time to
//! travel, and those of the last at once. So when it sends those of round u, it has taken those of round u - 2
//! of every PE. Each of these sent them after it had taken those of u - 4. Therefore a slot can be used again
//! after four rounds, with no barrier and no acknowledgement. All PEs have the same number of rounds: the last is
//! the first in which the pieces of all say that nothing follows, as everybody can see.
//!
//! [`Parts::gather`], by which each tells something to each, has one slot for every sender. Between two calls
//! there is an exchange: whoever sent the last piece of it had taken everything of the gathering before.

use super::Partners;
use crate::cpu::prefetch_row;
use std::ops::Range;

/// Words before the numbers of a piece: [`LEN`] and so on.
const HEADER: usize = 4;

/// Where the number of numbers is.
const LEN: usize = 0;
/// Where it says that no numbers follow in later rounds.
const LAST: usize = 1;
/// Where the numbers for lower PEs are counted, in two words, the lower first.
const BELOW: Range<usize> = 2..4;

/// Slots for the pieces of one sender, used in turn: as many as the argument above needs.
const RING: usize = 4;

/// Numbers in a piece: 128 KiB.
const LARGEST: usize = 32 << 10;
/// Numbers that are looked at together, at most, so that a first-level cache holds them, and at least.
const BLOCK: Range<usize> = 256..4096;

/// How large pieces are, which all PEs agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    n_pes: usize,
    /// Numbers of a piece, at most.
    room: usize,
    /// Numbers that are looked at together.
    block: usize,
    /// Words that each tells each.
    words: usize,
}

impl Sizes {
    /// For `numbers` on each of `n_pes` PEs, in the mean, and `words` to [`gather`](Parts::gather).
    ///
    /// If the numbers are for all PEs alike, they fit into pieces of one round, or pieces are as large as the caches allow.
    #[must_use]
    pub fn new(n_pes: usize, numbers: u64, words: usize) -> Self {
        let mean = usize::try_from(numbers / n_pes as u64).unwrap_or(LARGEST);
        let wanted = (mean + mean / 2).min(LARGEST);
        let block = (wanted / 4).clamp(BLOCK.start, BLOCK.end);
        Self {
            n_pes,
            room: wanted + block,
            block,
            words,
        }
    }

    /// The sizes of the landing slots, the same on all PEs; none for a single PE.
    #[must_use]
    pub fn slots(&self) -> Vec<usize> {
        let others = self.n_pes - 1;
        let mut slots = vec![HEADER + self.room; RING * others];
        slots.resize((RING + 1) * others, self.words);
        slots
    }

    /// Bytes that a PE needs for what it puts aside.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.n_pes * (HEADER + self.room) * size_of::<u32>()) as u64
    }
}

/// Numbers put aside for their destinations.
#[derive(Debug)]
pub struct Aside {
    /// For each PE a header and room.
    words: Vec<u32>,
    stride: usize,
    /// Where the next number for each PE goes.
    ends: Vec<usize>,
}

impl Aside {
    fn new(sizes: &Sizes) -> Self {
        let stride = HEADER + sizes.room;
        Self {
            words: vec![0; stride * sizes.n_pes],
            stride,
            ends: (0..sizes.n_pes).map(|pe| pe * stride + HEADER).collect(),
        }
    }

    fn start(&self, pe: usize) -> usize {
        pe * self.stride + HEADER
    }

    fn len(&self, pe: usize) -> usize {
        self.ends[pe] - self.start(pe)
    }

    fn clear(&mut self, pe: usize) {
        self.ends[pe] = self.start(pe);
    }

    fn numbers(&self, pe: usize) -> &[u32] {
        &self.words[self.start(pe)..self.ends[pe]]
    }

    fn has_room(&self, block: usize) -> bool {
        let room = self.stride - HEADER;
        (0..self.ends.len()).all(|pe| self.len(pe) + block <= room)
    }

    /// The room left for PE `pe`, a block at least. What was written there counts when it was
    /// [`add`](Self::add)ed.
    pub fn room(&mut self, pe: usize) -> &mut [u32] {
        &mut self.words[self.ends[pe]..(pe + 1) * self.stride]
    }

    /// The first `count` numbers of [`room`](Self::room) are for PE `pe`.
    pub fn add(&mut self, pe: usize, count: usize) {
        self.ends[pe] += count;
    }

    /// Puts `number` aside for PE `pe`.
    #[inline]
    pub fn push(&mut self, pe: usize, number: u32) {
        let end = &mut self.ends[pe];
        self.words[*end] = number;
        *end += 1;
    }

    /// The message to PE `pe`.
    fn piece(&mut self, pe: usize, last: bool, below: u64) -> &[u32] {
        let (start, len) = (pe * self.stride, self.len(pe));
        let piece = &mut self.words[start..start + HEADER + len];
        piece[LEN] = len as u32;
        piece[LAST] = u32::from(last);
        piece[BELOW].copy_from_slice(&[below as u32, (below >> u32::BITS) as u32]);
        piece
    }
}

/// The exchanges of one PE.
#[derive(Debug)]
pub struct Parts {
    pe: usize,
    sizes: Sizes,
    aside: Aside,
    /// Numbers found for each PE since the exchange began.
    found: Vec<u64>,
    /// Rounds sent, in all exchanges.
    round: usize,
}

impl Parts {
    /// The exchanges of `pe`.
    #[must_use]
    pub fn new(pe: usize, sizes: Sizes) -> Self {
        Self {
            pe,
            sizes,
            aside: Aside::new(&sizes),
            found: vec![0; sizes.n_pes],
            round: 0,
        }
    }

    /// The PE `distance` after this one, all round.
    fn after(&self, distance: usize) -> usize {
        (self.pe + distance) % self.sizes.n_pes
    }

    /// Sends `numbers` to where `split` puts them aside for, block by block, and gives `take` what is for this
    /// PE: its own numbers, and those of others. Every PE calls this.
    ///
    /// Gives how many numbers of all PEs were for lower PEs than this one.
    pub fn exchange(
        &mut self,
        partners: &mut impl Partners<u32>,
        numbers: &[u32],
        mut split: impl FnMut(&[u32], &mut Aside),
        mut take: impl FnMut(&[u32]),
    ) -> u64 {
        self.found.fill(0);
        let mut blocks = numbers.chunks(self.sizes.block).peekable();
        let mut untaken = false;
        loop {
            while let Some(block) = blocks.next_if(|_| self.aside.has_room(self.sizes.block)) {
                split(block, &mut self.aside);
                if let Some(next) = blocks.peek() {
                    prefetch_row(next);
                }
                let own = self.aside.numbers(self.pe);
                self.found[self.pe] += own.len() as u64;
                take(own);
                self.aside.clear(self.pe);
            }
            let last = blocks.peek().is_none();
            self.send(partners, last);
            if untaken {
                self.take(partners, self.round - 2, &mut take);
            }
            untaken = !last;
            if last && let Some(below) = self.take(partners, self.round - 1, &mut take) {
                let own: u64 = self.found[..self.pe].iter().sum();
                return below + own;
            }
        }
    }

    /// A round of pieces to all other PEs.
    fn send(&mut self, partners: &mut impl Partners<u32>, last: bool) {
        let n_pes = self.sizes.n_pes;
        for pe in (0..n_pes).filter(|pe| *pe != self.pe) {
            self.found[pe] += self.aside.len(pe) as u64;
        }
        // Told with the last piece, so that nobody sums for nothing.
        let mut below: u64 = if last {
            self.found[..self.pe].iter().sum()
        } else {
            0
        };
        for distance in 1..n_pes {
            let pe = self.after(distance);
            if last {
                below = if pe == 0 {
                    0
                } else {
                    below + self.found[pe - 1]
                };
            }
            let slot = RING * (n_pes - 1 - distance) + self.round % RING;
            partners.send(pe, slot, self.aside.piece(pe, last, below));
            self.aside.clear(pe);
        }
        self.round += 1;
    }

    /// The pieces of a round from all other PEs. If they are the last of all, gives how many numbers these had for lower
    /// PEs.
    fn take(
        &self,
        partners: &mut impl Partners<u32>,
        round: usize,
        take: &mut impl FnMut(&[u32]),
    ) -> Option<u64> {
        let n_pes = self.sizes.n_pes;
        let mut ended = Some(0);
        // Who comes before this PE sends to it first.
        for distance in (1..n_pes).rev() {
            let slot = RING * (distance - 1) + round % RING;
            partners.take_any(slot, |piece| {
                let (header, numbers) = piece.split_at(HEADER);
                take(&numbers[..header[LEN] as usize]);
                let [low, high] = [header[BELOW.start], header[BELOW.start + 1]].map(u64::from);
                ended = match ended {
                    Some(below) if header[LAST] != 0 => Some(below + low + (high << u32::BITS)),
                    _ => None,
                };
            });
        }
        ended
    }

    /// Tells `words` to every other PE, and gives `take` what each of them tells. Every PE calls this, with as many words, and
    /// calls [`exchange`](Self::exchange) before it does again.
    pub fn gather(
        &mut self,
        partners: &mut impl Partners<u32>,
        words: &[u32],
        mut take: impl FnMut(usize, &[u32]),
    ) {
        let others = self.sizes.n_pes - 1;
        for distance in 1..=others {
            let slot = RING * others + others - distance;
            partners.send(self.after(distance), slot, words);
        }
        for distance in (1..=others).rev() {
            let pe = self.after(distance);
            let slot = RING * others + distance - 1;
            partners.take(slot, words.len(), |words| take(pe, words));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::model::{Event, Mailboxes, Recorder, simulate_orders};
    use crate::random::Lcg;

    /// Pieces of `room`, so that few numbers take many rounds.
    fn small(n_pes: usize, room: usize) -> Sizes {
        Sizes {
            n_pes,
            room,
            block: 3,
            words: 2,
        }
    }

    /// PEs with different numbers of numbers, of which n are for PE n mod P. Each gets its own, all of them, and knows how many were
    /// for lower ones.
    fn exchanges(sizes: Sizes, numbers: impl Fn(usize) -> Vec<u32> + Sync) {
        let n_pes = sizes.n_pes;
        let destination = |number: u32| number as usize % n_pes;
        let all: Vec<u32> = (0..n_pes).flat_map(&numbers).collect();
        Mailboxes::new(n_pes, &sizes.slots()).run(|pe, mut mailbox| {
            let mut parts = Parts::new(pe, sizes);
            for time in 0..3 {
                let mut told = vec![0; n_pes];
                parts.gather(&mut mailbox, &[time, 7 * pe as u32], |from, words| {
                    assert_eq!(words[0], time);
                    told[from] = words[1];
                });
                let others = (0..n_pes).map(|other| if other == pe { 0 } else { 7 * other as u32 });
                assert!(told.into_iter().eq(others));

                let mut mine = Vec::new();
                let below = parts.exchange(
                    &mut mailbox,
                    &numbers(pe),
                    |block, aside| {
                        for &number in block {
                            aside.push(destination(number), number);
                        }
                    },
                    |taken| mine.extend_from_slice(taken),
                );
                let lower = all.iter().filter(|number| destination(**number) < pe);
                assert_eq!(below, lower.count() as u64);
                let mut expected = all.clone();
                expected.retain(|number| destination(*number) == pe);
                expected.sort_unstable();
                mine.sort_unstable();
                assert_eq!(mine, expected);
            }
        });
    }

    #[test]
    fn everybody_gets_all_that_is_for_it() {
        for n_pes in [1, 2, 3, 5, 8] {
            for room in [3, 4, 10, 1000] {
                let sizes = small(n_pes, room);
                exchanges(sizes, |pe| {
                    let mut random = Lcg::new(2 * pe as u64 + 1);
                    let len = [0, 50, 1, 101][pe % 4];
                    (0..len).map(|_| (random.next_f64() * 1e6) as u32).collect()
                });
                // All are for one PE, and only one PE has any.
                exchanges(sizes, |pe| vec![4; 10 * pe]);
                exchanges(sizes, |pe| (0..if pe == 1 { 100 } else { 0 }).collect());
            }
        }
    }

    #[test]
    fn room_is_for_a_block_at_least() {
        for n_pes in [1, 2, 3, 64, 1024] {
            for numbers in [0, 1, 100, 1 << 14, 1 << 23, 1 << 35] {
                let sizes = Sizes::new(n_pes, numbers, 5);
                assert!(sizes.block <= sizes.room && sizes.room <= LARGEST + BLOCK.end);
                // What is for all alike goes in one round, or in large pieces.
                let mean = numbers as usize / n_pes;
                assert!(sizes.room >= mean + sizes.block || sizes.room >= LARGEST);
                assert_eq!(sizes.slots().len(), 5 * (n_pes - 1));
            }
        }
    }

    /// Notes what a PE does in exchanges of `rounds` rounds, as one that sees others send numbers until the end.
    struct Script {
        recorder: Recorder,
        others: usize,
        rounds: usize,
        /// Pieces taken in this exchange.
        taken: usize,
    }

    impl Partners<u32> for Script {
        fn send(&mut self, pe: usize, slot: usize, message: &[u32]) {
            self.recorder.send(pe, slot, message);
        }

        fn take<R>(&mut self, slot: usize, len: usize, take: impl FnOnce(&[u32]) -> R) -> R {
            self.taken = 0;
            self.recorder.take(slot, len, take)
        }

        fn take_any<R>(&mut self, slot: usize, take: impl FnOnce(&[u32]) -> R) -> R {
            let mut piece = [0; HEADER];
            piece[LAST] = u32::from(self.taken / self.others + 1 == self.rounds);
            self.taken += 1;
            self.recorder.take_any(slot, |_: &[u32]| take(&piece))
        }
    }

    #[test]
    fn who_sends_knows_that_the_slot_is_free() {
        for n_pes in [2, 3, 5] {
            for rounds in [1_usize, 2, 5, 9] {
                // A round takes three numbers for the next PE. PEs have some for all rounds, for one, for the first half.
                let scripts: Vec<Vec<Event>> = (0..n_pes)
                    .map(|pe| {
                        let full = [rounds, 1, rounds.div_ceil(2)][pe % 3];
                        let mut script = Script {
                            recorder: Recorder::default(),
                            others: n_pes - 1,
                            rounds,
                            taken: 0,
                        };
                        let mut parts = Parts::new(pe, small(n_pes, 3));
                        let next = (pe + 1) % n_pes;
                        for _ in 0..3 {
                            parts.gather(&mut script, &[0; 2], |_, _| ());
                            let split = |block: &[u32], aside: &mut Aside| {
                                block.iter().for_each(|number| aside.push(next, *number));
                            };
                            parts.exchange(&mut script, &vec![0; 3 * full], split, |_| ());
                            assert_eq!(script.taken, rounds * script.others);
                        }
                        script.recorder.0
                    })
                    .collect();
                simulate_orders(&scripts, 30);
            }
        }
    }
}
