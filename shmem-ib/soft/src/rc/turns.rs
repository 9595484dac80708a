//! Which acknowledgements wait for a request that they can leave with.
//!
//! An acknowledgement of its own costs a system call on either side, and it leaves before what the PE has to say
//! itself. Where two PEs send each other words in turn, the answer to a request follows at once, and both fit one
//! datagram. So the acknowledgement of a short message is held if the last ones were each followed by a request
//! of ours before the HCA was polled again.
//!
//! It leaves with that request; or, if none comes, with the next poll, which whoever waits for something and does not sleep
//! yet makes at once; or at the latest when its time is over, because nobody polls. The last means that the peer may
//! have waited in vain, so it then takes twice as many turns before the next one is held.

#![forbid(unsafe_code)]

/// How long an acknowledgement is held: not as long as the peer's shortest retransmission timeout.
const HOLD_NS: u64 = 500_000;
/// After how many turns the first one is held, and at the worst.
const TURNS: u32 = 4;
const TURNS_MAX: u32 = 4096;

/// The turns of one queue pair.
#[derive(Debug)]
pub(crate) struct Turns {
    /// A message of the peer has come, and since then neither was the HCA polled nor did we send.
    open: bool,
    /// Until when the acknowledgement of that message is held.
    held_until: Option<u64>,
    /// So many messages in a row were followed by a request of ours.
    turns: u32,
    /// How many that have to be.
    enough: u32,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            open: false,
            held_until: None,
            turns: 0,
            enough: TURNS,
        }
    }
}

impl Turns {
    /// A message has come, and its acknowledgement is all that waits to be sent (`alone`). Returns whether that is held.
    pub(crate) fn came(&mut self, now: u64, alone: bool) -> bool {
        if self.open {
            // The one before was not followed by anything.
            self.turns = 0;
        }
        self.open = true;
        let holds = alone && self.turns >= self.enough;
        self.held_until = holds.then(|| now + HOLD_NS);
        holds
    }

    /// Whether an acknowledgement is held.
    pub(crate) const fn holds(&self) -> bool {
        self.held_until.is_some()
    }

    /// When the time of what is held is over.
    pub(crate) const fn deadline(&self) -> Option<u64> {
        self.held_until
    }

    /// A request is sent: whatever is held leaves behind it.
    pub(crate) fn sent(&mut self) {
        if std::mem::take(&mut self.open) {
            self.turns = self.turns.saturating_add(1);
            if self.turns / 4 >= self.enough {
                self.enough = (self.enough / 2).max(TURNS);
            }
        }
        self.held_until = None;
    }

    /// Something else is to be sent that cannot wait, and what is held leaves with it.
    pub(crate) const fn release(&mut self) {
        self.held_until = None;
    }

    /// The HCA is polled. Returns whether something is to be sent that was held.
    pub(crate) fn polled(&mut self) -> bool {
        if std::mem::take(&mut self.open) {
            self.turns = 0;
        }
        self.held_until.take().is_some()
    }

    /// Lets time act; returns whether something is to be sent that was held.
    pub(crate) fn on_timeout(&mut self, now: u64) -> bool {
        let due = self.held_until.is_some_and(|at| at <= now);
        if due {
            self.polled();
            self.enough = (self.enough * 2).min(TURNS_MAX);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes turns until acknowledgements are held; returns how many that took.
    fn learn(turns: &mut Turns) -> u32 {
        for n in 0.. {
            let holds = turns.came(0, true);
            turns.sent();
            if holds {
                return n;
            }
        }
        unreachable!()
    }

    #[test]
    fn a_request_that_follows_takes_the_acknowledgement_along() {
        let mut turns = Turns::default();
        assert_eq!(learn(&mut turns), TURNS);
        assert!(turns.came(7, true) && turns.holds());
        assert_eq!(turns.deadline(), Some(7 + HOLD_NS));
        turns.sent();
        assert!(!turns.holds() && !turns.polled());
    }

    #[test]
    fn polling_sends_what_is_held_and_begins_anew() {
        let mut turns = Turns::default();
        learn(&mut turns);
        assert!(turns.came(0, true));
        assert!(turns.polled() && !turns.polled());
        assert!(!turns.came(0, true));
        assert_eq!(learn(&mut turns), TURNS);
    }

    #[test]
    fn only_an_acknowledgement_that_is_alone_is_held_and_only_one() {
        let mut turns = Turns::default();
        learn(&mut turns);
        assert!(!turns.came(0, false));
        turns.sent();
        assert!(turns.came(0, true));
        // A second message before anything of ours.
        assert!(!turns.came(0, true) && !turns.holds());
    }

    #[test]
    fn who_holds_in_vain_is_slower_to_do_so_again_and_recovers() {
        let mut turns = Turns::default();
        let mut before = learn(&mut turns);
        for _ in 0..20 {
            assert!(turns.came(0, true));
            assert!(!turns.on_timeout(HOLD_NS - 1) && turns.on_timeout(HOLD_NS));
            let took = learn(&mut turns);
            assert!(took == 2 * before || took == TURNS_MAX);
            before = took;
        }
        for _ in 0..10 * TURNS_MAX {
            turns.came(0, true);
            turns.sent();
        }
        assert!(turns.polled() || turns.enough == TURNS, "{turns:?}");
    }
}
