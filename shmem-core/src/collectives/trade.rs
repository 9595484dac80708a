//! Trading: few members of one node, who poll, show each other a word of progress and a few bytes.
//!
//! Each member has two *lines* in its slot that it alone writes. To trade it writes its bytes and
//! then the number of the trade into one of them, and waits until the others' lines have that
//! number. So a trade takes as long as one cache line needs from one core to the other, whereas a
//! meeting at a common counter takes several of those. But everybody looks at everybody, so it is for
//! few; and a PE sleeps at its doorbell, which costs more than sleeping at a barrier, so it is for
//! nodes whose PEs poll.
//!
//! Lines are used in turn: who writes one has completed the trade in between, so all have read what
//! stood there before.

use std::sync::atomic::{Ordering, fence};

use super::links::Counter;
use crate::heap::access;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::{LINE, TRADE, TRADE_APART};

/// Bytes of a line that a trade can carry; the number follows.
pub(super) const CARGO: usize = LINE - 8;

/// A trade that is complete: what all members gave.
#[derive(Clone, Copy)]
pub(super) struct Trade<'a> {
    rt: &'a Runtime,
    team: &'a Team,
    line: usize,
}

impl Trade<'_> {
    /// What the `i`th member gave. It lies aligned to a cache line, and there until this PE's next
    /// trade in the team.
    pub(super) fn of(&self, i: usize) -> *const u8 {
        self.rt.neighbour(self.team.mapping().local(i), self.line)
    }
}

impl Runtime {
    /// Gives the `len` bytes at `from`, at most [`CARGO`], and gets what the others give. For
    /// teams that [trade](Team::trades).
    #[inline]
    pub(super) fn trade<'a>(&'a self, team: &'a Team, from: *const u8, len: usize) -> Trade<'a> {
        assert!(len <= CARGO);
        let number = self.count(team, Counter::Trades, 1) + 1;
        let line = team.slot(TRADE) + (number % 2) as usize * TRADE_APART;
        if len > 0 {
            // SAFETY: a line has room, and nobody reads it any more; readable by the caller.
            unsafe { access::copy(from, self.own(line), len) };
        }
        self.announce_trade(team, number);
        // ORDERING(trade): what this member gives, and all it did before, comes before the number.
        fence(Ordering::Release);
        self.set_word(line + CARGO, number);
        let mapping = team.mapping();
        let others = (1..mapping.n_here()).map(|step| {
            // Beginning with the next spreads the load.
            let i = mapping.index() + step;
            mapping.local(if i < mapping.n_here() {
                i
            } else {
                i - mapping.n_here()
            })
        });
        for local in others.clone() {
            self.node.pe_block(local).doorbell.ring();
        }
        for local in others {
            let at = self.neighbour(local, line + CARGO).cast_const();
            // SAFETY: an aligned word of a segment of this node.
            // ORDERING(trade): the load acquires what came before the number.
            self.wait_for(|| unsafe { access::load(at) } >= number);
        }
        self.compare_trade(team, number);
        Trade {
            rt: self,
            team,
            line,
        }
    }

    /// Waits for the members, all on this node, and nothing else.
    #[inline]
    pub(super) fn meet_here(&self, team: &Team) {
        if team.trades() {
            self.trade(team, std::ptr::null(), 0);
        } else {
            self.meet(team, || {});
        }
    }

    /// Begins the lines of a slot anew, before the team uses it.
    pub(crate) fn reset_trades(&self, team: &Team) {
        self.set_counter(team, Counter::Trades, 0);
        for line in [0, TRADE_APART] {
            self.set_word(team.slot(TRADE) + line + CARGO, 0);
        }
    }
}
