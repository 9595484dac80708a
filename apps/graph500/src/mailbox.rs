//! Messages to vertices of other nodes, in packets that are put into mailboxes of their owners.
//!
//! A PE's mailbox is a ring of slots in its symmetric heap. A sender gathers messages for each PE in a packet. With the
//! first message it asks for a slot by a fetch-add on the owner's count of slots given away, and goes on; when the packet
//! is full the answer has come, and the packet is put there with the slot's flag behind it. The owner empties the slots in the
//! order in which they were given away.
//!
//! * **Room.** A sender has at most [`CREDIT`] slots at a time that an owner has not emptied yet: the owner tells it of
//!   each that it has. A ring has as many slots as all senders together may have, so that a slot that is given away
//!   is always empty.
//! * **Nobody waits with a slot in hand.** A slot that its sender does not fill holds up all behind it, and with them their
//!   senders. Who has no slot to spare goes on without one until the packet is full. Then it sends all packets for which it
//!   has slots, full or not, before it waits for one; and while it waits, it empties its own mailbox.
//! * **End of a level.** Who enters the barrier at its end has sent all packets, and so got slots for them. When all have, the
//!   count of slots given away says what has to come; nobody waits for acknowledgements.
//! * **Waiting.** All that is waited for (flags of slots, packets emptied by others, rounds of the barrier) are words of one
//!   array, the [`Bells`], on any of which the runtime can sleep.

use crate::arrival;
use crate::node::Nodes;
use shmem::{Cmp, Request, SignalOp, SymSlice};

/// Slots of an owner that a sender may have at a time.
pub const CREDIT: usize = 4;

/// Words of a packet: how many messages it has and who sends it, and the messages. 4 KiB, which a software HCA and a
/// device both move in one piece, and which is copied when it is put, so that its buffer is free at once.
pub const PACKET: usize = 512;

/// What a vertex is told: that it has been reached, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The vertex, as its place among its owner's.
    pub local: u32,
    /// The vertex that it was reached from.
    pub from: u32,
}

impl Message {
    fn pack(self) -> u64 {
        u64::from(self.local) << 32 | u64::from(self.from)
    }

    fn unpack(word: u64) -> Self {
        Self {
            local: (word >> 32) as u32,
            from: word as u32,
        }
    }
}

/// The words that PEs signal each other by, and sleep on.
#[derive(Debug)]
pub struct Bells {
    words: SymSlice<u64>,
    rounds: usize,
    n_pes: usize,
    /// Which words are not waited for: between two waits, all.
    skip: Vec<bool>,
    values: Vec<u64>,
}

impl Bells {
    /// With flags for `slots` slots. Collective.
    ///
    /// # Errors
    /// If the symmetric heap has no room.
    pub fn new(n_pes: usize, slots: usize) -> Result<Self, shmem::Error> {
        let rounds = arrival::rounds(n_pes);
        let len = rounds + n_pes + slots;
        Ok(Self {
            words: shmem::alloc(len)?,
            rounds,
            n_pes,
            skip: vec![true; len],
            values: vec![0; len],
        })
    }

    /// Those of the barrier.
    #[must_use]
    pub fn of_barrier(&self) -> SymSlice<u64> {
        self.words.at(..self.rounds)
    }

    /// Where it counts how many packets a PE has emptied.
    fn emptied_by(&self, pe: usize) -> usize {
        self.rounds + pe
    }

    /// The flag of a slot.
    fn flag(&self, slot: usize) -> usize {
        self.rounds + self.n_pes + slot
    }

    fn at(&self, word: usize) -> SymSlice<u64> {
        self.words.elem(word)
    }

    /// Sleeps until one of these words is at least as large as its value.
    fn wait(&mut self, awaited: impl Iterator<Item = (usize, u64)> + Clone) {
        for (word, value) in awaited.clone() {
            self.skip[word] = false;
            self.values[word] = value;
        }
        shmem::wait_until_any(self.words, Some(&self.skip), Cmp::Ge, &self.values);
        for (word, _) in awaited {
            self.skip[word] = true;
        }
    }
}

/// A packet that is being filled.
#[derive(Debug)]
struct Outgoing {
    /// The first word is for the header.
    words: Vec<u64>,
    /// The answer to the question for a slot, if it has been asked.
    slot: Option<Request<'static, shmem::Old<u64>>>,
    /// Slots that were asked for so far.
    asked: u64,
}

/// This PE's mailbox, and its packets for those of other nodes.
#[derive(Debug)]
pub struct Mailbox {
    bells: Bells,
    /// Slots of every PE given away so far.
    given: SymSlice<u64>,
    ring: SymSlice<u64>,
    slots: usize,
    /// Packets that this PE has emptied.
    emptied: u64,
    /// By PE; empty for those of this node.
    outgoing: Vec<Option<Outgoing>>,
}

impl Mailbox {
    /// Bytes of the symmetric heap that it takes among so many PEs of which `far` are on other nodes.
    #[must_use]
    pub fn bytes(n_pes: usize, far: usize) -> usize {
        let slots = slots(far);
        8 * (slots * PACKET + slots + n_pes + arrival::rounds(n_pes) + 1)
    }

    /// Collective. The number of PEs on other nodes may differ from PE to PE: memory is that of the largest.
    ///
    /// # Errors
    /// If the symmetric heap has no room.
    pub fn new(nodes: &Nodes) -> Result<Self, shmem::Error> {
        let n_pes = shmem::n_pes();
        let most = shmem::Team::world().max(nodes.far().count());
        let slots = slots(most);
        let mut outgoing: Vec<_> = std::iter::repeat_with(|| None).take(n_pes).collect();
        for pe in nodes.far() {
            outgoing[pe] = Some(Outgoing {
                words: Vec::with_capacity(PACKET),
                slot: None,
                asked: 0,
            });
        }
        Ok(Self {
            bells: Bells::new(n_pes, slots)?,
            given: shmem::alloc(1)?,
            ring: shmem::alloc(slots * PACKET)?,
            slots,
            emptied: 0,
            outgoing,
        })
    }

    /// The words of the barrier.
    #[must_use]
    pub fn barrier_words(&self) -> SymSlice<u64> {
        self.bells.of_barrier()
    }

    /// Sends a message to a PE of another node, sooner or later; `receive` is called with what comes in meanwhile.
    ///
    /// # Panics
    /// If the PE is on this node.
    #[inline]
    pub fn send(&mut self, message: Message, pe: usize, receive: impl FnMut(Message)) {
        let outgoing = self.outgoing[pe].as_mut().expect("a PE of another node");
        if outgoing.words.is_empty() {
            outgoing.words.push(0);
            self.ask(pe);
        }
        let outgoing = self.outgoing[pe].as_mut().expect("a PE of another node");
        outgoing.words.push(message.pack());
        if outgoing.words.len() == PACKET {
            self.flush(pe, receive);
        }
    }

    /// Sends what is left in packets that are not full.
    pub fn flush_all(&mut self, mut receive: impl FnMut(Message)) {
        for pe in 0..self.outgoing.len() {
            if matches!(&self.outgoing[pe], Some(out) if !out.words.is_empty()) {
                self.flush(pe, &mut receive);
            }
        }
    }

    #[cold]
    fn flush(&mut self, pe: usize, mut receive: impl FnMut(Message)) {
        self.drain(&mut receive);
        if !self.has_slot(pe) && !self.ask(pe) {
            for other in 0..self.outgoing.len() {
                if self.has_slot(other) {
                    self.put(other);
                }
            }
            while !self.ask(pe) {
                if let Some(emptied) = self.lacks(pe) {
                    let packet = self.next_packet();
                    self.bells.wait([emptied, packet].into_iter());
                }
                self.drain(&mut receive);
            }
        }
        self.put(pe);
    }

    fn has_slot(&self, pe: usize) -> bool {
        matches!(&self.outgoing[pe], Some(out) if out.slot.is_some())
    }

    /// What a PE has to empty before this one may have another of its slots: the word that tells, and its value then. None
    /// if there is one to spare.
    fn lacks(&self, pe: usize) -> Option<(usize, u64)> {
        let asked = self.outgoing[pe].as_ref()?.asked;
        let needed = (asked + 1).checked_sub(CREDIT as u64)?;
        let emptied = self.bells.emptied_by(pe);
        (!shmem::test(self.bells.at(emptied), Cmp::Ge, needed)).then_some((emptied, needed))
    }

    /// Asks for a slot, if there is one to spare, and says whether.
    #[cold]
    fn ask(&mut self, pe: usize) -> bool {
        let spare = self.lacks(pe).is_none();
        if spare && let Some(out) = &mut self.outgoing[pe] {
            out.asked += 1;
            out.slot = Some(shmem::start().atomic_fetch_add(self.given, 1, pe));
        }
        spare
    }

    /// Puts a packet into its slot.
    fn put(&mut self, pe: usize) {
        let Some(out) = &mut self.outgoing[pe] else {
            return;
        };
        let slot = out.slot.take().map(Request::wait);
        let slot = slot.expect("a slot that was asked for");
        let place = slot as usize % self.slots;
        out.words[0] = (out.words.len() as u64) << 32 | shmem::my_pe() as u64;
        let room = self.ring.at(place * PACKET..(place + 1) * PACKET);
        let flag = self.bells.at(self.bells.flag(place));
        // The flag of a slot is the number of the packet in it, from 1: it only grows.
        shmem::put_signal(room, &out.words, flag, slot + 1, SignalOp::Set, pe);
        out.words.clear();
    }

    /// The word that tells of the next packet, and the value that it has then.
    fn next_packet(&self) -> (usize, u64) {
        let slot = self.emptied as usize % self.slots;
        (self.bells.flag(slot), self.emptied + 1)
    }

    /// Empties the slots whose packets have come.
    pub fn drain(&mut self, mut receive: impl FnMut(Message)) {
        let mut packet = [0; PACKET];
        loop {
            let (flag, number) = self.next_packet();
            if !shmem::test(self.bells.at(flag), Cmp::Ge, number) {
                return;
            }
            let start = self.emptied as usize % self.slots * PACKET;
            let header = self.ring.read(start);
            let (len, sender) = ((header >> 32) as usize, header as u32 as usize);
            let words = &mut packet[1..len];
            self.ring.at(start + 1..start + len).read_to(words);
            // It has been copied: the slot is empty.
            self.emptied += 1;
            let told = self.bells.at(self.bells.emptied_by(shmem::my_pe()));
            shmem::signal_add(told, 1, sender);
            words
                .iter()
                .for_each(|&word| receive(Message::unpack(word)));
        }
    }

    /// Whether packets have yet to come. Only what all PEs know of: after a barrier that they have entered behind
    /// [`flush_all`](Self::flush_all).
    #[must_use]
    pub fn expects_more(&self) -> bool {
        shmem::atomic_fetch(self.given, shmem::my_pe()) > self.emptied
    }

    /// Sleeps until a packet has come, or a word of the barrier is at least as large as its value.
    pub fn wait(&mut self, barrier: Option<(usize, u64)>) {
        let packet = self.next_packet();
        self.bells.wait(std::iter::once(packet).chain(barrier));
    }

    /// Gives the room back. Collective.
    ///
    /// # Errors
    /// If the runtime finds its heap damaged.
    pub fn free(self) -> Result<(), shmem::Error> {
        shmem::free(self.ring)?;
        shmem::free(self.given)?;
        shmem::free(self.bells.words)
    }
}

fn slots(far: usize) -> usize {
    far * CREDIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_words() {
        let message = Message {
            local: 0x8000_0001,
            from: u32::MAX,
        };
        assert_eq!(Message::unpack(message.pack()), message);
    }

    #[test]
    fn a_mailbox_is_small() {
        assert!(Mailbox::bytes(16, 12) < 256 << 10);
        assert!(Mailbox::bytes(1, 0) < 64);
    }
}
