//! Connections that lead to peers: the handshake with each, and the line of those who want a queue pair.

use std::hash::{Hash, Hasher};

use hashbrown::HashMap;

use super::room::{Account, Room, Usage};
use crate::handshake::{Handshake, Phase, Standing};
use crate::interface::{EventContext, Verdict};
use crate::message::{Body, Message};

#[derive(Clone, Debug)]
struct Entry {
    handshake: Handshake,
    /// What the books say.
    account: Account,
}

/// All peers that were ever in contact. Memory is proportional to their number, never to the size of the
/// job.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers {
    entries: HashMap<u32, Entry>,
    room: Room,
    /// Peers whose timer may have changed in the present event.
    touched: Vec<u32>,
}

impl Hash for Peers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for pe in self.all() {
            (pe, self.get(pe)).hash(state);
        }
        (self.is_short(), self.next_search()).hash(state);
    }
}

impl Peers {
    #[inline]
    pub(super) fn get(&self, pe: u32) -> Option<&Handshake> {
        self.entries.get(&pe).map(|entry| &entry.handshake)
    }

    pub(super) fn get_mut(&mut self, pe: u32) -> Option<&mut Handshake> {
        let entry = self.entries.get_mut(&pe);
        entry.map(|entry| &mut entry.handshake)
    }

    /// In ascending order: that of a hash table is not reproducible.
    pub(super) fn all(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.entries.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Whose timers the last events may have changed.
    pub(super) fn take_touched(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.touched)
    }

    /// The local memory is registered.
    pub(super) fn ready(&mut self, cx: &mut EventContext<'_>) {
        for pe in self.all() {
            if self.get(pe).is_some_and(|h| h.phase() == Phase::Preparing) {
                self.event(cx, pe, Handshake::ready);
            }
        }
    }

    /// There is more of it.
    pub(super) fn segments_added(&mut self, cx: &mut EventContext<'_>) {
        for pe in self.all() {
            self.event(cx, pe, Handshake::segments_added);
        }
    }

    pub(super) fn handle_message(
        &mut self,
        cx: &mut EventContext<'_>,
        message: Message,
    ) -> Verdict {
        let pe = message.src_pe;
        let new = !self.entries.contains_key(&pe);
        if new && !matches!(message.body, Body::Offer(_) | Body::Wait | Body::Drain(_)) {
            return Verdict::Stale;
        }
        self.event(cx, pe, |h, cx| h.handle_message(cx, message))
    }

    /// Lets something happen to the connection to `pe`.
    pub(super) fn event<R>(
        &mut self,
        cx: &mut EventContext<'_>,
        pe: u32,
        event: impl FnOnce(&mut Handshake, &mut EventContext<'_>) -> R,
    ) -> R {
        let result = self.one_event(cx, pe, event);
        // A queue pair that has become free goes to the first in line.
        while let Some(first) = self.room.first_waiting()
            && self.room.may_create(cx.local.max_qps, first)
        {
            self.one_event(cx, first, Handshake::ready);
        }
        result
    }

    fn one_event<R>(
        &mut self,
        cx: &mut EventContext<'_>,
        pe: u32,
        event: impl FnOnce(&mut Handshake, &mut EventContext<'_>) -> R,
    ) -> R {
        let entry = self.entries.entry(pe).or_insert_with(|| Entry {
            handshake: Handshake::new(pe),
            account: Account::NEW,
        });
        cx.may_create = self.room.may_create(cx.local.max_qps, pe);
        let result = event(&mut entry.handshake, cx);
        let after = Account::of(&entry.handshake, cx.local);
        let before = std::mem::replace(&mut entry.account, after);
        self.room.update(pe, before, after);
        self.touched.push(pe);
        result
    }

    pub(super) fn queue_pairs_held(&self) -> usize {
        self.room.used()
    }

    /// When the line is to be looked at again.
    pub(super) fn next_search(&self) -> Option<u64> {
        self.room.next_search()
    }

    /// That time has come.
    pub(super) fn look_for_room_again(&mut self, now: u64) {
        self.room.look_again(now);
    }

    /// The use of connections has changed.
    pub(super) const fn usage_changed(&mut self) {
        self.room.usage_changed();
    }

    /// Whether somebody waits for a queue pair, and one may be found.
    pub(super) fn is_short(&self) -> bool {
        self.room.is_short()
    }

    /// Begins to close as many connections as requests wait for a queue pair, if that many can be spared.
    pub(super) fn make_room(&mut self, cx: &mut EventContext<'_>, usage: impl Fn(u32) -> Usage) {
        let at = (cx.local.pe, cx.now);
        while let Some((place, victim)) = self.room.victim(at, |pe| self.standing(pe), &usage) {
            debug_assert!(self.room.waits_at(place));
            self.event(cx, victim, Handshake::evict);
        }
        self.room.searched(cx.now);
    }

    fn standing(&self, pe: u32) -> Standing {
        self.get(pe).map_or(Standing::Without, Handshake::standing)
    }
}
