//! What a connection means to the line of those who want a queue pair
//! ([`manager/room.rs`](crate::manager)).

use super::Handshake;
use super::state::State;

/// What a connection means to who looks for a queue pair that can be spared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It has no queue pair.
    Without,
    /// Nobody can be using its queue pair.
    Unused,
    /// In use by either side, as far as can be known here.
    InUse,
    /// Somebody waits for it to open.
    Wanted {
        /// Ticket of the local program.
        own: Option<u64>,
        /// Ticket of the peer, and when it last asked.
        asked: Option<(u64, u64)>,
    },
    /// It is being closed to make room, since that time.
    Going(u64),
    /// It stays: its queue pair is just being made, or this PE leaves.
    Fixed,
}

impl Handshake {
    /// What this connection means to who looks for a queue pair.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let own = self.want.map(|want| want.ticket);
        match &self.state {
            State::Idle
            | State::Preparing {
                creating: false, ..
            } => Standing::Without,
            State::Preparing { creating: true, .. } => Standing::Fixed,
            State::Offered(_) if own.is_none() && self.asked.is_none() => Standing::Unused,
            // A peer that is still to open it does so while it drains.
            State::Answered(_) if own.is_none() => Standing::InUse,
            State::Offered(_) | State::Answered(_) => Standing::Wanted {
                own,
                asked: self.asked,
            },
            State::Open(_) => Standing::InUse,
            State::Draining(_, drain) => Standing::Going(drain.began),
            State::Parting(..) | State::Parted(..) => Standing::Fixed,
        }
    }

    /// If all that is missing is a queue pair ([`EventContext::may_create`](crate::interface::EventContext)): the
    /// place in the line, as ticket and PE that asks.
    #[must_use]
    pub fn waiting(&self, me: u32) -> Option<(u64, u32)> {
        let State::Preparing {
            creating: false,
            offer,
        } = &self.state
        else {
            return None;
        };
        let mine = self.want.map(|want| (want.ticket, me));
        let asked = offer.as_ref().filter(|offer| offer.want_reply);
        let its = asked.map(|offer| (offer.ticket, self.pe));
        mine.into_iter().chain(its).min()
    }
}
