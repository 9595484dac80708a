//! All connections of one PE: routes messages to the state machine of their peer, keeps the
//! timers, and counts.
//!
//! Pure, as the [`Handshake`]s in it. Feed it with [`Manager::connect`],
//! [`Manager::handle_datagram`] and [`Manager::handle_timeout`] (when
//! [`Manager::next_timeout`] has passed), and after each take actions from
//! [`Manager::poll_action`] until there is none. Executing an action may call the manager
//! again ([`Manager::qp_created`]); the actions that this yields come last.
//!
//! If there may be only so many queue pairs ([`Local::max_qps`]), call [`Manager::make_room`] while
//! [`Manager::is_short`]; see `slots.rs` for who gets them.
//!
//! A PE that goes calls [`Manager::leave`], [`Manager::say_bye`] until everybody is told, and then
//! serves its peers as before until [`Manager::has_left`].
//!
//! Memory is proportional to the number of peers that were in contact, never to the size
//! of the job.

#![forbid(unsafe_code)]

mod slots;

pub use slots::{PATIENCE, Usage};

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hashbrown::HashMap;

use self::slots::{Account, Slots};
use super::UdAddress;
use super::admission::Admission;
use super::handshake::{Action, Actions, Context, Handshake, Local, Phase, Verdict};
use super::message::{Body, DecodeError, MAX_LEN, Message, Segments};
use super::stats::ConnectStats;
use super::way::Way;
use shmem_verbs::rng::Rng;
use shmem_verbs::{Psn, Qpn};

/// What identifies the job and this PE in it.
#[derive(Clone)]
pub struct Identity {
    /// The same for all PEs of the job, different between jobs.
    pub job_id: [u8; 16],
    /// Known only to the PEs of the job. Not copied, so that it is where its owner put it and nowhere
    /// else.
    pub job_key: &'static [u8; 32],
    /// PEs in the job.
    pub n_pes: u32,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key stays out of logs.
        f.debug_struct("Identity")
            .field("n_pes", &self.n_pes)
            .finish_non_exhaustive()
    }
}

/// This PE is on its way out.
#[derive(Clone, Debug)]
struct Leaving {
    /// Peers that have to be told yet, the last first.
    untold: Vec<u32>,
    /// Connections in [`Phase::Parting`].
    parting: u32,
    /// Last sign of life of a peer whose BYE is missing.
    heard: u64,
    linger: u64,
    /// The linger time is over.
    over: bool,
}

impl Leaving {
    /// When the linger time ends, if it matters.
    fn end(&self) -> Option<u64> {
        (self.parting > 0 && !self.over).then(|| self.heard.saturating_add(self.linger))
    }
}

#[derive(Clone, Debug)]
struct Entry {
    handshake: Handshake,
    /// The timer in the heap that counts for this peer; others of it are outdated.
    armed: Option<u64>,
    /// What the books say.
    account: Account,
}

/// The connections of one PE.
#[derive(Clone, Debug)]
pub struct Manager {
    local: Local,
    admission: Admission,
    peers: HashMap<u32, Entry>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    actions: VecDeque<(u32, Action)>,
    rng: Rng,
    stats: ConnectStats,
    leaving: Option<Leaving>,
    slots: Slots,
    /// Logical time: above every ticket given or seen.
    clock: u64,
    /// The latest time that it was told.
    now: u64,
}

impl Manager {
    /// A manager without connections; everything random in it follows from `seed`.
    #[must_use]
    pub fn new(identity: &Identity, local: Local, seed: u64) -> Self {
        Self {
            admission: Admission::new(identity, local.pe),
            local,
            peers: HashMap::new(),
            timers: BinaryHeap::new(),
            actions: VecDeque::new(),
            rng: Rng::new(seed),
            stats: ConnectStats::default(),
            leaving: None,
            slots: Slots::default(),
            clock: 0,
            now: 0,
        }
    }

    /// It is `now`. Intervals that began later than they end would be no intervals.
    fn time_is(&mut self, now: u64) {
        debug_assert!(now >= self.now, "time went back from {} to {now}", self.now);
        self.now = now;
    }

    /// From here on `identity` is the job's. Only for a manager that has no connections.
    pub fn set_identity(&mut self, identity: &Identity) {
        self.admission = Admission::new(identity, self.admission.pe());
    }

    /// What this PE brings to every connection.
    #[must_use]
    pub const fn local(&self) -> &Local {
        &self.local
    }

    /// What has happened so far.
    #[must_use]
    pub const fn stats(&self) -> &ConnectStats {
        &self.stats
    }

    /// Where the connection to `pe` stands.
    #[must_use]
    pub fn phase(&self, pe: u32) -> Phase {
        self.peers
            .get(&pe)
            .map_or(Phase::Idle, |e| e.handshake.phase())
    }

    /// Whether the local program waits for a connection to `pe`.
    #[must_use]
    pub fn is_wanted(&self, pe: u32) -> bool {
        self.peers.get(&pe).is_some_and(|e| e.handshake.is_wanted())
    }

    /// The local queue pair towards `pe` and its starting PSN.
    #[must_use]
    pub fn local_qp(&self, pe: u32) -> Option<(Qpn, Psn)> {
        self.peers.get(&pe)?.handshake.local_qp()
    }

    /// To what the local queue pair towards `pe` is linked: incarnation, QPN, starting PSN.
    #[must_use]
    pub fn linked_to(&self, pe: u32) -> Option<(u64, Qpn, Psn)> {
        self.peers.get(&pe)?.handshake.linked_to()
    }

    /// The state machine towards `pe`, if there was ever contact.
    #[must_use]
    pub fn handshake(&self, pe: u32) -> Option<&Handshake> {
        self.peers.get(&pe).map(|e| &e.handshake)
    }

    /// The connection to `pe`, for operations.
    #[must_use]
    pub fn way(&self, pe: u32) -> Option<Way<'_>> {
        self.peers.get(&pe)?.handshake.way()
    }

    /// The local queue pair towards `pe` is in error, and stays so until it is destroyed. Returns which
    /// one that is.
    pub fn broke(&mut self, pe: u32) -> Option<Qpn> {
        self.peers.get_mut(&pe)?.handshake.broke()
    }

    /// Logical time: no ticket that this PE has given or seen is above.
    #[must_use]
    pub const fn clock(&self) -> u64 {
        self.clock
    }

    /// Peers that were ever in contact, in no particular order.
    pub fn peers(&self) -> impl Iterator<Item = u32> + '_ {
        self.peers.keys().copied()
    }

    /// The local program wants a connection to `pe`, whose UD endpoint is at `ud`.
    pub fn connect(&mut self, now: u64, pe: u32, ud: UdAddress) {
        self.with_peer(now, pe, |handshake, cx| handshake.connect(cx, ud));
    }

    /// The memory of this PE is registered: those who wait for it get their answers.
    ///
    /// Later calls say that the memory has changed: connected peers are told.
    pub fn ready(&mut self, now: u64, segments: Segments) {
        let first = self.local.segments.replace(segments).is_none();
        self.local.revision += 1;
        let mut concerned: Vec<u32> = self
            .peers
            .iter()
            .filter(|(_, e)| !first || e.handshake.phase() == Phase::Preparing)
            .map(|(pe, _)| *pe)
            .collect();
        concerned.sort_unstable(); // the order of a hash table is not reproducible
        for pe in concerned {
            if first {
                self.with_peer(now, pe, Handshake::ready);
            } else {
                self.with_peer(now, pe, Handshake::segments_changed);
            }
        }
    }

    /// Whether every peer that was told of our memory knows the present segments.
    #[must_use]
    pub fn segments_known(&self) -> bool {
        let revision = self.local.revision;
        !self
            .peers
            .values()
            .any(|e| e.handshake.may_be_behind(revision))
    }

    /// No operation towards `pe` is under way that began before its segments of `revision` came.
    pub fn segments_applied(&mut self, now: u64, pe: u32, revision: u32) {
        self.with_peer(now, pe, |h, cx| h.segments_applied(cx, revision));
    }

    /// No operation is under way on queue pair `qpn` towards `pe`, after [`Action::Drain`].
    pub fn drained(&mut self, now: u64, pe: u32, qpn: Qpn) {
        self.with_peer(now, pe, |handshake, cx| handshake.drained(cx, qpn));
    }

    /// The queue pair that [`Action::CreateQp`] asked for exists, in INIT.
    pub fn qp_created(&mut self, now: u64, pe: u32, qpn: Qpn) {
        self.with_peer(now, pe, |handshake, cx| handshake.qp_created(cx, qpn));
    }

    /// The queue pair that [`Action::CreateQp`] asked for could not be made.
    pub fn qp_failed(&mut self, now: u64, pe: u32, why: String) {
        self.with_peer(now, pe, |handshake, cx| handshake.qp_failed(cx, why));
    }

    /// An RC request of `pe` has arrived at the local queue pair `qpn`.
    pub fn rc_traffic_seen(&mut self, now: u64, pe: u32, qpn: Qpn) {
        if self.peers.contains_key(&pe) {
            self.with_peer(now, pe, |handshake, cx| handshake.rc_traffic_seen(cx, qpn));
        }
    }

    /// Begins to leave: none of this PE's operations is under way, and none will be started.
    /// OFFERs are refused from now on, and each peer with which there is a connection is to be
    /// told ([`say_bye`](Self::say_bye)).
    ///
    /// [`has_left`](Self::has_left) becomes true when all of them have said BYE, or when none of
    /// those that have not gave a sign of life for `linger` nanoseconds.
    pub fn leave(&mut self, now: u64, linger: u64) {
        if self.leaving.is_some() {
            return;
        }
        self.time_is(now);
        self.local.leaving = true;
        let mut untold: Vec<u32> = self.peers.keys().copied().collect();
        untold.sort_unstable_by(|a, b| b.cmp(a)); // reproducible, unlike a hash table's order
        self.leaving = Some(Leaving {
            untold,
            parting: 0,
            heard: now,
            linger,
            over: false,
        });
    }

    /// Tells up to `max` peers; returns whether there are more. In portions, since the
    /// send queue for datagrams is short.
    pub fn say_bye(&mut self, now: u64, max: usize) -> bool {
        for _ in 0..max {
            let Some(pe) = self.leaving.as_mut().and_then(|l| l.untold.pop()) else {
                return false;
            };
            self.with_peer(now, pe, Handshake::leave);
        }
        self.leaving.as_ref().is_some_and(|l| !l.untold.is_empty())
    }

    /// RC packets have arrived, so somebody still needs this PE.
    pub fn traffic_seen(&mut self, now: u64) {
        if let Some(leaving) = &mut self.leaving {
            leaving.heard = now;
        }
    }

    /// Operations towards `pe` are unfinished, and it waits for our BYE or DRAIN.
    pub fn busy(&mut self, now: u64, pe: u32) {
        self.with_peer(now, pe, Handshake::busy);
    }

    /// Whether this PE has left: nobody whom it could know of needs it any more.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.leaving
            .as_ref()
            .is_some_and(|l| l.untold.is_empty() && (l.parting == 0 || l.over))
    }

    /// A datagram has arrived at the UD endpoint. Returns what became of it; the error tells
    /// why it was rejected. Both are counted.
    ///
    /// # Errors
    /// It is no message of this job for this PE.
    pub fn handle_datagram(&mut self, now: u64, bytes: &[u8]) -> Result<Verdict, DecodeError> {
        let message = self.admission.admit(bytes, &mut self.stats)?;
        match message.body {
            Body::Offer(_) => self.stats.offers_received += 1,
            Body::Wait => self.stats.waits_received += 1,
            Body::Bye => {
                self.stats.byes_received += 1;
                if !self.peers.contains_key(&message.src_pe) {
                    self.stats.stale += 1;
                    return Ok(Verdict::Stale);
                }
            }
            Body::Xrc(_) => {
                self.stats.malformed += 1;
                return Err(DecodeError::Field("kind (this PE uses transport RC)"));
            }
            Body::Drain(_) => self.stats.drains_received += 1,
            Body::Segments { .. } | Body::SegmentsAck { .. } => {
                if !self.peers.contains_key(&message.src_pe) {
                    self.stats.stale += 1;
                    return Ok(Verdict::Stale);
                }
            }
        }
        let pe = message.src_pe;
        let missing = self.phase(pe) == Phase::Parting;
        let verdict = self.with_peer(now, pe, |h, cx| h.handle_message(cx, message));
        if missing && verdict != Verdict::Stale {
            self.traffic_seen(now);
        }
        match verdict {
            Verdict::Accepted => {}
            Verdict::Duplicate => self.stats.duplicates += 1,
            Verdict::Stale => self.stats.stale += 1,
        }
        Ok(verdict)
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub fn next_timeout(&mut self) -> Option<u64> {
        let timer = self.next_timer();
        let search = self.slots.next_search();
        let timer = timer.into_iter().chain(search).min();
        match self.leaving.as_ref().and_then(Leaving::end) {
            Some(end) => Some(timer.map_or(end, |at| at.min(end))),
            None => timer,
        }
    }

    fn next_timer(&mut self) -> Option<u64> {
        while let Some(Reverse((at, pe))) = self.timers.peek() {
            if self.peers.get(pe).is_some_and(|e| e.armed == Some(*at)) {
                return Some(*at);
            }
            self.timers.pop();
        }
        None
    }

    /// Fires all timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: u64) {
        self.time_is(now);
        if let Some(leaving) = &mut self.leaving
            && leaving.end().is_some_and(|end| end <= now)
        {
            leaving.over = true;
            self.stats.byes_missed = leaving.parting.into();
        }
        self.slots.time_passed(now);
        while let Some(at) = self.next_timer()
            && at <= now
        {
            let Some(Reverse((_, pe))) = self.timers.pop() else {
                return;
            };
            if let Some(entry) = self.peers.get_mut(&pe) {
                entry.armed = None;
            }
            self.with_peer(now, pe, Handshake::handle_timeout);
        }
    }

    /// Lets the timers of one connection act, if they are due at `now`:
    /// [`handle_timeout`](Self::handle_timeout) does that for all.
    pub fn handle_timeout_of(&mut self, now: u64, pe: u32) {
        self.with_peer(now, pe, Handshake::handle_timeout);
    }

    /// The next thing to do and the peer that it is for.
    pub fn poll_action(&mut self) -> Option<(u32, Action)> {
        self.actions.pop_front()
    }

    /// Encodes a message of [`Action::Send`]; returns its length in bytes.
    pub fn encode(&self, message: &Message, out: &mut [u8; MAX_LEN]) -> usize {
        self.admission.encode(message, out)
    }

    fn with_peer<R>(
        &mut self,
        now: u64,
        pe: u32,
        event: impl FnOnce(&mut Handshake, &mut Context<'_>) -> R,
    ) -> R {
        let result = self.one_event(now, pe, event);
        // A queue pair that has become free goes to the first in line.
        while let Some(first) = self.slots.first_waiting()
            && self.slots.may_create(self.local.max_qps, first)
        {
            self.one_event(now, first, Handshake::ready);
        }
        result
    }

    fn one_event<R>(
        &mut self,
        now: u64,
        pe: u32,
        event: impl FnOnce(&mut Handshake, &mut Context<'_>) -> R,
    ) -> R {
        self.time_is(now);
        let entry = self.peers.entry(pe).or_insert_with(|| Entry {
            handshake: Handshake::new(pe),
            armed: None,
            account: Account::NEW,
        });
        let was_parting = entry.handshake.phase() == Phase::Parting;
        let me = self.local.pe;
        let registered = self.local.segments.is_some();
        let mut actions = Actions::new();
        let mut cx = Context {
            now,
            local: &self.local,
            rng: &mut self.rng,
            actions: &mut actions,
            stats: &mut self.stats,
            clock: &mut self.clock,
            may_create: self.slots.may_create(self.local.max_qps, pe),
        };
        let result = event(&mut entry.handshake, &mut cx);
        self.actions.extend(actions.into_iter().map(|a| (pe, a)));
        let after = Account::of(&entry.handshake, me, registered);
        let before = std::mem::replace(&mut entry.account, after);
        self.slots.update(pe, before, after);
        if let Some(leaving) = &mut self.leaving {
            leaving.parting -= u32::from(was_parting);
            leaving.parting += u32::from(entry.handshake.phase() == Phase::Parting);
        }
        let next = entry.handshake.next_timeout(&self.local.retry);
        if next != entry.armed {
            entry.armed = next;
            if let Some(at) = next {
                self.timers.push(Reverse((at, pe)));
            }
        }
        result
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
