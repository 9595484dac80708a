//! Meeting: the members of a node wait for each other, and one of them may act for all in between.
//!
//! Where nobody acts for others and cores are to spare, nobody needs to be told that all are there by
//! one that knows: each member tells those 1, 2, 4... places further on, each of them after having
//! heard from as far behind (dissemination; Hensgen, Finkel and Manber, 1988). Two members exchange one
//! line of memory each way at the same time, which is all that it takes. With more PEs than cores,
//! those who wait sleep, and waking all of them at once from one place costs less.

use shmem_node::barrier::{Arrival, NodeBarrier};

use crate::heap::access;
use crate::runtime::Runtime;
use crate::team::{Team, slots};

impl Runtime {
    fn await_release(&self, barrier: &NodeBarrier, arrival: Arrival) {
        if !self.spin_until(|| barrier.released(arrival)) {
            barrier.wait_release(arrival);
        }
    }

    /// Meets the members of this node. One of them runs `lead` when all are there, and everybody
    /// leaves after that: the last to come where the team is on one node, else the leader, who has
    /// the connections.
    pub(super) fn meet(&self, team: &Team, lead: impl FnOnce()) {
        let (place, barrier) = (team.place(), team.meeting_point());
        let n = place.n_here() as u32;
        if n == 1 {
            lead();
        } else if place.n_nodes() == 1 {
            match barrier.arrive_or_lead(n) {
                Some(arrival) => self.await_release(barrier, arrival),
                None => {
                    lead();
                    barrier.release();
                }
            }
        } else if place.leads() {
            if !self.spin_until(|| barrier.complete(n)) {
                barrier.wait_complete(n);
            }
            lead();
            barrier.release();
        } else {
            let arrival = barrier.arrive(n);
            self.await_release(barrier, arrival);
        }
    }

    /// Whether the members of a team meet without a leader.
    fn disseminates(&self, team: &Team) -> bool {
        team.place().n_nodes() == 1 && self.node.spins() > 0
    }

    /// Meets the members of this node, none of whom acts for the others.
    pub(super) fn meet_as_equals(&self, team: &Team) {
        if !self.disseminates(team) {
            return self.meet(team, || {});
        }
        let place = team.place();
        let (n, meeting) = (place.n_here(), team.next_meeting());
        let mut distance = 1;
        let mut flag = team.slot(slots::MEETINGS);
        while distance < n {
            let told = place.local((place.index() + distance) % n);
            // ORDERING(meeting): what this PE did, and what those did that it has heard of, comes before
            // what the PE that is told does next; pairs with the loads of `word`.
            // SAFETY: an aligned word of the runtime's part of a segment.
            unsafe { access::store(self.neighbour(told, flag), meeting) };
            self.ring_at(told);
            self.wait_for(|| self.word(flag) >= meeting);
            distance *= 2;
            flag += slots::LINE;
        }
    }

    /// Begins the numbers of a new team's meetings anew, before any member may tell of one.
    pub(crate) fn reset_meetings(&self, team: &Team) {
        if self.disseminates(team) {
            for line in 0..slots::DISTANCES {
                self.set_word(team.slot(slots::MEETINGS) + line * slots::LINE, 0);
            }
        }
    }

    /// After a meeting: says that this PE needs nothing any more that member `shows` of this node
    /// shows, or waits, as that one, until nobody does.
    pub(super) fn depart(&self, team: &Team, shows: usize) {
        let (place, barrier) = (team.place(), team.meeting_point());
        let n = place.n_here() as u32;
        if place.index() != shows {
            barrier.depart(n);
        } else if n > 1 {
            if !self.spin_until(|| barrier.all_departed(n)) {
                barrier.wait_departed(n);
            }
            barrier.departures_seen();
        }
    }

    /// Meets all PEs of this node and nobody else.
    pub(crate) fn node_barrier(&self) {
        let (barrier, n) = (self.node.barrier(), self.node.n_local() as u32);
        match barrier.arrive_or_lead(n) {
            Some(arrival) => self.await_release(barrier, arrival),
            None => barrier.release(),
        }
    }

    /// Waits for all members.
    pub(crate) fn team_sync(&self, team: &Team) {
        if team.place().n_nodes() > 1 {
            self.meet(team, || self.meet_leaders(team));
        } else {
            self.meet_as_equals(team);
        }
    }

    /// Completes what this PE has started, and waits for all members.
    pub(crate) fn team_barrier(&self, team: &Team) {
        self.quiet();
        self.team_sync(team);
    }

    /// Address of what lies `at` bytes into the slot of the leader on this node.
    pub(super) fn leader_slot(&self, team: &Team, at: usize) -> *mut u8 {
        self.neighbour(team.place().local(0), team.slot(at))
    }
}
