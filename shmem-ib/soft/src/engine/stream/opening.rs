//! How a stream comes to be.
//!
//! ```text
//!   requester (inviter)                              responder (invited)
//!     first long request
//!     listens at a TCP port
//!     INVITE: port, token --- datagram, again ----->
//!                         <----------- TCP connection
//!                         <----- hello: queue pair, token
//!     first frame         ---------------------------->
//! ```
//! Meanwhile messages go by datagrams, as they do where nobody answers. The port is closed as soon as nobody is invited.
//!
//! An invitation carries a code that only holders of the job's key can compute ([`proof`](crate::proof)), and the number of the
//! first request of its queue pair; those before the last one that was accepted do nothing. So no stranger has a process connect.
//! The token is random and goes to the peer's address alone, so who says it is the peer, or can read the packets between the two.
//! Who says something else, or nothing in time, is closed.

#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};

use super::{Port, Role, STREAMS_MAX, StreamAction, StreamId, Streams, connection};
use crate::engine::Engine;
use crate::memory::mr::Memory;
use crate::proof::Direction;
use crate::qp::{Qp, RcService, Service};
use crate::rc::stream::{Invitation, QpStreams};
use crate::wire::{
    Bth, Ext, HELLO_LEN, Header, Hello, INVITE_LEN, Invite, Mac, Opcode, Packet, Token, same,
};
use shmem_verbs::{Mtu, Psn, QpState, QpType, Qpn};

/// Time until an invitation is repeated for the first time; it doubles.
const AGAIN_NS: u64 = 20_000_000;
/// How often it is sent.
const INVITES: u8 = 8;
/// How often a queue pair invites, the streams that broke included.
const ATTEMPTS: u8 = 4;
/// Time to say hello, or to be connected.
const HELLO_NS: u64 = 5_000_000_000;
/// Most connections of which nobody knows yet whose they are, beside one for each invitation.
const STRANGERS_MAX: usize = 16;

/// Whether a queue pair can have streams.
fn can_have(qp: &Qp, rc: &RcService) -> bool {
    let jumbo = rc.dest.is_none_or(|dest| dest.mtu > Mtu::M4096);
    qp.init.ty == QpType::Rc && !jumbo
}

impl Streams {
    fn new_token(&mut self) -> Token {
        let mut token = Token::default();
        let (low, high) = token.split_at_mut(8);
        low.copy_from_slice(&self.tokens.next_u64().to_be_bytes());
        high.copy_from_slice(&self.tokens.next_u64().to_be_bytes());
        token
    }

    /// Nobody is invited by this queue pair any more.
    pub(super) fn end_invitation(&mut self, of: &mut QpStreams) {
        if of.invitation.take().is_some() {
            self.listening.invitations -= 1;
            if self.listening.invitations == 0 && self.listening.port != Port::Closed {
                self.listening.port = Port::Closed;
                self.actions.push_back(StreamAction::Unlisten);
            }
        }
    }

    /// The invitation that a queue pair has to send now.
    pub(crate) fn invite_due(
        &mut self,
        now: u64,
        of: &mut QpStreams,
        mac: impl FnOnce(&[u8]) -> Mac,
    ) -> Option<[u8; INVITE_LEN]> {
        let Port::Open(port) = self.listening.port else {
            return None;
        };
        let invitation = of.invitation.as_mut().filter(|i| i.due_at.is_none())?;
        invitation.due_at = Some(now + (AGAIN_NS << invitation.sent));
        invitation.sent += 1;
        let (token, attempt) = (invitation.token, of.invited);
        let invite = Invite {
            attempt,
            port,
            token,
        };
        Some(invite.encode(mac))
    }
}

impl<M: Memory> Engine<M> {
    /// A queue pair has to send a long message: it invites its peer to a stream, unless it has one, or has asked often enough.
    pub(crate) fn want_stream(&mut self, qpn: Qpn, len: u32) {
        let Some(qp) = self.qps.get_mut(qpn.0) else {
            return;
        };
        let able = match &qp.service {
            Service::Rc(rc) => can_have(qp, rc),
            Service::Ud(_) => false,
        };
        let Some(rc) = connection(&mut self.qps, qpn).filter(|_| able) else {
            return;
        };
        let lacks = rc.requester.as_ref().is_some_and(|r| r.lacks_stream(len));
        let streams = &mut self.streams;
        if !lacks || streams.count + streams.listening.invitations >= STREAMS_MAX {
            return;
        }
        let of = rc.stream.get_or_insert_default();
        if of.invitation.is_some() || of.out.is_some() || of.invited >= ATTEMPTS {
            return;
        }
        of.invited += 1;
        let token = streams.new_token();
        let (sent, due_at) = (0, None);
        of.invitation = Some(Invitation {
            token,
            sent,
            due_at,
        });
        let listening = &mut streams.listening;
        listening.invitations += 1;
        match listening.port {
            Port::Closed => {
                listening.port = Port::Asked;
                listening.waiting.push(qpn);
                streams.actions.push_back(StreamAction::Listen);
            }
            Port::Asked => listening.waiting.push(qpn),
            Port::Open(_) => self.mark_ready(qpn),
        }
    }

    /// The driver listens at this TCP port; or there is none for it, and nobody is invited.
    pub fn stream_listening(&mut self, port: Option<u16>) {
        let waiting = std::mem::take(&mut self.streams.listening.waiting);
        if self.streams.listening.port != Port::Asked {
            return;
        }
        if let Some(port) = port {
            self.streams.listening.port = Port::Open(port);
        }
        for qpn in waiting {
            match port {
                Some(_) => self.mark_ready(qpn),
                None => {
                    if let Some(rc) = connection(&mut self.qps, qpn)
                        && let Some(of) = &mut rc.stream
                    {
                        // What is lacking now will hardly be there soon.
                        of.invited = ATTEMPTS;
                        self.streams.end_invitation(of);
                    }
                }
            }
        }
    }

    /// Sends an invitation again, or gives it up.
    pub(crate) fn invitation_timeout(&mut self, now: u64, qpn: Qpn) {
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return;
        };
        let Some(of) = &mut rc.stream else { return };
        let Some(invitation) = &mut of.invitation else {
            return;
        };
        if invitation.due_at.is_some_and(|at| at <= now) {
            if invitation.sent >= INVITES {
                of.invited = ATTEMPTS;
                self.streams.end_invitation(of);
            } else {
                invitation.due_at = None;
                self.mark_ready(qpn);
            }
        }
    }

    /// Takes an INVITE of the peer of a queue pair.
    pub(crate) fn handle_invite(&mut self, now: u64, packet: &Packet<'_>) -> bool {
        let (qpn, own) = (packet.bth.dest_qp, self.port.av);
        let known = |qp: &&mut Box<Qp>| matches!(qp.state, QpState::Rtr | QpState::Rts);
        let Some(qp) = self.qps.get_mut(qpn.0).filter(known) else {
            return false;
        };
        let able = match &qp.service {
            Service::Rc(rc) => can_have(qp, rc),
            Service::Ud(_) => false,
        };
        if !able || self.interop || self.streams.config.is_none() {
            return false;
        }
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return false;
        };
        let Some(dest) = rc.dest else { return false };
        let (direction, first) = (Direction::new(dest.av, own, qpn), dest.rq_psn);
        let mac = |text: &[u8]| self.proof.of_invite(&direction, first, text);
        let invite = Invite::decode(packet.payload, mac).filter(|_| packet.bth.psn == first);
        let Some(invite) = invite else { return false };
        let of = rc.stream.get_or_insert_default();
        if of.token.is_some_and(|token| same(&token, &invite.token)) {
            return true; // It is repeated.
        }
        if invite.attempt <= of.heard {
            return false;
        }
        // It has lost the one before.
        if let Some(before) = of.back {
            self.stream_broke(before);
        }
        let full = self.streams.count >= STREAMS_MAX;
        let role = Role::Invited {
            qpn,
            connected: false,
        };
        let id = match full {
            true => None,
            false => self.streams.insert(role, now + HELLO_NS),
        };
        if let Some(id) = id
            && let Some(rc) = connection(&mut self.qps, qpn)
        {
            let of = rc.stream.get_or_insert_default();
            (of.back, of.token) = (Some(id), Some(invite.token));
            of.heard = invite.attempt;
            let to = SocketAddr::new(dest.av.gid.ip(), invite.port);
            let connect = StreamAction::Connect(id, to);
            self.streams.actions.push_back(connect);
        }
        true
    }

    /// The peer that has invited is connected.
    pub fn stream_connected(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        let Role::Invited { qpn, connected } = &mut stream.role else {
            return;
        };
        *connected = true;
        let qpn = *qpn;
        stream.until = None;
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return;
        };
        let (Some(of), Some(dest)) = (&rc.stream, &rc.dest) else {
            return;
        };
        let Some(token) = of.token else { return };
        let hello = Hello {
            qpn: dest.qpn,
            token,
        };
        stream.out.say(&hello.encode());
        self.streams.mark(id);
        self.streams.find_until();
        self.counters.streams_opened += 1;
    }

    /// Somebody has connected. `None`: it is to be closed.
    pub fn stream_accepted(&mut self, now: u64, from: IpAddr) -> Option<StreamId> {
        let listening = &self.streams.listening;
        let wanted = matches!(listening.port, Port::Open(_));
        if !wanted || self.streams.strangers >= STRANGERS_MAX + listening.invitations {
            return None;
        }
        let from = from.to_canonical();
        self.streams.insert(Role::Stranger { from }, now + HELLO_NS)
    }

    /// What a stranger has said; whether that was good.
    pub(super) fn take_hello(
        &mut self,
        id: StreamId,
        from: IpAddr,
        said: &[u8; HELLO_LEN],
    ) -> bool {
        let Some(Hello { qpn, token }) = Hello::decode(said) else {
            return false;
        };
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return false;
        };
        let (Some(of), Some(requester)) = (&mut rc.stream, &mut rc.requester) else {
            return false;
        };
        let ours = rc.dest.is_some_and(|dest| dest.av.gid.ip() == from);
        let invited = of.invitation.is_some_and(|i| same(&i.token, &token));
        if !ours || !invited || of.out.is_some() || self.streams.count >= STREAMS_MAX {
            return false;
        }
        of.out = Some(id);
        requester.stream_opened();
        self.streams.end_invitation(of);
        if let Some(stream) = self.streams.get(id) {
            stream.role = Role::Inviter { qpn };
            stream.until = None;
            self.streams.strangers -= 1;
            self.streams.count += 1;
        }
        self.streams.find_until();
        self.counters.streams_opened += 1;
        true
    }
}

/// The headers of an INVITE to a queue pair.
pub(crate) fn invite_header(pkey: u16, to: Qpn, first: Psn) -> Header {
    let bth = Bth {
        pkey,
        ..Bth::new(Opcode::Invite, to, first, false)
    };
    let ext = Ext::None;
    Header { bth, ext }
}
