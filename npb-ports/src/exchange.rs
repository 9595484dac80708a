//! Messages between fixed partners: one-sided puts into landing slots, each followed by a signal.
//!
//! A stencil or a sweep sends the same messages along the same edges again and again. Each edge
//! gets a *landing slot* on its receiver, room for one message, and a signal word that counts the
//! messages that have landed. Sending is one put with signal; receiving is a wait for the signal.
//! Nobody else is involved: no barrier, no acknowledgement, no connection but to the partner.
//!
//! A slot has one sender. It may send again only when it knows that the last message was taken;
//! the benchmarks know that from the messages that flow the other way, and say in their own words
//! why (where those say it one message late, two slots in turn do).

use shmem::{Cmp, SignalOp, SymSlice};

/// Landing slots of this PE, and the counts of what went into those of others. The slots are the
/// same on every PE: same number, same sizes.
#[derive(Debug)]
pub struct Slots {
    rooms: Vec<SymSlice<f64>>,
    signals: SymSlice<u64>,
    sent: Vec<u64>,
    received: Vec<u64>,
}

impl Slots {
    /// Makes slots of `words[i]` numbers each. All PEs call this together, with the same sizes.
    ///
    /// # Errors
    /// If the symmetric heap has no room for them.
    pub fn new(words: &[usize]) -> Result<Self, shmem::Error> {
        let all = shmem::alloc::<f64>(words.iter().sum())?;
        let signals = shmem::alloc::<u64>(words.len())?;
        let mut start = 0;
        let rooms = words.iter().map(|&len| {
            start += len;
            all.at(start - len..start)
        });
        Ok(Self {
            rooms: rooms.collect(),
            signals,
            sent: vec![0; words.len()],
            received: vec![0; words.len()],
        })
    }

    /// Sends `message` into `slot` of PE `pe`. When this returns, `message` may be changed. This
    /// PE sends into that slot of no other PE.
    ///
    /// # Panics
    /// If the message is longer than the slot, or there is no such slot or PE.
    pub fn send(&mut self, pe: usize, slot: usize, message: &[f64]) {
        self.sent[slot] += 1;
        shmem::put_signal(
            self.rooms[slot],
            message,
            self.signals.elem(slot),
            self.sent[slot],
            SignalOp::Set,
            pe,
        );
    }

    /// Waits for the next message in `slot` and copies its first numbers into `message`.
    ///
    /// # Panics
    /// If `message` is longer than the slot.
    pub fn receive(&mut self, slot: usize, message: &mut [f64]) {
        self.received[slot] += 1;
        shmem::signal_wait_until(self.signals.elem(slot), Cmp::Ge, self.received[slot]);
        self.rooms[slot].read_to(message);
    }

    /// Gives the memory back. All PEs call this together.
    ///
    /// # Errors
    /// If the runtime finds its heap damaged.
    pub fn free(self) -> Result<(), shmem::Error> {
        shmem::free(self.signals)?;
        // The rooms are parts of one allocation, whose handle begins where the first one does.
        match self.rooms.first() {
            Some(first) => shmem::free(*first),
            None => Ok(()),
        }
    }
}
