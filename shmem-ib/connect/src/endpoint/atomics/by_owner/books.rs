//! The books on atomics that owners execute: of a requester, how many of its requests an owner has
//! still to answer; of an owner, which answers wait for room in a send queue.
//!
//! Pure: no I/O, no clock. What bounds what:
//! * A requester has at most [`WINDOW`] unanswered requests per connection, so an owner never has
//!   more than that many answers of one connection, wherever they are.
//! * Answers have [`ANSWER_SLOTS`] places of their own in each send queue, and are packed while
//!   they wait for one. No request ever takes such a place. So two PEs that flood each other with
//!   requests cannot keep the answers from going out, and each answer makes room for a request.
//! * Receives are posted again before what they brought is looked at. Their number bounds nothing:
//!   a SEND that finds none waits at the sender's HCA, which repeats it.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::message::{Answer, Answers};
use shmem_verbs::Qpn;

/// Most unanswered requests of one connection. Enough that answers arrive before a stream of
/// requests runs out of room; few enough that four peers at a time find receives.
pub(crate) const WINDOW: u64 = 64;
/// Messages with answers that may be in the send queue of one connection.
pub(crate) const ANSWER_SLOTS: u32 = 16;
/// Messages with answers that may be in all send queues together.
pub(super) const ANSWER_MESSAGES: u32 = 256;

/// A requester's count of what one owner was asked and has answered. Requests are answered in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequestCount {
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    /// `answered` at the last look at who is silent.
    looked_at: u64,
}

impl RequestCount {
    /// Requests without answer.
    pub(crate) const fn unanswered(&self) -> u64 {
        self.asked - self.answered
    }

    pub(crate) const fn has_room(&self) -> bool {
        self.unanswered() < WINDOW
    }

    /// Nothing more will be answered; returns how many requests that were.
    pub(crate) const fn forget(&mut self) -> u64 {
        let lost = self.unanswered();
        self.answered = self.asked;
        lost
    }

    /// Whether answers are missing and none has come since the last time that this was called.
    pub(crate) const fn is_silent(&mut self) -> bool {
        let silent = self.unanswered() > 0 && self.answered == self.looked_at;
        self.looked_at = self.answered;
        silent
    }
}

/// A message with answers that is to be sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Outgoing {
    pub(super) pe: u32,
    pub(super) qpn: Qpn,
    /// Names it among those under way.
    pub(super) slot: u16,
    pub(super) answers: Answers,
}

/// The answers for one requester.
#[derive(Debug)]
struct Queue {
    /// The connection over which the requests came.
    qpn: Qpn,
    waiting: VecDeque<Answer>,
    /// Messages in the send queue.
    posted: u32,
    /// It is in the line of those that have something to send.
    in_line: bool,
}

/// An owner's answers, from the execution of the request until the message has left.
#[derive(Debug)]
pub(super) struct Outbox {
    queues: HashMap<u32, Queue>,
    /// Requesters whose answers wait, and whose connection has room as far as is known.
    line: VecDeque<u32>,
    /// For whom each message under way is.
    slots: Vec<Option<(u32, Qpn)>>,
    free: Vec<u16>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        let slots = ANSWER_MESSAGES as u16;
        Self {
            queues: HashMap::new(),
            line: VecDeque::new(),
            slots: vec![None; usize::from(slots)],
            free: (0..slots).rev().collect(),
        }
    }

    /// Whether something is to be sent, as far as is known without trying.
    pub(super) fn is_idle(&self) -> bool {
        self.line.is_empty()
    }

    /// There is an answer for `pe`, whose request came over `qpn`. False if it has asked for more than
    /// it may without taking answers; nothing is kept then.
    pub(super) fn push(&mut self, pe: u32, qpn: Qpn, answer: Answer) -> bool {
        let queue = self.queues.entry(pe).or_insert_with(|| Queue {
            qpn,
            waiting: VecDeque::with_capacity(8),
            posted: 0,
            in_line: false,
        });
        if queue.qpn != qpn || queue.waiting.len() as u64 >= WINDOW {
            return false;
        }
        queue.waiting.push_back(answer);
        if !queue.in_line && queue.posted < ANSWER_SLOTS {
            queue.in_line = true;
            self.line.push_back(pe);
        }
        true
    }

    /// The next message to send. It counts as under way from now on.
    pub(super) fn next(&mut self) -> Option<Outgoing> {
        // Where a queue pair has no room, or is gone, a completion or a request brings it back.
        let pe = *self.line.front()?;
        let slot = self.free.pop()?;
        let Some(queue) = self.queues.get_mut(&pe) else {
            self.free.push(slot);
            self.line.pop_front();
            return self.next();
        };
        let mut answers = Answers::new();
        while let Some(answer) = queue.waiting.front()
            && answers.push(*answer)
        {
            queue.waiting.pop_front();
        }
        queue.posted += 1;
        self.slots[usize::from(slot)] = Some((pe, queue.qpn));
        // One message each, in turn: nobody's answers wait for all of another's.
        self.line.pop_front();
        queue.in_line = !queue.waiting.is_empty() && queue.posted < ANSWER_SLOTS;
        if queue.in_line {
            self.line.push_back(pe);
        }
        let qpn = queue.qpn;
        Some(Outgoing {
            pe,
            qpn,
            slot,
            answers,
        })
    }

    /// A message has left its send queue. Returns for whom it was; `None` if that is known no more.
    pub(super) fn sent(&mut self, slot: u16, qpn: Qpn) -> Option<u32> {
        let place = self.slots.get_mut(usize::from(slot))?;
        let (pe, _) = place.filter(|(_, of)| *of == qpn)?;
        *place = None;
        self.free.push(slot);
        let queue = self.queues.get_mut(&pe)?;
        queue.posted -= 1;
        if !queue.in_line && !queue.waiting.is_empty() {
            queue.in_line = true;
            self.line.push_back(pe);
        }
        Some(pe)
    }

    /// The queue pair towards `pe` is gone, and what was in its send queue, too.
    pub(super) fn gone(&mut self, pe: u32, qpn: Qpn) {
        if self.queues.get(&pe).is_none_or(|queue| queue.qpn != qpn) {
            return;
        }
        self.queues.remove(&pe);
        self.line.retain(|other| *other != pe);
        for (slot, place) in (0u16..).zip(&mut self.slots) {
            if *place == Some((pe, qpn)) {
                *place = None;
                self.free.push(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmem_verbs::rng::Rng;

    const QP: Qpn = Qpn(77);

    fn answer(token: u64) -> Answer {
        Answer {
            token,
            result: Ok(token),
        }
    }

    fn tokens(message: &Outgoing) -> Vec<u64> {
        message.answers.as_slice().iter().map(|a| a.token).collect()
    }

    #[test]
    fn a_window_fills_and_empties() {
        let mut requests = RequestCount::default();
        while requests.has_room() {
            requests.asked += 1;
        }
        assert_eq!(requests.unanswered(), WINDOW);
        requests.answered += 1;
        assert!(requests.has_room());
        assert!(!requests.is_silent(), "an answer has come since");
        assert!(requests.is_silent());
        assert_eq!(requests.forget(), WINDOW - 1);
        assert!(!requests.is_silent());
    }

    #[test]
    fn answers_wait_for_room_in_order_and_are_packed() {
        let mut outbox = Outbox::new();
        let mut under_way = Vec::new();
        for token in 0..u64::from(ANSWER_SLOTS) {
            assert!(outbox.push(1, QP, answer(token)));
            let message = outbox.next().expect("there is room");
            assert_eq!(tokens(&message), [token]);
            under_way.push(message.slot);
        }
        for token in 100..100 + WINDOW {
            assert!(outbox.push(1, QP, answer(token)));
        }
        assert!(!outbox.push(1, QP, answer(0)), "more than it may ask for");
        assert_eq!(outbox.next(), None);
        // Another connection is not held up.
        assert!(outbox.push(2, Qpn(5), answer(9)));
        assert_eq!(outbox.next().map(|m| (m.pe, m.qpn)), Some((2, Qpn(5))));
        let mut seen = Vec::new();
        for slot in under_way {
            assert_eq!(outbox.sent(slot, QP), Some(1));
            seen.extend(outbox.next().iter().flat_map(tokens));
        }
        assert_eq!(seen, (100..100 + WINDOW).collect::<Vec<_>>());
        assert!(outbox.is_idle());
    }

    #[test]
    fn what_a_queue_pair_held_goes_with_it() {
        let mut outbox = Outbox::new();
        assert!(outbox.push(1, QP, answer(1)));
        let old = outbox.next().expect("there is room");
        assert!(outbox.push(1, QP, answer(2)));
        outbox.gone(1, Qpn(78));
        assert!(!outbox.is_idle(), "that was another one");
        outbox.gone(1, QP);
        assert_eq!(outbox.next(), None);
        // A late completion does not free the place of a new message.
        assert!(outbox.push(1, Qpn(79), answer(3)));
        let new = outbox.next().expect("there is room");
        assert_eq!(new.slot, old.slot);
        assert_eq!(outbox.sent(old.slot, QP), None);
        assert_eq!(outbox.sent(new.slot, Qpn(79)), Some(1));
        assert_eq!(outbox.sent(new.slot, Qpn(79)), None);
    }

    /// One of two PEs that do nothing but ask each other, with queues as an RC connection has them.
    struct Sim {
        count: RequestCount,
        outbox: Outbox,
        /// Requests still to be made.
        left: u64,
        /// The send queue: requests are `None`, answers not. In order, as the peer takes them.
        queue: VecDeque<Option<Outgoing>>,
        /// Places of the send queue for requests that are taken.
        requests: u32,
        receives: u32,
        executed: u64,
    }

    impl Sim {
        fn new(left: u64, receives: u32) -> Self {
            Self {
                count: RequestCount::default(),
                outbox: Outbox::new(),
                left,
                queue: VecDeque::new(),
                requests: 0,
                receives,
                executed: 0,
            }
        }

        fn is_done(&self) -> bool {
            self.left == 0 && self.count.unanswered() == 0 && self.queue.is_empty()
        }
    }

    /// Two that flood each other, with few places in their queues and few receives: both are
    /// answered in full, whoever runs when, and nobody ever has more answers than the window.
    #[test]
    fn two_that_flood_each_other_are_answered() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let places = 1 + rng.below(4) as u32;
            let receives = 1 + rng.below(3) as u32;
            let mut pes = [0, 1].map(|_| Sim::new(200 + rng.below(300), receives));
            let wanted = [pes[1].left, pes[0].left];
            let mut arrived = [0u32; 2];
            let mut steps = 0;
            while !pes.iter().all(Sim::is_done) {
                steps += 1;
                assert!(steps < 200_000, "seed {seed}: they wait for each other");
                let me = rng.below(2) as usize;
                let peer = 1 - me;
                match rng.below(3) {
                    // The program asks as long as there is room.
                    0 => {
                        let pe = &mut pes[me];
                        while pe.left > 0 && pe.count.has_room() && pe.requests < places {
                            pe.count.asked += 1;
                            (pe.left, pe.requests) = (pe.left - 1, pe.requests + 1);
                            pe.queue.push_back(None);
                        }
                    }
                    // The network delivers the first message, if the peer has a receive for it.
                    1 if arrived[peer] < pes[peer].receives => {
                        let Some(message) = pes[me].queue.pop_front() else {
                            continue;
                        };
                        arrived[peer] += 1;
                        match message {
                            None => {
                                pes[me].requests -= 1;
                                let token = pes[peer].executed;
                                pes[peer].executed += 1;
                                let fits = pes[peer].outbox.push(me as u32, QP, answer(token));
                                assert!(fits, "seed {seed}: more than the window");
                            }
                            Some(out) => {
                                pes[me].outbox.sent(out.slot, QP);
                                for token in tokens(&out) {
                                    assert_eq!(token, pes[peer].count.answered, "seed {seed}");
                                    pes[peer].count.answered += 1;
                                }
                            }
                        }
                    }
                    // Progress: receives are posted again, and answers leave.
                    _ => {
                        arrived[me] = 0;
                        while let Some(out) = pes[me].outbox.next() {
                            pes[me].queue.push_back(Some(out));
                        }
                    }
                }
            }
            assert_eq!([pes[0].executed, pes[1].executed], wanted, "seed {seed}");
        }
    }

    /// Whatever happens, every answer goes out once, in order per connection, and all places come
    /// back.
    #[test]
    fn random_traffic_is_answered_once_and_in_order() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut outbox = Outbox::new();
            let peers = 1 + rng.next_u64() % 40;
            let mut pushed = vec![0u64; peers as usize];
            let mut taken = vec![0u64; peers as usize];
            let mut under_way: Vec<Outgoing> = Vec::new();
            let mut check = |message: &Outgoing| {
                let count = &mut taken[message.pe as usize];
                for token in tokens(message) {
                    assert_eq!(token, *count, "seed {seed}");
                    *count += 1;
                }
            };
            for _ in 0..2000 {
                let pe = (rng.next_u64() % peers) as usize;
                match rng.next_u64() % 4 {
                    0 | 1 => {
                        let qpn = Qpn(pe as u32 + 100);
                        pushed[pe] += u64::from(outbox.push(pe as u32, qpn, answer(pushed[pe])));
                    }
                    2 => {
                        if let Some(message) = outbox.next() {
                            check(&message);
                            under_way.push(message);
                        }
                    }
                    _ => {
                        if !under_way.is_empty() {
                            let at = rng.next_u64() as usize % under_way.len();
                            let message = under_way.swap_remove(at);
                            let whose = outbox.sent(message.slot, message.qpn);
                            assert_eq!(whose, Some(message.pe), "seed {seed}");
                        }
                    }
                }
            }
            loop {
                while let Some(message) = outbox.next() {
                    check(&message);
                    under_way.push(message);
                }
                let Some(message) = under_way.pop() else {
                    break;
                };
                outbox.sent(message.slot, message.qpn);
            }
            assert_eq!(pushed, taken, "seed {seed}");
            assert_eq!(outbox.free.len(), ANSWER_MESSAGES as usize, "seed {seed}");
        }
    }
}
