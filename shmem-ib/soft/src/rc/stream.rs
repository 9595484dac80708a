//! What a queue pair has to do with streams: those by which it sends and is sent to, and its invitation to one.

#![forbid(unsafe_code)]

use crate::wire::Token;
use shmem_verbs::Psn;

/// A stream, as long as it is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u32);

/// What a queue pair has to do with streams.
#[derive(Debug, Default)]
pub(crate) struct QpStreams {
    /// By which its requester sends.
    pub(crate) out: Option<StreamId>,
    /// By which the peer's does.
    pub(crate) back: Option<StreamId>,
    /// What the peer said when it invited to that.
    pub(crate) token: Option<Token>,
    /// Which of the peer's invitations that was: what was recorded of an earlier one does nothing.
    pub(crate) heard: u8,
    /// Its requests came by it last, so that answers go by it.
    pub(crate) answers: bool,
    /// The first of these.
    pub(crate) began: Psn,
    pub(crate) invitation: Option<Invitation>,
    /// Invitations so far.
    pub(crate) invited: u8,
}

impl QpStreams {
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
    pub(crate) fn answer_by_stream(&mut self, psn: Psn) {
        if !std::mem::replace(&mut self.answers, true) {
            self.began = psn;
        }
    }
}

/// An invitation that nobody has accepted yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Invitation {
    pub(crate) token: Token,
    /// How often it was sent.
    pub(crate) sent: u8,
    /// When it is sent again, or ends; `None`: to be sent at once.
    pub(crate) due_at: Option<u64>,
}
