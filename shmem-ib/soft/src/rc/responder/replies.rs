//! What a responder sends: acknowledgements and answers, in the order of their numbers, through one queue.

#![forbid(unsafe_code)]

use super::Responder;
use crate::memory::mr::MrTable;
use crate::rc::burst::BurstPosition;
use crate::rc::target::locate;
use crate::wire::{Aeth, Ext, NakCode, Opcode, Reth, Syndrome};
use crate::xrc::{Domain, Reach};
use shmem_verbs::{Access, Psn, Rkey, SrqNum};

/// A READ being answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// PSN of the first response packet of this request.
    pub(super) first: Psn,
    pub(super) packets: u32,
    /// Response packets already sent.
    pub(super) sent: u32,
    pub(super) reth: Reth,
    pub(super) srqn: Option<SrqNum>,
    pub(super) duplicate: bool,
}

impl Read {
    pub(super) fn next(&self) -> Psn {
        self.first.add(self.sent)
    }

    pub(super) fn contains(&self, psn: Psn) -> bool {
        let at = psn.since(self.first);
        at >= 0 && (at as u32) < self.packets
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Ack(Psn),
    Nak(Psn, NakCode),
    /// Receiver not ready.
    Rnr(Psn),
    /// PSN, old value, and whether it repeats an answer.
    Atomic(Psn, u64, bool),
    Read(Read),
}

/// One response packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Response {
    pub(crate) psn: Psn,
    pub(crate) opcode: Opcode,
    pub(crate) ext: Ext,
    /// Address and length of the payload in local memory; rights were checked.
    pub(crate) payload: Option<(u64, u32)>,
    /// The region that it lies in.
    pub(crate) rkey: Option<Rkey>,
    /// It is the last one of a burst, which had better not wait for more.
    pub(crate) ends_burst: bool,
}

impl Response {
    const fn without_data(psn: Psn, opcode: Opcode, ext: Ext) -> Self {
        Self {
            psn,
            opcode,
            ext,
            payload: None,
            rkey: None,
            ends_burst: false,
        }
    }
}

impl Responder {
    /// Whether the requester has more READs and atomics outstanding than was agreed.
    ///
    /// READs and atomics executed for the first time whose answers have not all been sent are
    /// outstanding for the requester, too. After a loss it may join what it had asked for in
    /// several pieces into one, hence the factor.
    pub(super) fn is_over_limit(&self) -> bool {
        let fresh = |r: &&Reply| match r {
            Reply::Read(read) => !read.duplicate,
            Reply::Atomic(_, _, duplicate) => !duplicate,
            _ => false,
        };
        let limit = 2 * self.max_rd_atomic;
        self.replies.len() >= limit && self.replies.iter().filter(fresh).count() >= limit
    }

    /// Whether so many answers are queued that only repetitions can be the cause.
    pub(super) fn is_crowded(&self) -> bool {
        self.replies.len() > 4 * self.max_rd_atomic + 4
    }

    pub(super) fn queue_ack(&mut self) {
        let psn = self.expected.add(Psn::MASK); // The one before.
        match self.replies.back_mut() {
            Some(Reply::Ack(waiting)) => *waiting = psn,
            _ => self.replies.push_back(Reply::Ack(psn)),
        }
    }

    /// An answer acknowledges what is before it, so a waiting ACK is not needed any more.
    pub(super) fn queue_answer(&mut self, reply: Reply) {
        if let Some(Reply::Ack(_)) = self.replies.back() {
            self.replies.pop_back();
        }
        self.replies.push_back(reply);
    }

    pub(super) fn queue_nak(&mut self, psn: Psn, code: NakCode) {
        if !matches!(self.replies.back(), Some(Reply::Nak(p, c)) if *p == psn && *c == code) {
            self.queue_answer(Reply::Nak(psn, code));
        }
    }

    /// Whether there is something to send.
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Whether an acknowledgement is all that there is to send.
    pub(crate) fn has_only_an_ack(&self) -> bool {
        self.replies.len() == 1 && matches!(self.replies.front(), Some(Reply::Ack(_)))
    }

    /// The refusal that ended this connection has to be told once more.
    pub(crate) fn refuse_again(&mut self) {
        if let Some((psn, code)) = self.fatal {
            self.queue_nak(psn, code);
        }
    }

    /// What a READ was to be answered with from this PSN on is not registered any more.
    pub(crate) fn lost_source(&mut self, psn: Psn) {
        self.fatal = Some((psn, NakCode::RemoteAccess));
        self.replies.clear();
        self.refuse_again();
    }

    /// The next response packet, or run of so many packets. `rights` are those of the queue pair, `domain` is that of an XRC
    /// target.
    pub(crate) fn poll(
        &mut self,
        mrs: &MrTable,
        rights: Access,
        domain: Option<&dyn Domain>,
        packets: u32,
    ) -> Option<Response> {
        let (psn, opcode, ext) = match *self.replies.front()? {
            Reply::Ack(psn) => (psn, Opcode::Ack, Ext::Aeth(self.aeth(self.ack))),
            Reply::Nak(psn, code) => (psn, Opcode::Ack, Ext::Aeth(self.aeth(Syndrome::Nak(code)))),
            Reply::Rnr(psn) => (
                psn,
                Opcode::Ack,
                Ext::Aeth(self.aeth(Syndrome::Rnr(self.rnr_timer))),
            ),
            Reply::Atomic(psn, old, _) => {
                let ext = Ext::AtomicAck(self.aeth(self.ack), old);
                (psn, Opcode::AtomicAck, ext)
            }
            Reply::Read(_) => return self.poll_read(mrs, rights, domain, packets),
        };
        self.replies.pop_front();
        Some(Response::without_data(psn, opcode, ext))
    }

    fn aeth(&self, syndrome: Syndrome) -> Aeth {
        let msn = self.msn;
        Aeth { syndrome, msn }
    }

    /// [`Self::poll`], when a READ is the first in the queue.
    fn poll_read(
        &mut self,
        mrs: &MrTable,
        rights: Access,
        domain: Option<&dyn Domain>,
        packets: u32,
    ) -> Option<Response> {
        let ack = Ext::Aeth(self.aeth(self.ack));
        let Some(Reply::Read(read)) = self.replies.front_mut() else {
            return None;
        };
        let psn = read.next();
        let offset = read.sent * self.mtu;
        let take = packets.min(read.packets - read.sent);
        let len = (read.reth.len - offset).min(take * self.mtu);
        let va = read.reth.va + u64::from(offset);
        let reach = Reach {
            rkey: read.reth.rkey,
            va,
            len: len.into(),
            need: Access::REMOTE_READ,
        };
        let from = match len {
            0 => None,
            _ => locate(mrs, rights, domain, read.srqn, &reach),
        };
        if len > 0 && from.is_none() {
            // Deregistered since the request was accepted.
            let code = NakCode::RemoteAccess;
            self.fatal = Some((psn, code));
            self.replies.clear();
            let nak = Ext::Aeth(self.aeth(Syndrome::Nak(code)));
            return Some(Response::without_data(psn, Opcode::Ack, nak));
        }
        let (opcode, ext) = match (read.sent, read.packets - read.sent - take + 1) {
            (0, 1) => (Opcode::ReadOnly, ack),
            (0, _) => (Opcode::ReadFirst, ack),
            (_, 1) => (Opcode::ReadLast, ack),
            _ => (Opcode::ReadMiddle, Ext::None),
        };
        let ends_burst =
            read.packets > 1 && BurstPosition::of(read.sent, read.packets, self.mtu).ends;
        let rkey = read.reth.rkey;
        read.sent += take;
        if read.sent == read.packets {
            self.replies.pop_front();
        }
        Some(Response {
            psn,
            opcode,
            ext,
            payload: from.map(|from| (from, len)),
            rkey: Some(rkey),
            ends_burst,
        })
    }
}
