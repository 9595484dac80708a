//! Who gets a queue pair when there may be only so many, and whose is taken.
//!
//! A queue pair counts from the decision to make it until it is destroyed, on each side for
//! itself. Whoever needs one while all are taken, the local program or a peer with its OFFER,
//! waits in one line in the order of tickets; peers are told to WAIT. As long as somebody waits,
//! connections are closed ([how](crate::handshake#how-a-connection-makes-room-for-another)), the least recently used first:
//! 1. queue pairs that nobody can be using;
//! 2. established connections, those without operations under way first, but no
//!    connection for which a thread has waited and not yet posted;
//! 3. own attempts to connect that are younger than the first in line.
//!
//! # Why nobody waits for ever
//! A can wait for B's queue pair while B waits for C's and C for A's. That no such circle
//! stays, and nobody starves, follows from four facts, provided that processes run and the
//! network delivers now and then:
//! * **To give up a queue pair takes no other queue pair.** A drain ends when the operations under
//!   way have completed, at both ends, or when the peer says that its end is gone. If the peer
//!   is still connecting over it, all that this needs exists at both ends.
//! * **Tickets are a total order, known everywhere.** A ticket is a logical time, drawn when the
//!   wish arises and kept, however often the wish gets and loses its queue pair, until the
//!   connection opens; ties go to the smaller PE. A queue pair in the making has the place of the
//!   older of the two wishes that it serves, the own and the peer's. The oldest wish in the
//!   job is the first in both lines it stands in. Neither side takes its queue pair away (only
//!   younger ones give way), and everything else can be closed: established connections drain,
//!   younger attempts yield. So it opens in finite time, whatever waits for whom.
//! * **Every wish becomes the oldest.** All messages carry the logical time of their sender, so a
//!   PE that was let in before somebody draws later tickets as soon as the two have exchanged a
//!   message: nobody overtakes the same wish for ever.
//! * **What opens is used.** Who has waited for a connection posts before it drains, so the work
//!   is not in vain.
//!
//! A drain that takes long, say because the peer is stopped, keeps its queue pair, but not the line:
//! after [`DRAIN_EXPECTED`] another connection is closed in its stead.

use std::collections::BTreeSet;

use crate::handshake::{Handshake, Standing};
use crate::interface::Local;

/// A drain that takes longer, in nanoseconds, is no longer counted on.
pub const DRAIN_EXPECTED: u64 = 50_000_000;

/// A peer that has not repeated its request for so long, in nanoseconds, has given it up.
const FORGOTTEN: u64 = 2_000_000_000;

/// What the driver knows of the use of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Larger if it was used later, by either side.
    pub stamp: u64,
    /// Own operations are under way.
    pub busy: bool,
    /// A thread has waited for it and not posted yet: it must not be closed now.
    pub pinned: bool,
}

/// The books on queue pairs.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    /// Queue pairs that exist or are being made, by peer.
    held: BTreeSet<u32>,
    /// Who waits for one: place in the line, and the peer of the connection.
    line: BTreeSet<((u64, u32), u32)>,
    /// Connections that are being closed, by peer.
    going: BTreeSet<u32>,
    /// Something has changed since the last search for a victim found none.
    changed: bool,
    /// When to search again even if nothing changes: drains grow old, and requests, too. 0, which is at
    /// once, while none was made for the present line. Means nothing if that is empty.
    search_at: u64,
}

/// What matters of one connection to the books.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Account {
    standing: Standing,
    waiting: Option<(u64, u32)>,
}

impl Account {
    pub(super) const NEW: Self = Self {
        standing: Standing::Without,
        waiting: None,
    };

    pub(super) fn of(handshake: &Handshake, local: &Local) -> Self {
        let waiting = handshake.waiting(local.pe);
        Self {
            standing: handshake.standing(),
            waiting: waiting.filter(|_| local.memory.is_some()),
        }
    }
}

impl Room {
    pub(super) fn used(&self) -> usize {
        self.held.len()
    }

    pub(super) fn first_waiting(&self) -> Option<u32> {
        self.line.first().map(|(_, pe)| *pe)
    }

    /// Whether `pe` may have a new queue pair now.
    pub(super) fn may_create(&self, cap: u32, pe: u32) -> bool {
        cap == 0 || self.used() < cap as usize && self.first_waiting().is_none_or(|p| p == pe)
    }

    /// When the line is to be looked at again.
    pub(super) fn next_search(&self) -> Option<u64> {
        (!self.line.is_empty()).then_some(self.search_at)
    }

    /// That time has come.
    pub(super) fn look_again(&mut self, now: u64) {
        self.changed = true;
        self.search_at = now + DRAIN_EXPECTED;
    }

    pub(super) fn update(&mut self, pe: u32, before: Account, after: Account) {
        if before == after {
            return;
        }
        self.changed = true;
        if let Some(place) = before.waiting {
            self.line.remove(&(place, pe));
        }
        if let Some(place) = after.waiting {
            if self.line.is_empty() {
                self.search_at = 0;
            }
            self.line.insert((place, pe));
        }
        if after.standing == Standing::Without {
            self.held.remove(&pe);
        } else {
            self.held.insert(pe);
        }
        if matches!(after.standing, Standing::Going(_)) {
            self.going.insert(pe);
        } else {
            self.going.remove(&pe);
        }
    }

    /// Whether somebody waits for a queue pair, and a search may find one.
    pub(super) fn is_short(&self) -> bool {
        self.changed && !self.line.is_empty()
    }

    /// The use of connections has changed, so that one more may be spared than before.
    pub(super) const fn usage_changed(&mut self) {
        self.changed = true;
    }

    /// A search has found no more to spare.
    pub(super) const fn searched(&mut self, now: u64) {
        self.changed = false;
        self.search_at = now + DRAIN_EXPECTED;
    }

    /// Whether somebody stands at this place of the line.
    pub(super) fn waits_at(&self, place: (u64, u32)) -> bool {
        self.line.iter().any(|(other, _)| *other == place)
    }

    /// The place in the line that is to be served next, and the connection to close for it.
    pub(super) fn victim(
        &self,
        (me, now): (u32, u64),
        standing: impl Fn(u32) -> Standing,
        usage: impl Fn(u32) -> Usage,
    ) -> Option<((u64, u32), u32)> {
        let fresh = |pe: &&u32| match standing(**pe) {
            Standing::Going(began) => now.saturating_sub(began) < DRAIN_EXPECTED,
            _ => false,
        };
        let coming = self.going.iter().filter(fresh).count();
        let (place, _) = *self.line.iter().nth(coming)?;
        let mut shared: Option<(bool, u64, u32)> = None;
        let mut youngest: Option<((u64, u32), u32)> = None;
        for pe in &self.held {
            match standing(*pe) {
                Standing::Unused => return Some((place, *pe)),
                Standing::InUse => {
                    let Usage {
                        stamp,
                        busy,
                        pinned,
                    } = usage(*pe);
                    let candidate = (busy, stamp, *pe);
                    if !pinned && shared.is_none_or(|best| candidate < best) {
                        shared = Some(candidate);
                    }
                }
                Standing::Wanted { own, asked } => {
                    let own = own.map(|ticket| (ticket, me));
                    let fresh = |at: u64| now.saturating_sub(at) < FORGOTTEN;
                    let asked = asked.filter(|(_, at)| fresh(*at));
                    let its = asked.map(|(ticket, _)| (ticket, *pe));
                    match own.into_iter().chain(its).min() {
                        Some(its) => youngest = youngest.max(Some((its, *pe))),
                        None => return Some((place, *pe)),
                    }
                }
                Standing::Without | Standing::Going(_) | Standing::Fixed => {}
            }
        }
        if let Some((_, _, pe)) = shared {
            return Some((place, pe));
        }
        youngest
            .filter(|(its, _)| *its > place)
            .map(|(_, pe)| (place, pe))
    }
}
