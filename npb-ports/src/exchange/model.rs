//! Landing slots without a job, for tests of any benchmark: PEs as threads, or as scripts that a
//! simulation runs in the orders that it likes.

use super::Partners;
use crate::random::Lcg;
use shmem::Datum;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

/// Landing slots of PEs that are threads. A message that is overwritten is a panic.
pub(crate) struct Mailboxes<T = f64> {
    sizes: Vec<usize>,
    pes: Vec<Rooms<T>>,
    /// A PE has failed: no use in waiting for it.
    failed: AtomicBool,
}

struct Rooms<T> {
    messages: Mutex<Vec<Option<Vec<T>>>>,
    landed: Condvar,
}

/// The slots as one PE sees them.
pub(crate) struct Mailbox<'a, T = f64> {
    all: &'a Mailboxes<T>,
    pe: usize,
}

impl<T: Datum + Send> Mailboxes<T> {
    /// Slots of `sizes[i]` elements on each of `n_pes` PEs.
    pub(crate) fn new(n_pes: usize, sizes: &[usize]) -> Self {
        let rooms = || Rooms {
            messages: Mutex::new(sizes.iter().map(|_| None).collect()),
            landed: Condvar::new(),
        };
        Self {
            sizes: sizes.to_vec(),
            pes: std::iter::repeat_with(rooms).take(n_pes).collect(),
            failed: AtomicBool::new(false),
        }
    }

    /// Runs `program` on every PE, a thread each, and gives what they return. No message may be
    /// left in a slot.
    pub(crate) fn run<R: Send>(
        &self,
        program: impl Fn(usize, Mailbox<'_, T>) -> R + Sync,
    ) -> Vec<R> {
        let results = std::thread::scope(|scope| {
            let start = |pe| {
                let (program, mailbox) = (&program, Mailbox { all: self, pe });
                scope.spawn(move || program(pe, mailbox))
            };
            let threads: Vec<_> = (0..self.pes.len()).map(start).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        for (pe, rooms) in self.pes.iter().enumerate() {
            let left = rooms.messages.lock().unwrap();
            let left = left.iter().position(Option::is_some);
            assert_eq!(
                left, None,
                "slot of PE {pe} with a message that nobody took"
            );
        }
        results
    }
}

impl<T: Datum> Partners<T> for Mailbox<'_, T> {
    fn send(&mut self, pe: usize, slot: usize, message: &[T]) {
        let size = self.all.sizes[slot];
        assert!(message.len() <= size, "slot {slot} is too small");
        let rooms = &self.all.pes[pe];
        let old = rooms.messages.lock().unwrap()[slot].replace(message.to_vec());
        assert!(old.is_none(), "slot {slot} of PE {pe} is taken");
        rooms.landed.notify_all();
    }

    fn take<R>(&mut self, slot: usize, len: usize, take: impl FnOnce(&[T]) -> R) -> R {
        self.take_any(slot, |landed| take(&landed[..len]))
    }

    fn take_any<R>(&mut self, slot: usize, take: impl FnOnce(&[T]) -> R) -> R {
        let rooms = &self.all.pes[self.pe];
        let mut messages = rooms.messages.lock().unwrap();
        loop {
            if let Some(landed) = messages[slot].take() {
                drop(messages);
                return take(&landed);
            }
            assert!(!self.all.failed.load(Ordering::SeqCst), "another PE failed");
            messages = rooms.landed.wait(messages).unwrap();
        }
    }
}

impl<T> Drop for Mailbox<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.all.failed.store(true, Ordering::SeqCst);
            for rooms in &self.all.pes {
                // Who has looked at `failed` before this waits by now, and is woken.
                drop(rooms.messages.lock());
                rooms.landed.notify_all();
            }
        }
    }
}

/// What a PE does with slots.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Sends into a slot of another PE.
    Send {
        /// Whose slot.
        pe: usize,
        /// Which.
        slot: usize,
    },
    /// Waits for a message in a slot of its own.
    Receive {
        /// Which.
        slot: usize,
    },
}

/// Notes what a PE does, in program order, and delivers ones: what benchmarks send and wait for
/// does not depend on the contents of messages.
#[derive(Debug, Default)]
pub(crate) struct Recorder(pub(crate) Vec<Event>);

impl<T: Datum + From<u8>> Partners<T> for Recorder {
    fn send(&mut self, pe: usize, slot: usize, _: &[T]) {
        self.0.push(Event::Send { pe, slot });
    }

    fn take<R>(&mut self, slot: usize, len: usize, take: impl FnOnce(&[T]) -> R) -> R {
        self.0.push(Event::Receive { slot });
        take(&vec![T::from(1); len])
    }

    fn take_any<R>(&mut self, slot: usize, take: impl FnOnce(&[T]) -> R) -> R {
        self.take(slot, 1, take)
    }
}

/// A slot in a simulation.
#[derive(Clone, Default)]
struct Room {
    /// What the sender knew of all PEs' progress when it sent the message that is in the slot.
    message: Option<Vec<usize>>,
    /// The receiver's progress when it took the last message.
    taken: Option<usize>,
}

/// Runs what each PE does (`scripts`) in the order that `choose` picks among the PEs that can go
/// on.
///
/// # Panics
/// If a message is sent into a slot that holds one, or before its sender can know that the last
/// one was taken, which makes the outcome the same for every order; if PEs wait for ever, or
/// messages are left.
pub(crate) fn simulate(scripts: &[Vec<Event>], mut choose: impl FnMut(&[usize]) -> usize) {
    let slots = scripts.iter().flatten().map(|event| match event {
        Event::Send { slot, .. } | Event::Receive { slot } => slot + 1,
    });
    let slots = slots.max().unwrap_or(0);
    let mut rooms = vec![vec![Room::default(); slots]; scripts.len()];
    // knows[a][b]: events of b that come before the next event of a in every order.
    let mut knows = vec![vec![0; scripts.len()]; scripts.len()];
    loop {
        let unfinished: Vec<_> = (0..scripts.len())
            .filter(|&pe| knows[pe][pe] < scripts[pe].len())
            .collect();
        let can_go_on = |pe: &usize| match scripts[*pe][knows[*pe][*pe]] {
            Event::Send { .. } => true,
            Event::Receive { slot } => rooms[*pe][slot].message.is_some(),
        };
        let ready: Vec<_> = unfinished.iter().copied().filter(can_go_on).collect();
        if ready.is_empty() {
            assert!(unfinished.is_empty(), "PEs {unfinished:?} wait for ever");
            let rest = rooms.iter().flatten().filter(|room| room.message.is_some());
            assert_eq!(rest.count(), 0, "messages that nobody took");
            return;
        }
        let pe = ready[choose(&ready) % ready.len()];
        let event = scripts[pe][knows[pe][pe]];
        knows[pe][pe] += 1;
        match event {
            Event::Send { pe: to, slot } => {
                let room = &mut rooms[to][slot];
                assert!(
                    room.message.is_none(),
                    "PE {pe} overwrites slot {slot} of PE {to}"
                );
                assert!(
                    room.taken.is_none_or(|taken| knows[pe][to] >= taken),
                    "PE {pe} can't know that slot {slot} of PE {to} is free"
                );
                room.message = Some(knows[pe].clone());
            }
            Event::Receive { slot } => {
                let room = &mut rooms[pe][slot];
                let sender = room.message.take().expect("only ready PEs are chosen");
                for (mine, theirs) in knows[pe].iter_mut().zip(sender) {
                    *mine = theirs.max(*mine);
                }
                room.taken = Some(knows[pe][pe]);
            }
        }
    }
}

/// What each of `n_pes` PEs sends and waits for in `program`.
pub(crate) fn scripts(n_pes: usize, program: impl Fn(usize, &mut Recorder)) -> Vec<Vec<Event>> {
    let script = |pe| {
        let mut recorder = Recorder::default();
        program(pe, &mut recorder);
        recorder.0
    };
    (0..n_pes).map(script).collect()
}

/// [`simulate`] in so many orders.
pub(crate) fn simulate_orders(scripts: &[Vec<Event>], orders: u64) {
    (0..orders).for_each(|seed| simulate_seeded(scripts, seed));
}

/// [`simulate`] in an order that `seed` makes: PEs go on for one event, for some, or as far as they
/// get before another one is drawn. With some seeds one PE moves only when no other can. The seed is
/// printed if that fails.
fn simulate_seeded(scripts: &[Vec<Event>], seed: u64) {
    struct Say(u64);
    impl Drop for Say {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the order was that of seed {}", self.0);
            }
        }
    }
    let _say = Say(seed);
    let mut random = Lcg::new(2 * seed + 1);
    // Of a small seed the first number is near 0.
    random.next_f64();
    let mut below = move |n: usize| (random.next_f64() * n as f64) as usize;
    let patience = [1, 10, usize::MAX][below(3)];
    let last = (below(3) == 0).then(|| below(scripts.len()));
    let (mut favourite, mut left) = (0, 0_usize);
    simulate(scripts, |ready| {
        match ready.iter().position(|&pe| pe == favourite) {
            Some(at) if left > 0 => {
                left -= 1;
                at
            }
            _ => {
                let drawn = below(ready.len());
                let at = match last == Some(ready[drawn]) {
                    true => (drawn + 1) % ready.len(),
                    false => drawn,
                };
                favourite = ready[at];
                left = match last == Some(favourite) {
                    true => 0,
                    false => patience - 1,
                };
                at
            }
        }
    });
}

#[test]
#[should_panic(expected = "slot 0 of PE 1")]
fn a_sender_that_hears_nothing_overwrites() {
    let ahead = vec![Event::Send { pe: 1, slot: 0 }; 2];
    let behind = vec![Event::Receive { slot: 0 }; 2];
    simulate_orders(&[ahead, behind], 100);
}

#[test]
#[should_panic(expected = "can't know that slot 0 of PE 1 is free")]
fn a_sender_that_was_lucky_is_found_out() {
    let ahead = vec![Event::Send { pe: 1, slot: 0 }; 2];
    let behind = vec![Event::Receive { slot: 0 }; 2];
    simulate(&[ahead, behind], |ready| ready.len() - 1);
}
