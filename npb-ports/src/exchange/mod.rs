//! Messages between fixed partners: one-sided puts into landing slots, each followed by a signal.
//!
//! A stencil or a sweep sends the same messages along the same edges again and again. Each edge
//! gets a *landing slot* on its receiver, room for one message, and a signal word that counts the
//! messages that have landed. Sending is one put with signal; receiving is a wait for the signal.
//! Nobody else is involved: no barrier, no acknowledgement, no connection but to the partner.
//!
//! A slot of a PE has one sender, and holds one message. The sender may send again only when it
//! knows that the last message was taken. The benchmarks know that from the messages that flow the
//! other way, and say in their own words why (where those say it one message late, two slots in
//! turn do). A receiver that finds a later message than the next one panics: results that a race
//! has spoilt may still verify.

#[cfg(test)]
pub(crate) mod model;

use shmem::{Cmp, SignalOp, SymSlice};

/// Numbers in a cache line. Slots and signals have lines of their own, since different PEs write
/// neighbouring ones at the same time.
const LINE: usize = 8;

/// Where messages go to and come from: the slots of a job, or a model of them in tests.
pub trait Partners {
    /// Sends `message` into `slot` of PE `pe`. When this returns, `message` may be changed.
    fn send(&mut self, pe: usize, slot: usize, message: &[f64]);

    /// Waits for the next message in `slot` and copies its first numbers into `message`.
    fn receive(&mut self, slot: usize, message: &mut [f64]);
}

/// Landing slots of this PE, and the counts of what went into those of others. The slots are the
/// same on every PE: same number, same sizes.
#[derive(Debug)]
pub struct Slots {
    all: SymSlice<f64>,
    signals: SymSlice<u64>,
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    /// Where a message to this PE lands.
    room: SymSlice<f64>,
    /// How many have landed.
    signal: SymSlice<u64>,
    /// How many this PE has sent into that slot of `receiver`.
    sent: u64,
    receiver: Option<usize>,
    /// How many this PE has waited for.
    received: u64,
}

impl Slots {
    /// Makes slots of `words[i]` numbers each. All PEs call this together, with the same sizes.
    ///
    /// # Errors
    /// If the symmetric heap has no room for them, on all PEs alike.
    pub fn new(words: &[usize]) -> Result<Self, shmem::Error> {
        let lines = |words: usize| words.div_ceil(LINE) * LINE;
        let total = words.iter().map(|&words| lines(words)).sum();
        // The large part first: an error that names the size to set is to count it.
        let all = shmem::alloc_aligned::<f64>(total, LINE * size_of::<f64>())?;
        let count = words.len() * LINE;
        let signals = match shmem::alloc_aligned::<u64>(count, LINE * size_of::<u64>()) {
            Ok(signals) => signals,
            Err(error) => {
                shmem::free(all)?;
                return Err(error);
            }
        };
        let mut start = 0;
        let slots = words.iter().enumerate().map(|(i, &words)| {
            let room = all.at(start..start + words);
            start += lines(words);
            Slot {
                room,
                signal: signals.elem(i * LINE),
                sent: 0,
                receiver: None,
                received: 0,
            }
        });
        Ok(Self {
            all,
            signals,
            slots: slots.collect(),
        })
    }

    /// Bytes of the symmetric heap that slots of `words[i]` numbers each take on every PE.
    #[must_use]
    pub fn bytes(words: &[usize]) -> usize {
        let lines: usize = words.iter().map(|words| 1 + words.div_ceil(LINE)).sum();
        lines * LINE * size_of::<f64>()
    }

    /// Gives the memory back. All PEs call this together.
    ///
    /// # Errors
    /// If the runtime finds its heap damaged.
    pub fn free(self) -> Result<(), shmem::Error> {
        shmem::free(self.signals)?;
        shmem::free(self.all)
    }
}

impl Partners for Slots {
    /// Sends `message` into `slot` of PE `pe`. When this returns, `message` may be changed.
    ///
    /// # Panics
    /// If the message is longer than the slot, there is no such slot or PE, or this PE has sent
    /// into that slot of another PE before.
    fn send(&mut self, pe: usize, slot: usize, message: &[f64]) {
        let Slot {
            room,
            signal,
            sent,
            receiver,
            ..
        } = &mut self.slots[slot];
        assert_eq!(
            *receiver.get_or_insert(pe),
            pe,
            "slot {slot} was for another PE"
        );
        *sent += 1;
        shmem::put_signal(*room, message, *signal, *sent, SignalOp::Set, pe);
    }

    /// Waits for the next message in `slot` and copies its first numbers into `message`.
    ///
    /// # Panics
    /// If `message` is longer than the slot, or the next message was overwritten by a later one
    /// before it was taken.
    fn receive(&mut self, slot: usize, message: &mut [f64]) {
        let this = &mut self.slots[slot];
        this.received += 1;
        shmem::signal_wait_until(this.signal, Cmp::Ge, this.received);
        this.room.at(..message.len()).read_to(message);
        this.still_there(slot);
    }
}

impl Slot {
    /// Panics if more messages have landed than were waited for.
    fn still_there(&self, slot: usize) {
        let landed = shmem::signal_fetch(self.signal);
        assert!(
            landed == self.received,
            "PE {}: message {} in slot {slot} was overwritten by message {landed} before it was taken",
            shmem::my_pe(),
            self.received,
        );
    }
}
