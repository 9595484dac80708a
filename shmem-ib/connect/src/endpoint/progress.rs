//! Progress: takes completions to where they belong, lets timers act, and does what had to wait.
//!
//! The models in `tests/loom` compile this file, too.

use std::time::Duration;

use super::atomics::by_owner::owner::Owner;
use super::completions::BATCH;
use super::driver::Driver;
use super::lock::Endpoint;
use super::wr_id::Whose;
use crate::sync::Ordering;
use shmem_verbs::{Completion, Hca};

impl<H: Hca> Endpoint<H> {
    /// Handles what has arrived and what is due, without waiting. Returns whether there was
    /// anything; operations of peers count, as they may have changed the memory.
    pub fn progress(&self) -> bool {
        self.lock().poll()
    }

    /// Sleeps until there is something to do, at most `max`, and does it.
    pub fn progress_wait(&self, max: Duration) {
        let mut locked = self.lock();
        if locked.life.closing && !locked.life.closed {
            // The thread that closes the endpoint serves it, and sleeps better alone.
            locked.until_closed(max);
            drop(locked);
        } else {
            drop(locked);
            self.hca.wait(max);
            // ORDERING(parting): pairs with `part`.
            match self.parting.load(Ordering::Acquire) {
                true => self.close(),
                false => drop(self.lock().poll()),
            }
        }
    }
}

impl<H: Hca> Driver<H> {
    /// When a connection timer is due.
    fn deadline(&mut self) -> Option<u64> {
        if self.life.closed {
            return None;
        }
        self.manager.next_timeout()
    }

    /// Has the HCA wake a thread for the next deadline, if it is not the one that it knows.
    pub(super) fn set_alarm(&mut self) {
        let next = self.deadline();
        if next != self.alarm {
            self.alarm = next;
            let now = self.now();
            let after = next.map(|at| Duration::from_nanos(at.saturating_sub(now)));
            self.hca.set_alarm(after);
        }
    }

    /// Takes completions and lets timers act. Returns whether anything happened, operations of
    /// peers included.
    pub(super) fn poll(&mut self) -> bool {
        if self.life.closed {
            return false;
        }
        let mut busy = self.poll_once();
        // What closing connections took ahead of time must not wait until the next packet comes.
        while !self.completions.late.is_empty() {
            busy |= self.poll_once();
        }
        busy
    }

    fn poll_once(&mut self) -> bool {
        let mut batch = self.completions.take_room();
        let mut busy = self.take_late();
        loop {
            let n = self.hca.poll_cq(self.completions.cq, &mut batch);
            busy |= n > 0;
            for completion in &batch[..n] {
                self.completed(completion);
            }
            self.take_late();
            if n < BATCH {
                break;
            }
        }
        self.completions.give_room(batch);
        // What another thread waits for is most often a number of operations, room or a slot: every completion may
        // be the one.
        self.notices.happened |= busy;
        // Not before completions have made room: with none to come, nobody would come back to it.
        if !self.sends.held.is_empty() {
            self.let_go();
        }
        if !self.sends.uncovered.is_empty() {
            self.cover();
        }
        if !self.ahead.is_idle() {
            self.connect_more();
        }
        if self.composer.is_held_up() {
            self.resume_steps();
        }
        if self.has_answers() {
            self.send_answers();
        }
        if self.unanswered > 0 {
            self.probe_silent();
        }
        if self.life.closing {
            self.note_rc_traffic();
        }
        if let Some(at) = self.deadline() {
            let now = self.now();
            if at <= now {
                self.manager.handle_timeout(now);
                self.act();
                (busy, self.notices.happened) = (true, true);
            }
        }
        let inbound = self.hca.inbound();
        let executed = self.owner.as_mut().is_some_and(Owner::has_executed);
        if self.inbound.look(inbound, executed) {
            busy = true;
        }
        if !self.attention.is_empty() {
            self.attend();
        }
        if self.manager.is_short() {
            self.make_room();
            self.act();
        }
        // Another thread may have found what the one that closes sleeps for.
        self.notices.happened |= self.life.closing && self.manager.has_left();
        self.look_for_failure();
        busy
    }

    /// While this PE leaves, RC packets tell that peers still have operations under way.
    fn note_rc_traffic(&mut self) {
        let c = self.hca.counters();
        let others = c.ud_received + c.dropped + c.icrc_errors;
        let packets = c.packets_received.saturating_sub(others);
        if packets != self.life.rc_packets {
            self.life.rc_packets = packets;
            let now = self.now();
            self.manager.traffic_seen(now);
        }
    }

    /// Handles completions that were taken ahead of time; returns whether there were any.
    fn take_late(&mut self) -> bool {
        let any = !self.completions.late.is_empty();
        while !self.completions.late.is_empty() {
            for completion in std::mem::take(&mut self.completions.late) {
                self.completed(&completion);
            }
        }
        any
    }

    fn completed(&mut self, completion: &Completion) {
        match Whose::of_wr_id(completion.wr_id) {
            Whose::Operation(id) => self.rc_completed(id, completion.status),
            Whose::Received(slot) => self.datagram(slot, completion),
            Whose::Sent(slot) => self.datagram_sent(slot, completion),
            Whose::Asked(slot) => self.message_received(slot, completion),
            Whose::Answered(slot) => self.answer_sent(slot, completion),
        }
    }
}
