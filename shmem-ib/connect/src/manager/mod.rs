//! All connections of one PE: routes messages to the state machine of their peer, keeps the
//! timers, and counts.
//!
//! Connections lead to peers, each with its [`Handshake`], or to [nodes](crate::xrc); whoever drives the
//! manager need not know which.
//!
//! Pure, as the machines in it. Feed it with [`Manager::connect`],
//! [`Manager::handle_datagram`] and [`Manager::handle_timeout`] (when
//! [`Manager::next_timeout`] has come), and after each take actions from
//! [`Manager::poll_action`] until there is none. Executing an action may call the manager
//! again ([`Manager::qp_created`]); the actions that this yields come last.
//!
//! If there may be only so many queue pairs ([`Local::max_qps`]), call [`Manager::make_room`] while
//! [`Manager::is_short`]; see `room.rs` for who gets them.
//!
//! A PE that goes calls [`Manager::leave`], [`Manager::say_bye`] until everybody is told, and then
//! serves its peers as before until [`Manager::has_left`].
//!
//! Memory is proportional to the number of peers that were in contact, never to the size
//! of the job.

#![forbid(unsafe_code)]

mod leaving;
mod peers;
mod room;
mod timers;

pub use room::{DRAIN_EXPECTED, Usage};
pub use timers::Timer;

use std::hash::{Hash, Hasher};

use smallvec::SmallVec;

use self::leaving::Leaving;
use self::peers::Peers;
use self::timers::Timers;
use super::UdAddress;
use super::admission::Admission;
pub use super::admission::Identity;
use super::handshake::{Handshake, Phase};
use super::interface::{Action, Actions, EventContext, Local, Verdict};
use super::message::{Body, DecodeError, MAX_LEN, Memory, Message};
use super::route::Route;
use super::stats::ConnectStats;
use super::xrc::Nodes;
use shmem_verbs::rng::Rng;
use shmem_verbs::{Psn, Qpn};

/// To what connections lead.
#[derive(Clone, Debug)]
enum Links {
    /// Each to one peer, over RC.
    Peers(Peers),
    /// Each to one node, over XRC.
    Nodes(Nodes),
}

/// The connections of one PE.
#[derive(Clone, Debug)]
pub struct Manager {
    links: Links,
    local: Local,
    admission: Admission,
    timers: Timers,
    actions: Actions,
    rng: Rng,
    stats: ConnectStats,
    leaving: Option<Leaving>,
    /// Logical time: above every ticket given or seen.
    clock: u64,
}

/// Two managers of the same PE with the same hash behave the same from the same time on, but for jitter and
/// unless one was stopped. Counters are no part of that, nor is what follows from the rest: deadlines, and who
/// has a queue pair or stands in line.
impl Hash for Manager {
    fn hash<S: Hasher>(&self, state: &mut S) {
        match &self.links {
            Links::Peers(peers) => peers.hash(state),
            Links::Nodes(nodes) => nodes.hash(state),
        }
        (&self.local.memory, self.clock, &self.leaving).hash(state);
    }
}

impl Manager {
    /// A manager without connections; everything random in it follows from `seed`. Connections lead to
    /// peers.
    #[must_use]
    pub fn new(identity: &Identity, local: Local, seed: u64) -> Self {
        Self {
            links: Links::Peers(Peers::default()),
            admission: Admission::new(identity, local.pe),
            local,
            timers: Timers::default(),
            actions: Actions::new(),
            rng: Rng::new(seed),
            stats: ConnectStats::default(),
            leaving: None,
            clock: 0,
        }
    }

    /// The same with connections that lead to nodes, over XRC.
    #[must_use]
    pub fn of_nodes(identity: &Identity, local: Local, seed: u64) -> Self {
        Self {
            links: Links::Nodes(Nodes::default()),
            ..Self::new(identity, local, seed)
        }
    }

    /// From here on `identity` is the job's. Only for a manager that has no connections.
    pub fn set_identity(&mut self, identity: &Identity) {
        self.admission = Admission::new(identity, self.admission.number());
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

    /// Where the connection to `pe` stands, if connections lead to peers.
    #[must_use]
    pub fn phase(&self, pe: u32) -> Phase {
        self.handshake(pe).map_or(Phase::Idle, Handshake::phase)
    }

    /// Whether the local program waits for a connection to `pe`.
    #[must_use]
    pub fn is_wanted(&self, pe: u32) -> bool {
        match &self.links {
            Links::Peers(peers) => peers.get(pe).is_some_and(Handshake::is_wanted),
            Links::Nodes(nodes) => nodes.is_wanted(pe),
        }
    }

    /// The connection to `pe`, for operations.
    #[must_use]
    #[inline]
    pub fn route(&self, pe: u32) -> Option<Route<'_>> {
        match &self.links {
            Links::Peers(peers) => peers.get(pe)?.route(),
            Links::Nodes(nodes) => nodes.route(pe),
        }
    }

    /// The local queue pair towards `pe` is in error, and stays so until it is destroyed. Returns which
    /// one that is.
    pub fn broke(&mut self, pe: u32) -> Option<Qpn> {
        match &mut self.links {
            Links::Peers(peers) => peers.get_mut(pe)?.broke(),
            Links::Nodes(nodes) => nodes.broke(pe),
        }
    }

    /// The local queue pair towards `pe`, if it is in error.
    #[must_use]
    pub fn in_error(&self, pe: u32) -> Option<Qpn> {
        match &self.links {
            Links::Peers(peers) => peers.get(pe)?.in_error(),
            Links::Nodes(nodes) => nodes.in_error(pe),
        }
    }

    /// The peers that are reached over the same queue pair as `pe`.
    #[must_use]
    pub fn sharers(&self, pe: u32) -> SmallVec<[u32; 4]> {
        match &self.links {
            Links::Peers(_) => SmallVec::from_iter([pe]),
            Links::Nodes(nodes) => nodes.sharers(pe).collect(),
        }
    }

    /// How many queue pairs there are, or are being made, of those that are limited ([`Local::max_qps`]).
    #[must_use]
    pub fn queue_pairs_held(&self) -> usize {
        match &self.links {
            Links::Peers(peers) => peers.queue_pairs_held(),
            Links::Nodes(_) => 0,
        }
    }

    /// How many peers we may use.
    #[must_use]
    pub fn open_peers(&self) -> usize {
        let all = self.peers();
        all.iter().filter(|pe| self.route(**pe).is_some()).count()
    }

    /// How many XRC initiators and how many targets there are.
    #[must_use]
    pub fn xrc_queue_pairs(&self) -> (u32, u32) {
        let all = self.nodes().map(Nodes::queue_pairs).unwrap_or_default();
        (all.0.len() as u32, all.1.len() as u32)
    }

    /// The local RC queue pair towards `pe` and its starting PSN.
    #[must_use]
    pub fn local_qp(&self, pe: u32) -> Option<(Qpn, Psn)> {
        self.handshake(pe)?.local_qp()
    }

    /// The same without the PSN.
    #[must_use]
    pub fn rc_qp(&self, pe: u32) -> Option<Qpn> {
        self.local_qp(pe).map(|(qpn, _)| qpn)
    }

    /// The peer to which an RC queue pair leads. Slow.
    #[must_use]
    pub fn rc_peer(&self, qpn: Qpn) -> Option<u32> {
        self.peers()
            .into_iter()
            .find(|pe| self.rc_qp(*pe) == Some(qpn))
    }

    /// To what the local RC queue pair towards `pe` is linked: QPN, starting PSN.
    #[must_use]
    pub fn linked_to(&self, pe: u32) -> Option<(Qpn, Psn)> {
        self.handshake(pe)?.linked_to()
    }

    fn handshake(&self, pe: u32) -> Option<&Handshake> {
        match &self.links {
            Links::Peers(peers) => peers.get(pe),
            Links::Nodes(_) => None,
        }
    }

    /// The connections, if they lead to nodes.
    #[must_use]
    pub const fn nodes(&self) -> Option<&Nodes> {
        match &self.links {
            Links::Peers(_) => None,
            Links::Nodes(nodes) => Some(nodes),
        }
    }

    /// The peer whose queue pair requests for `pe` go to, if there is one.
    #[must_use]
    pub fn direct(&self, pe: u32) -> Option<u32> {
        match &self.links {
            Links::Peers(_) => Some(pe),
            Links::Nodes(nodes) => nodes.direct(pe),
        }
    }

    /// Peers that were ever in contact, in ascending order.
    #[must_use]
    pub fn peers(&self) -> Vec<u32> {
        match &self.links {
            Links::Peers(peers) => peers.all(),
            Links::Nodes(nodes) => nodes.peers().collect(),
        }
    }

    /// Peers that may use their connection to us, whether or not we may use it, and with XRC
    /// also those that we may use.
    #[must_use]
    pub fn linked_peers(&self) -> Vec<u32> {
        let mut all = self.peers();
        all.retain(|pe| match &self.links {
            Links::Peers(_) => self.linked_to(*pe).is_some(),
            Links::Nodes(nodes) => nodes.is_reachable(*pe) || nodes.target(*pe).is_some(),
        });
        all
    }

    /// All connected queue pairs.
    #[must_use]
    pub fn queue_pairs(&self) -> Vec<Qpn> {
        match &self.links {
            Links::Peers(peers) => {
                let all = peers.all().into_iter();
                all.filter_map(|pe| self.rc_qp(pe)).collect()
            }
            Links::Nodes(nodes) => {
                let (mut all, targets) = nodes.queue_pairs();
                all.extend(targets);
                all
            }
        }
    }

    /// The local program wants a connection to `pe`, which is on `node` and whose UD endpoint is at
    /// `ud`.
    pub fn connect(&mut self, now: u64, pe: u32, node: u32, ud: UdAddress) {
        self.event(now, |links, cx| match links {
            Links::Peers(peers) => peers.event(cx, pe, |h, cx| h.connect(cx, ud)),
            Links::Nodes(nodes) => nodes.connect(cx, pe, node, ud),
        });
    }

    /// The memory of this PE is registered: those who wait for it get their answers.
    ///
    /// Later calls say that there is more, behind what there was: connected peers are told. With XRC a
    /// PE does not know who uses its memory, and is [asked again](Self::refresh).
    pub fn ready(&mut self, now: u64, memory: Memory) {
        let first = self.local.memory.replace(memory).is_none();
        self.event(now, |links, cx| match links {
            Links::Peers(peers) if first => peers.ready(cx),
            Links::Peers(peers) => peers.segments_added(cx),
            Links::Nodes(nodes) => nodes.ready(cx),
        });
    }

    /// A peer's segments as we know them lack one: asks for them again, now and then, if we would not be
    /// told.
    pub fn refresh(&mut self, now: u64, pe: u32) {
        self.event(now, |links, cx| match links {
            Links::Peers(_) => {}
            Links::Nodes(nodes) => nodes.refresh(cx, pe),
        });
    }

    /// No operation towards `pe` is under way on queue pair `qpn`, after [`Action::Drain`].
    pub fn drained(&mut self, now: u64, pe: u32, qpn: Qpn) {
        self.event(now, |links, cx| match links {
            Links::Peers(peers) => peers.event(cx, pe, |h, cx| h.drained(cx, qpn)),
            Links::Nodes(nodes) => nodes.drained(cx, pe, qpn),
        });
    }

    /// Operations towards `pe` are unfinished, and it waits for our BYE or DRAIN.
    pub fn busy(&mut self, now: u64, pe: u32) {
        self.event(now, |links, cx| match links {
            Links::Peers(peers) => peers.event(cx, pe, Handshake::busy),
            // They have told it already.
            Links::Nodes(_) => {}
        });
    }

    /// The queue pair that [`Action::CreateQp`] asked for exists, in INIT.
    pub fn qp_created(&mut self, now: u64, pe: u32, qpn: Qpn) {
        self.event(now, |links, cx| match links {
            Links::Peers(peers) => peers.event(cx, pe, |h, cx| h.qp_created(cx, qpn)),
            Links::Nodes(nodes) => nodes.qp_created(cx, pe, qpn),
        });
    }

    /// The queue pair that [`Action::CreateQp`] asked for could not be made.
    pub fn qp_failed(&mut self, now: u64, pe: u32, why: String) {
        self.event(now, |links, cx| match links {
            Links::Peers(peers) => peers.event(cx, pe, |h, cx| h.qp_failed(cx, why)),
            Links::Nodes(nodes) => nodes.qp_failed(cx, pe, &why),
        });
    }

    /// The queue pair that [`Action::CreateTarget`] asked for exists, in RTR, or could not be made.
    pub fn target_created(&mut self, now: u64, pe: u32, qpn: Option<Qpn>) {
        self.event(now, |links, cx| match (links, qpn) {
            (Links::Nodes(nodes), Some(qpn)) => nodes.target_created(cx, pe, qpn),
            (Links::Nodes(nodes), None) => nodes.target_failed(pe),
            (Links::Peers(_), _) => {}
        });
    }

    /// Whether somebody waits for a queue pair: [`make_room`](Self::make_room) may find one.
    #[must_use]
    pub fn is_short(&self) -> bool {
        match &self.links {
            Links::Peers(peers) => peers.is_short(),
            Links::Nodes(_) => false,
        }
    }

    /// The use of connections has changed, so that one more may be spared than before.
    pub const fn usage_changed(&mut self) {
        if let Links::Peers(peers) = &mut self.links {
            peers.usage_changed();
        }
    }

    /// Begins to close as many connections as requests wait for a queue pair, if that many can be
    /// spared. Call it when [`is_short`](Self::is_short).
    pub fn make_room(&mut self, now: u64, usage: impl Fn(u32) -> Usage) {
        self.event(now, |links, cx| {
            if let Links::Peers(peers) = links {
                peers.make_room(cx, usage);
            }
        });
    }

    /// Begins to leave: none of this PE's operations is under way, and none will be started.
    /// Requests are refused from now on, and each peer with which there is a connection is to be
    /// told ([`say_bye`](Self::say_bye)).
    ///
    /// [`has_left`](Self::has_left) becomes true when nobody is left who needs this PE, or when none of
    /// those gave a sign of life for `linger` nanoseconds.
    pub fn leave(&mut self, now: u64, linger: u64) {
        if self.leaving.is_some() {
            return;
        }
        let now_counted = self.timers.look(now);
        self.local.leaving = true;
        self.leaving = Some(Leaving::new(now_counted, linger, self.peers()));
        self.event(now, |links, _| {
            if let Links::Nodes(nodes) = links {
                nodes.drop_wants();
            }
        });
    }

    /// Tells up to `max` peers; returns whether there are more. In portions, since the
    /// send queue for datagrams is short.
    pub fn say_bye(&mut self, now: u64, max: usize) -> bool {
        for _ in 0..max {
            let Some(pe) = self.leaving.as_mut().and_then(Leaving::next_untold) else {
                return false;
            };
            self.event(now, |links, cx| match links {
                Links::Peers(peers) => peers.event(cx, pe, Handshake::leave),
                Links::Nodes(nodes) => nodes.leave(cx, pe),
            });
        }
        self.leaving.as_ref().is_some_and(|l| !l.all_are_told())
    }

    /// Packets of connections have arrived, so somebody still needs this PE.
    pub fn traffic_seen(&mut self, now: u64) {
        if let Some(leaving) = &mut self.leaving {
            leaving.heard(self.timers.look(now));
            self.timers.set(Timer::Linger, leaving.end());
        }
    }

    /// Whether this PE has left: nobody whom it could know of needs it any more.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.leaving.as_ref().is_some_and(Leaving::is_done)
    }

    /// A datagram has arrived at the UD endpoint. Returns what became of it; the error tells
    /// why it was rejected. Both are counted.
    ///
    /// # Errors
    /// It is no message of this job for this PE.
    pub fn handle_datagram(&mut self, now: u64, bytes: &[u8]) -> Result<Verdict, DecodeError> {
        let message = self.admission.admit(bytes, &mut self.stats)?;
        let pe = message.src_pe;
        self.count(&message.body);
        let missing = self.leaving.as_ref().is_some_and(|l| l.is_missing(pe));
        let verdict = self.event(now, |links, cx| match links {
            Links::Peers(peers) => peers.handle_message(cx, message),
            Links::Nodes(nodes) => nodes.handle_message(cx, message),
        });
        match verdict {
            Verdict::Accepted => {}
            Verdict::Duplicate => self.stats.duplicates += 1,
            Verdict::Stale => self.stats.stale += 1,
        }
        if missing && verdict != Verdict::Stale {
            self.traffic_seen(now);
        }
        Ok(verdict)
    }

    const fn count(&mut self, body: &Body) {
        match body {
            Body::Offer(_) => self.stats.offers_received += 1,
            Body::Wait => self.stats.waits_received += 1,
            Body::Bye => self.stats.byes_received += 1,
            Body::Drain(_) => self.stats.drains_received += 1,
            Body::Segments(_) | Body::SegmentsAck(_) | Body::Ask(_) => {}
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        self.timers.next()
    }

    /// Does what is due at `now`: sends again, gives up.
    pub fn handle_timeout(&mut self, now: u64) {
        self.timers.look(now);
        for timer in self.due() {
            self.fire(now, timer);
        }
    }

    /// What was due at the latest event, for who lets other things happen between one and the next.
    #[must_use]
    pub fn due(&self) -> Vec<Timer> {
        self.timers.due()
    }

    /// Does one thing that is [`due`](Self::due).
    pub fn fire(&mut self, now: u64, timer: Timer) {
        match timer {
            Timer::Linger => {
                if let Some(leaving) = &mut self.leaving {
                    self.stats.byes_missed += leaving.give_up();
                    self.timers.set(Timer::Linger, None);
                }
            }
            Timer::Room => self.event(now, |links, cx| {
                if let Links::Peers(peers) = links {
                    peers.look_for_room_again(cx.now);
                }
            }),
            Timer::Peer(pe) => self.event(now, |links, cx| match links {
                Links::Peers(peers) => peers.event(cx, pe, Handshake::handle_timeout),
                Links::Nodes(nodes) => nodes.handle_timeout(cx, pe),
            }),
        }
    }

    /// The next thing to do and the peer that it is for.
    pub fn poll_action(&mut self) -> Option<(u32, Action)> {
        self.actions.pop_front()
    }

    /// Encodes a message of [`Action::Send`]; returns its length in bytes.
    pub fn encode(&self, message: &Message, out: &mut [u8; MAX_LEN]) -> usize {
        self.admission.encode(message, out)
    }

    /// Lets something happen to the connections, and sets the timers that it may have changed. `now` is a
    /// reading of the driver's clock, here as everywhere.
    fn event<R>(
        &mut self,
        now: u64,
        event: impl FnOnce(&mut Links, &mut EventContext<'_>) -> R,
    ) -> R {
        let mut cx = EventContext {
            now: self.timers.look(now),
            local: &self.local,
            rng: &mut self.rng,
            actions: &mut self.actions,
            stats: &mut self.stats,
            clock: &mut self.clock,
            may_create: true,
        };
        let opened = cx.stats.opened;
        let result = event(&mut self.links, &mut cx);
        self.stats.note_time(opened, now);
        let silence = self.local.retry.silence;
        let touched = match &mut self.links {
            Links::Peers(peers) => peers.take_touched(),
            Links::Nodes(nodes) => nodes.take_touched(),
        };
        for pe in touched {
            let (next, missing) = match &self.links {
                Links::Peers(peers) => {
                    let h = peers.get(pe);
                    let missing = h.is_some_and(|h| h.phase() == Phase::Parting);
                    (h.and_then(|h| h.next_timeout(silence)), missing)
                }
                Links::Nodes(nodes) => (nodes.next_timeout(pe, silence), nodes.is_missing(pe)),
            };
            self.timers.set(Timer::Peer(pe), next);
            if let Some(leaving) = &mut self.leaving {
                leaving.note(pe, missing);
                self.timers.set(Timer::Linger, leaving.end());
            }
        }
        if let Links::Peers(peers) = &self.links {
            self.timers.set(Timer::Room, peers.next_search());
        }
        result
    }
}

#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod tests;
