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
//! * `ends`: how streams end; datagrams go on.
//!
//! Pure, as the engine: the driver does what [`Engine::poll_stream_action`](crate::Engine::poll_stream_action) says, and moves bytes between its sockets and
//! [`Engine::stream_output`](crate::Engine::stream_output) and [`Engine::stream_room`](crate::Engine::stream_room).

#![forbid(unsafe_code)]

mod ends;
mod input;
mod opening;
mod output;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;

pub use crate::rc::stream::StreamId;
pub use input::Room;
pub(crate) use opening::invite_header;
pub use output::Output;

use crate::memory::mr::MrTable;
use crate::qp::{QueuePairs, RcService, Service};
use crate::secrets::Secrets;
use crate::wire::{FRAME_HEAD_MAX, Frame, Header, RUN_MAX, STAGED_MAX};
use shmem_verbs::provider::Slots;
use shmem_verbs::{Access, Psn, Qpn};

/// Most streams of an HCA. Queue pairs beyond stay with datagrams.
pub(crate) const STREAMS_MAX: usize = 256;

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
    /// Listen at the address of this port, and say where ([`Engine::stream_listening`](crate::Engine::stream_listening)).
    Listen,
    /// Listen no more.
    Unlisten,
    /// Connect, and say when that is done ([`Engine::stream_connected`](crate::Engine::stream_connected)).
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
    listening: Listening,
    /// The earliest time at which one is too late.
    until: Option<u64>,
    tokens: Secrets,
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
            listening: Listening::default(),
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

/// What has come and not been executed.
#[derive(Debug, Default)]
struct Inbox {
    /// Empty until the first byte is expected.
    buffer: Vec<u8>,
    have: usize,
    run: Option<Incoming>,
}

/// A run that is received where it belongs.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    frame: Frame,
    /// Where the next byte belongs.
    addr: u64,
    left: usize,
    key: u32,
    need: Access,
}

/// Memory that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// First byte, in registered memory.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    piece: Piece,
    key: u32,
    need: Access,
}

/// What has been made and not sent.
#[derive(Debug, Default)]
struct Outgoing {
    head: Vec<u8>,
    /// How much of it was sent.
    sent: usize,
    sources: SmallVec<[Source; 2]>,
    /// The number of the frame that `sources` belong to.
    psn: Psn,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.sent == self.head.len() && self.sources.is_empty()
    }

    /// Appends bytes.
    fn say(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
    }

    /// Appends the head of a frame.
    fn begin(&mut self, header: Header, len: u32) {
        let mut head = [0; FRAME_HEAD_MAX];
        let n = Frame { header, len }.encode(&mut head);
        self.say(&head[..n]);
    }

    /// Appends so many bytes that `fill` writes.
    fn copy<E>(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = self.head.len();
        self.head.resize(at + len, 0);
        fill(&mut self.head[at..])
    }

    fn advance(&mut self, mut sent: usize) {
        let of_head = sent.min(self.head.len() - self.sent);
        self.sent += of_head;
        sent -= of_head;
        while sent > 0
            && let Some(first) = self.sources.first_mut()
        {
            let piece = &mut first.piece;
            let here = sent.min(piece.len);
            piece.addr += here as u64;
            piece.len -= here;
            sent -= here;
            if piece.len == 0 {
                self.sources.remove(0);
            }
        }
        if self.is_empty() {
            self.head.clear();
            self.sent = 0;
        }
    }

    fn covered(&self, mrs: &MrTable) -> bool {
        let covered = |s: &Source| mrs.covers(s.key, s.piece.addr, s.piece.len as u64, s.need);
        self.sources.iter().all(covered)
    }
}

/// Whether somebody can connect.
#[derive(Debug, Default)]
struct Listening {
    port: Port,
    /// Queue pairs that have invited.
    invitations: usize,
    /// Those that wait for the port.
    waiting: Vec<Qpn>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Port {
    #[default]
    Closed,
    Asked,
    Open(u16),
}

/// The connection of a queue pair.
fn connection(qps: &mut QueuePairs, qpn: Qpn) -> Option<&mut RcService> {
    match &mut qps.get_mut(qpn.0)?.service {
        Service::Rc(rc) => Some(rc),
        Service::Ud(_) => None,
    }
}
