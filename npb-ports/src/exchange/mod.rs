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
pub mod parts;

use crate::cpu::LINE;
use shmem::{Cmp, Datum, SignalOp, SymSlice};

/// Signals are so many words apart: they have lines of their own, as slots have, since different PEs
/// write neighbouring ones at the same time.
const SIGNAL_STRIDE: usize = LINE / size_of::<u64>();

/// Where messages go to and come from: the slots of a job, or a model of them in tests.
pub trait Partners<T: Datum = f64> {
    /// Sends `message` into `slot` of PE `pe`. When this returns, `message` may be changed.
    fn send(&mut self, pe: usize, slot: usize, message: &[T]);

    /// Waits for the next message in `slot` and gives the first `len` elements to `take`, where they
    /// landed: for messages that are added to something, or scattered, and need no copy first.
    fn take<R>(&mut self, slot: usize, len: usize, take: impl FnOnce(&[T]) -> R) -> R;

    /// Waits for the next message in `slot`, whose length it tells itself, and gives all elements of the slot
    /// to `take`: those of the message, and, if it is shorter, maybe some that mean nothing.
    fn take_any<R>(&mut self, slot: usize, take: impl FnOnce(&[T]) -> R) -> R;

    /// Waits for the next message in `slot` and copies its first elements into `message`.
    fn receive(&mut self, slot: usize, message: &mut [T]) {
        self.take(slot, message.len(), |landed| {
            message.copy_from_slice(landed)
        });
    }
}

/// Landing slots of this PE, and the counts of what went into those of others. The slots are the
/// same on every PE: same number, same sizes.
#[derive(Debug)]
pub struct Slots<T: Datum = f64> {
    all: SymSlice<T>,
    signals: SymSlice<u64>,
    slots: Vec<Slot<T>>,
}

#[derive(Debug)]
struct Slot<T: Datum> {
    /// Where a message to this PE lands.
    room: SymSlice<T>,
    /// How many have landed.
    signal: SymSlice<u64>,
    /// How many this PE has sent into that slot of `receiver`.
    sent: u64,
    receiver: Option<usize>,
    /// How many this PE has waited for.
    received: u64,
}

impl<T: Datum> Slots<T> {
    /// Elements of a cache line: a size that divides one, as those of numbers do.
    const ELEMENTS: usize = {
        assert!(LINE.is_multiple_of(size_of::<T>()));
        LINE / size_of::<T>()
    };

    /// Makes slots of `lengths[i]` elements each. All PEs call this together, with the same lengths.
    ///
    /// # Errors
    /// If the symmetric heap has no room for them, on all PEs alike.
    pub fn new(lengths: &[usize]) -> Result<Self, shmem::Error> {
        let whole_lines = |len: usize| len.next_multiple_of(Self::ELEMENTS);
        let total = lengths.iter().map(|&len| whole_lines(len)).sum();
        // The large part first: an error that names the size to set is to count it.
        let all = shmem::alloc_aligned::<T>(total, LINE)?;
        let count = lengths.len() * SIGNAL_STRIDE;
        let signals = match shmem::alloc_aligned::<u64>(count, LINE) {
            Ok(signals) => signals,
            Err(error) => {
                shmem::free(all)?;
                return Err(error);
            }
        };
        let mut start = 0;
        let slots = lengths.iter().enumerate().map(|(i, &len)| {
            let room = all.at(start..start + len);
            start += whole_lines(len);
            Slot {
                room,
                signal: signals.elem(i * SIGNAL_STRIDE),
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

    /// Bytes of the symmetric heap that slots of `lengths[i]` elements each take on every PE.
    #[must_use]
    pub fn bytes(lengths: &[usize]) -> usize {
        let lines = |len: &usize| 1 + len.div_ceil(Self::ELEMENTS);
        lengths.iter().map(lines).sum::<usize>() * LINE
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

impl<T: Datum> Partners<T> for Slots<T> {
    /// Sends `message` into `slot` of PE `pe`. When this returns, `message` may be changed.
    ///
    /// # Panics
    /// If the message is longer than the slot, there is no such slot or PE, or this PE has sent
    /// into that slot of another PE before.
    fn send(&mut self, pe: usize, slot: usize, message: &[T]) {
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

    /// Waits for the next message in `slot` and gives its first `len` elements to `take`.
    ///
    /// # Panics
    /// If the slot has less than `len` elements, or the message was overwritten by a later one
    /// before `take` returned.
    #[allow(unsafe_code)]
    fn take<R>(&mut self, slot: usize, len: usize, take: impl FnOnce(&[T]) -> R) -> R {
        let this = &mut self.slots[slot];
        this.received += 1;
        shmem::signal_wait_until(this.signal, Cmp::Ge, this.received);
        let landed = this.room.at(..len);
        // SAFETY: the memory is not freed while `self` is borrowed, and any bytes are values. The slot's one sender writes
        // again when it knows that this message was taken; a benchmark that has that wrong is ended below.
        let taken = take(unsafe { landed.as_slice() });
        this.still_there(slot);
        taken
    }

    fn take_any<R>(&mut self, slot: usize, take: impl FnOnce(&[T]) -> R) -> R {
        self.take(slot, self.slots[slot].room.len(), take)
    }
}

impl<T: Datum> Slot<T> {
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
