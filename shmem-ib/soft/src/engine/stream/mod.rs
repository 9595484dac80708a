//! Streams: byte streams (TCP) by which the long messages of a queue pair go where the path is a network. The kernel's
//! segmentation, congestion control and recovery do for them what datagrams would have to do packet by packet.
//!
//! A stream belongs to one RC queue pair and to its requester: from there to the responder go requests, back go answers.
//! Nothing else changes: requests and answers are numbered as packets are, see `rc::requester::stream`; whenever a
//! stream breaks, datagrams go on.
//!
//! * `opening`: invitation, hello, and how many there may be.
//! * `output`: what goes out next, from the memory where it lies.
//! * `input`: what has come, to the memory where it belongs.
//!
//! Pure, as the engine: the driver does what [`Engine::poll_stream_action`] says, and moves bytes between its sockets and
//! [`Engine::stream_output`] and [`Engine::stream_room`].

#![forbid(unsafe_code)]

mod input;
mod opening;
mod output;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

pub use input::Room;
pub use output::{Output, Piece};

use super::machine::Engine;
use crate::memory::mr::Memory;
use crate::qp::{QueuePairs, RcService, Service};
use crate::secrets::Secrets;
use crate::wire::{Opcode, Packet, RUN_MAX, STAGED_MAX, Token};
use input::Inbox;
pub(crate) use opening::{Invitation, invite_header};
use output::Outgoing;
use shmem_verbs::provider::Slots;
use shmem_verbs::{Psn, Qpn};

/// Most streams of an HCA. Queue pairs beyond stay with datagrams.
pub(crate) const STREAMS_MAX: usize = 256;

/// A stream, as long as it is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u32);

/// How streams are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamConfig {
    /// Bytes of a WRITE or READ from which on it goes by a stream.
    pub from: u32,
    /// Most bytes of a WRITE or answer that go as one: the shorter, the sooner others get their turn and the more often it
    /// is acknowledged.
    pub run: u32,
    /// Bytes from which on what comes is received where it belongs instead of being copied there.
    pub direct: u32,
}

impl StreamConfig {
    /// The usual, for requests of at least so many bytes.
    #[must_use]
    pub const fn from_bytes(from: u32) -> Self {
        Self {
            from,
            run: RUN_MAX,
            direct: STAGED_MAX + 1,
        }
    }
}

/// What the driver has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamAction {
    /// Listen at the address of this port, and say where ([`Engine::stream_listening`]).
    Listen,
    /// Listen no more.
    Unlisten,
    /// Connect, and say when that is done ([`Engine::stream_connected`]).
    Connect(StreamId, SocketAddr),
    /// Close it. It does not exist any more.
    Close(StreamId),
}

/// Who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// Somebody who has not said yet.
    Stranger { from: IpAddr },
    /// The peer of this queue pair, which asked for the stream and sends requests by it.
    Inviter { qpn: Qpn },
    /// The peer of this queue pair, which has accepted; or who is being connected.
    Invited { qpn: Qpn, connected: bool },
}

#[derive(Debug)]
struct Stream {
    role: Role,
    /// When it is too late to say hello, or to be connected.
    until: Option<u64>,
    inbox: Inbox,
    out: Outgoing,
    in_ready: bool,
}

/// All streams of an HCA.
#[derive(Debug)]
pub(crate) struct Streams {
    config: Option<StreamConfig>,
    table: Slots<Box<Stream>>,
    /// How many there are that are no strangers', and strangers.
    count: usize,
    strangers: usize,
    /// Those that may have something to send, in turn.
    ready: VecDeque<StreamId>,
    actions: VecDeque<StreamAction>,
    listening: opening::Listening,
    /// The earliest time at which one is too late.
    until: Option<u64>,
    tokens: Secrets,
}

/// What a queue pair has to do with streams.
#[derive(Debug, Default)]
pub(crate) struct OfQueuePair {
    /// By which its requester sends.
    pub(crate) out: Option<StreamId>,
    /// By which the peer's does.
    back: Option<StreamId>,
    /// What the peer said when it invited to that.
    token: Option<Token>,
    /// Which of the peer's invitations that was: what was recorded of an earlier one does nothing.
    heard: u8,
    /// Its requests came by it last, so that answers go by it.
    pub(crate) answers: bool,
    /// The first of these.
    began: Psn,
    pub(crate) invitation: Option<Invitation>,
    /// Invitations so far.
    invited: u8,
}

impl OfQueuePair {
    /// By which the peer's requester sends.
    pub(crate) const fn back(&self) -> Option<StreamId> {
        self.back
    }

    /// The stream that the peer has left, if a request by a datagram is one that has come by it: what is still on the way by it
    /// would only be executed in between.
    pub(crate) fn left_for(&self, psn: Psn, expected: Psn) -> Option<StreamId> {
        let again = psn.since(self.began) >= 0 && psn.since(expected) < 0;
        self.back.filter(|_| self.answers && again)
    }

    /// A request has come by a datagram: so are answers to go, for the peer has left its stream, even if nobody has heard of that
    /// here. Returns false if it is a late one of before the stream, when everything was acknowledged.
    pub(crate) fn answer_by_datagrams(&mut self, psn: Psn) -> bool {
        if self.answers && psn.since(self.began) < 0 {
            return false;
        }
        self.answers = false;
        true
    }

    /// A request has come by the stream: so are answers to go.
    fn answer_by_stream(&mut self, psn: Psn) {
        if !std::mem::replace(&mut self.answers, true) {
            self.began = psn;
        }
    }
}

impl Streams {
    pub(crate) fn new(tokens: Secrets) -> Self {
        Self {
            config: None,
            table: Slots::default(),
            count: 0,
            strangers: 0,
            ready: VecDeque::new(),
            actions: VecDeque::new(),
            listening: opening::Listening::default(),
            until: None,
            tokens,
        }
    }

    /// Tokens are another secret's from now on.
    pub(crate) fn set_tokens(&mut self, tokens: Secrets) {
        self.tokens = tokens;
    }

    /// Bytes from which requests go by a stream.
    pub(crate) fn from(&self) -> Option<u32> {
        self.config.map(|config| config.from)
    }

    pub(crate) const fn until(&self) -> Option<u64> {
        self.until
    }

    fn get(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.table.get_mut(id.0).map(|stream| &mut **stream)
    }

    /// It may have something to send.
    pub(crate) fn mark(&mut self, id: StreamId) {
        if let Some(stream) = self.table.get_mut(id.0)
            && !std::mem::replace(&mut stream.in_ready, true)
        {
            self.ready.push_back(id);
        }
    }

    fn insert(&mut self, role: Role, until: u64) -> Option<StreamId> {
        let stream = Stream {
            role,
            until: Some(until),
            inbox: Inbox::default(),
            out: Outgoing::default(),
            in_ready: false,
        };
        let id = self.table.insert(Box::new(stream)).map(StreamId)?;
        match role {
            Role::Stranger { .. } => self.strangers += 1,
            _ => self.count += 1,
        }
        self.until = Some(self.until.map_or(until, |first| first.min(until)));
        Some(id)
    }

    /// Forgets a stream and has it closed.
    fn remove(&mut self, id: StreamId) -> Option<Role> {
        let stream = self.table.remove(id.0)?;
        match stream.role {
            Role::Stranger { .. } => self.strangers -= 1,
            _ => self.count -= 1,
        }
        self.actions.push_back(StreamAction::Close(id));
        Some(stream.role)
    }

    /// Looks for the earliest time anew.
    fn find_until(&mut self) {
        self.until = self.table.iter_mut().filter_map(|s| s.until).min();
    }

    /// A queue pair has failed, or is gone: so are its streams and its invitation.
    pub(crate) fn forget(&mut self, rc: &mut RcService) {
        let Some(of) = &mut rc.stream else { return };
        for id in of.out.take().into_iter().chain(of.back.take()) {
            self.remove(id);
        }
        (of.token, of.answers) = (None, false);
        self.end_invitation(of);
    }
}

/// The connection of a queue pair.
fn connection(qps: &mut QueuePairs, qpn: Qpn) -> Option<&mut RcService> {
    match &mut qps.get_mut(qpn.0)?.service {
        Service::Rc(rc) => Some(rc),
        Service::Ud(_) => None,
    }
}

impl<M: Memory> Engine<M> {
    /// Has long messages go by streams, for which the driver has sockets; not where peers are devices of other makes. To be called
    /// before queue pairs are made.
    pub fn set_streams(&mut self, config: StreamConfig) {
        self.streams.config = Some(StreamConfig {
            run: config.run.min(RUN_MAX),
            ..config
        });
    }

    /// What the driver has to do next.
    pub fn poll_stream_action(&mut self) -> Option<StreamAction> {
        self.streams.actions.pop_front()
    }

    /// Whether [`Engine::poll_stream_action`] or [`Engine::next_stream`] has something.
    pub fn streams_wait(&self) -> bool {
        !self.streams.actions.is_empty() || !self.streams.ready.is_empty()
    }

    /// How many streams there are.
    pub const fn stream_count(&self) -> usize {
        self.streams.count + self.streams.strangers
    }

    /// The next stream with something to send. Who cannot send all of it says so with [`Engine::stream_unblocked`].
    pub fn next_stream(&mut self) -> Option<StreamId> {
        loop {
            let id = self.streams.ready.pop_front()?;
            if let Some(stream) = self.streams.get(id) {
                stream.in_ready = false;
                return Some(id);
            }
        }
    }

    /// There is more to send by this stream, as soon as it takes it.
    pub fn stream_unblocked(&mut self, id: StreamId) {
        self.streams.mark(id);
    }

    /// A stream has ended, or says what it must not.
    pub fn stream_broke(&mut self, id: StreamId) {
        if let Some(role) = self.streams.remove(id) {
            self.stream_ended(id, role);
        }
    }

    /// What follows from the end of a stream: its queue pair goes on with datagrams.
    fn stream_ended(&mut self, id: StreamId, role: Role) {
        self.streams.find_until();
        let qpn = match role {
            Role::Stranger { .. } => return,
            Role::Inviter { qpn } | Role::Invited { qpn, .. } => qpn,
        };
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return;
        };
        let Some(of) = &mut rc.stream else { return };
        if of.out == Some(id) {
            of.out = None;
            if let Some(requester) = &mut rc.requester {
                requester.stream_broke();
            }
        }
        if of.back == Some(id) {
            (of.back, of.token, of.answers) = (None, None, false);
        }
        self.mark_ready(qpn);
        self.queue_timer(qpn);
    }

    /// Ends the stream that the requester of a queue pair has left by itself.
    pub(crate) fn end_left_stream(&mut self, qpn: Qpn) {
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return;
        };
        let (Some(requester), Some(of)) = (&mut rc.requester, &mut rc.stream) else {
            return;
        };
        if requester.has_left_stream()
            && let Some(id) = of.out
        {
            self.stream_broke(id);
        }
    }

    /// An answer has come by a datagram to who sends by a stream: the peer has left that. Nothing may come by both, since
    /// what is received where it belongs would be late.
    pub(crate) fn leave_stream_for(&mut self, packet: &Packet<'_>) {
        let qpn = packet.bth.dest_qp;
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return;
        };
        let (Some(requester), Some(of)) = (&rc.requester, &rc.stream) else {
            return;
        };
        let data = packet.bth.opcode != Opcode::Ack;
        if data
            && requester.is_by_stream()
            && requester.concerns(packet.bth.psn)
            && let Some(id) = of.out
        {
            self.stream_broke(id);
        }
    }

    /// A request that came by a datagram was executed: what a stream still brings is too late.
    pub(crate) fn end_run_under_way(&mut self, qpn: Qpn) {
        if let Some(id) = self.run_under_way(qpn) {
            self.stream_broke(id);
        }
    }

    /// Ends what has taken too long.
    pub(crate) fn streams_timeout(&mut self, now: u64) -> bool {
        if self.streams.until.is_none_or(|until| now < until) {
            return false;
        }
        let late = |(id, stream): (u32, &mut Box<Stream>)| {
            let late = stream.until.is_some_and(|until| until <= now);
            late.then_some(StreamId(id))
        };
        let ids: Vec<_> = self
            .streams
            .table
            .iter_numbered()
            .filter_map(late)
            .collect();
        for id in ids {
            self.stream_broke(id);
        }
        self.streams.find_until();
        true
    }
}
