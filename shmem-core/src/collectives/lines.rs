//! Exchange of cache lines: few members of one node, who poll, show each other a word of progress and a
//! few bytes.
//!
//! Each member has two *lines* in its slot that it alone writes. It writes its bytes and then the
//! number of the exchange into one of them, and waits until the others' lines have that number. So an
//! exchange takes as long as one cache line needs from one core to the other, whereas a meeting at a
//! common counter takes several of those. But everybody looks at everybody, so it is for few; and a PE
//! sleeps at its doorbell, which costs more than sleeping at a barrier, so it is for nodes whose PEs
//! poll.
//!
//! Lines are used in turn: a member that writes one has completed the exchange in between, so all have read what
//! stood there before.

use std::sync::atomic::{Ordering, fence};

use super::links::Counter;
use super::select::{Here, Layout, Operation, select};
use crate::heap::access;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::{LINE_DATA, LINES, LINES_APART};

/// The lines of all members after an exchange.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    rt: &'a Runtime,
    team: &'a Team,
    line: usize,
}

impl Lines<'_> {
    /// What the `i`th member gave. It lies aligned to a cache line, and there until this PE's next
    /// exchange in the team.
    pub(super) fn of(&self, i: usize) -> *const u8 {
        self.rt.neighbour(self.team.mapping().local(i), self.line)
    }
}

/// Whether the members wait for each other in this way.
#[inline]
pub(super) fn meets_by_lines(team: &Team) -> bool {
    select(Operation::Sync, 0, Layout::of(team)).here == Here::Lines
}

impl Runtime {
    /// Gives the `len` bytes at `from`, at most [`LINE_DATA`], and gets what the others give. Where
    /// [`select`] says so.
    #[inline]
    pub(super) fn exchange_lines<'a>(
        &'a self,
        team: &'a Team,
        from: *const u8,
        len: usize,
    ) -> Lines<'a> {
        assert!(len <= LINE_DATA);
        let number = self.count(team, Counter::Lines, 1) + 1;
        let line = team.slot(LINES) + (number % 2) as usize * LINES_APART;
        if len > 0 {
            // SAFETY: a line has room, and nobody reads it any more; readable by the caller.
            unsafe { access::copy(from, self.own(line), len) };
        }
        // ORDERING(lines): what this member gives, and all it did before, comes before the number.
        fence(Ordering::Release);
        self.set_word(line + LINE_DATA, number);
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
            let at = self.neighbour(local, line + LINE_DATA).cast_const();
            // SAFETY: an aligned word of a segment of this node.
            // ORDERING(lines): the load acquires what came before the number.
            let here = || unsafe { access::load(at) } >= number;
            self.wait_for(|| self.in_collective(team), here);
        }
        Lines {
            rt: self,
            team,
            line,
        }
    }

    /// Waits for the members, all on this node, and nothing else.
    #[inline]
    pub(super) fn meet_here(&self, team: &Team) {
        if meets_by_lines(team) {
            self.exchange_lines(team, std::ptr::null(), 0);
        } else {
            self.meet_only(team);
        }
    }

    /// Begins the lines of a slot anew, before the team uses it.
    pub(crate) fn reset_lines(&self, team: &Team) {
        if meets_by_lines(team) {
            self.set_counter(team, Counter::Lines, 0);
            for line in [0, LINES_APART] {
                self.set_word(team.slot(LINES) + line + LINE_DATA, 0);
            }
        }
    }
}
