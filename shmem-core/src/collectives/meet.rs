//! Meeting: the members of a node wait for each other, and one of them acts for all in between.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use shmem_ib::spin;
use shmem_node::barrier::{Arrival, NodeBarrier};
use shmem_node::waiting::Wait;

use super::entry::WorldCollective;
use super::lines::meets_by_lines;
use super::select::crowd;
use crate::naps::{FIRST_NAP, LAST_NAP, driven_mpi};
use crate::runtime::Runtime;
use crate::team::Team;

/// How often a PE that waits for others of its node yields its core before it sleeps. Where many PEs share
/// a core, most of them come to the meeting in that time, and neither they nor the one that releases
/// them pay for sleep and wake-up, which take longer than changing from one to the next.
const YIELDS: u32 = 4;

/// Up to so many PEs for each core. Of more, few come in the time of some yields, above all at the start.
const MOST_PER_CORE: usize = 64;

/// PEs that meet run again sooner after a yield; who does not has left its core to somebody who
/// computes, and would have been woken from sleep earlier.
const LATE: Duration = Duration::from_millis(1);

/// Waits that end in sleep at once after one that was late, at first and at most.
const SLEEPS: u32 = 16;
const MOST_SLEEPS: u32 = 4096;

/// Whether yielding the core pays in this process now. Only a heuristic, so all accesses are relaxed,
/// and an update that is lost does no harm.
#[derive(Debug)]
struct Yielding {
    /// Waits that are still to sleep at once.
    sleeps: AtomicU32,
    /// How many there were to be after the last late one.
    penalty: AtomicU32,
}

static YIELDING: Yielding = Yielding {
    sleeps: AtomicU32::new(0),
    penalty: AtomicU32::new(0),
};

impl Yielding {
    /// Whether this wait should yield.
    fn pays(&self) -> bool {
        let sleeps = self.sleeps.load(Ordering::Relaxed);
        if sleeps > 0 {
            self.sleeps.store(sleeps - 1, Ordering::Relaxed);
        }
        sleeps == 0
    }

    /// A wait has yielded the core, and was without it so long.
    fn resumed(&self, after: Duration) {
        let penalty = self.penalty.load(Ordering::Relaxed);
        if after > LATE {
            let more = (penalty * 2).clamp(SLEEPS, MOST_SLEEPS);
            self.penalty.store(more, Ordering::Relaxed);
            self.sleeps.store(more, Ordering::Relaxed);
        } else if penalty > 0 {
            self.penalty
                .store(penalty - penalty.div_ceil(64), Ordering::Relaxed);
        }
    }
}

impl Runtime {
    /// Waits as long as it is cheaper than sleeping. Returns whether `ready()` holds.
    #[inline]
    fn polled(&self, ready: impl Fn() -> bool) -> bool {
        self.spin_until(&ready) || (self.waits.crowd <= MOST_PER_CORE && yielded(ready))
    }

    fn await_release(&self, barrier: &NodeBarrier, arrival: Arrival, what: impl Fn() -> Wait) {
        let released = || barrier.released(arrival);
        if !self.polled(released) {
            self.sleep(what, released, |max| barrier.sleep_unreleased(arrival, max));
        }
    }

    /// Sleeps until `ready()` holds, and tells for what. `nap` sleeps, at most so long, until that may be. Who is
    /// waited for may wait in MPI for this process.
    #[cold]
    #[inline(never)]
    fn sleep(
        &self,
        what: impl Fn() -> Wait,
        ready: impl Fn() -> bool,
        nap: impl Fn(Option<Duration>),
    ) {
        let _report = self.report_wait(what());
        let Some(mpi) = driven_mpi() else {
            while !ready() {
                nap(None);
            }
            return;
        };
        let (turn, mut most) = (self.waits.turns.take(), FIRST_NAP);
        while !ready() {
            mpi.progress();
            nap(Some(most));
            most = match most < LAST_NAP {
                true => most * 2,
                false => turn.after(LAST_NAP),
            };
        }
    }

    /// Meets the members of this node. One of them runs `lead` when all are there, and everybody
    /// leaves after that: the last to come where the team is on one node, and no crowd of which everybody
    /// would reach into everybody's memory in the course of time; else the leader, who has the connections.
    pub(super) fn meet(&self, team: &Team, lead: impl FnOnce()) {
        self.meet_led(team, !crowd(team.mapping().n_here()), lead);
    }

    /// Meets the members of this node, who want nothing of each other.
    pub(super) fn meet_only(&self, team: &Team) {
        self.meet_led(team, true, || {});
    }

    fn meet_led(&self, team: &Team, by_last: bool, lead: impl FnOnce()) {
        let (mapping, barrier) = (team.mapping(), team.meeting_point());
        let n = mapping.n_here() as u32;
        let what = || self.in_collective(team);
        if n == 1 {
            lead();
        } else if by_last && mapping.n_nodes() == 1 {
            match barrier.arrive_or_lead(n) {
                Some(arrival) => self.await_release(barrier, arrival, what),
                None => {
                    lead();
                    barrier.release();
                }
            }
        } else if mapping.leads() {
            let complete = || barrier.complete(n);
            if !self.polled(complete) {
                self.sleep(what, complete, |max| barrier.sleep_incomplete(n, max));
            }
            lead();
            barrier.release();
        } else {
            let arrival = barrier.arrive(n);
            self.await_release(barrier, arrival, what);
        }
    }

    /// After a meeting: says that this PE has read what it needs of member `owner` of this node, or
    /// waits, as that one, until all have.
    pub(super) fn finish_reading(&self, team: &Team, owner: usize) {
        let (mapping, barrier) = (team.mapping(), team.meeting_point());
        let n = mapping.n_here() as u32;
        if mapping.index() != owner {
            barrier.depart(n);
        } else if n > 1 {
            let departed = || barrier.all_departed(n);
            if !self.polled(departed) {
                let what = || self.in_collective(team);
                self.sleep(what, departed, |max| barrier.sleep_undeparted(n, max));
            }
            barrier.departures_seen();
        }
    }

    /// Meets all PEs of this node and nobody else, at the end of init.
    pub(crate) fn node_barrier(&self) {
        let (barrier, n) = (self.node.barrier(), self.node.n_local() as u32);
        match barrier.arrive_or_lead(n) {
            Some(arrival) => self.await_release(barrier, arrival, || Wait::Init),
            None => barrier.release(),
        }
    }

    /// Waits for all members.
    pub(super) fn await_members(&self, team: &Team) {
        if meets_by_lines(team) {
            self.exchange_lines(team, std::ptr::null(), 0);
        } else {
            self.meet_members(team);
        }
    }

    /// As [`await_members`](Self::await_members), for the last time: nothing in the members' slots is looked at
    /// by any of them afterwards, but the barrier, which goes on from one team to the next.
    pub(crate) fn team_leave(&self, team: &Team) {
        self.meet_members(team);
    }

    fn meet_members(&self, team: &Team) {
        if team.mapping().n_nodes() > 1 {
            self.meet(team, || self.meet_leaders(team));
        } else {
            self.meet_only(team);
        }
    }

    /// Completes what this PE has started, and waits for all members.
    pub(crate) fn team_barrier(&self, team: &Team) {
        self.quiet();
        self.await_members(team);
    }

    /// Address of what lies `at` bytes into the slot of the leader on this node.
    pub(super) fn leader_slot(&self, team: &Team, at: usize) -> *mut u8 {
        self.neighbour(team.mapping().local(0), team.slot(at))
    }
}

impl WorldCollective {
    /// Completes what this PE has started on the default context, and waits for all PEs.
    pub(crate) fn barrier_all(&self) {
        self.team_barrier(Team::world());
    }
}

/// Yields the core to others a few times. Returns whether `ready()` holds.
fn yielded(ready: impl Fn() -> bool) -> bool {
    if !YIELDING.pays() {
        return false;
    }
    let mut before = Instant::now();
    for _ in 0..YIELDS {
        std::thread::yield_now();
        let after = Instant::now();
        YIELDING.resumed(after - before);
        spin::offered_core(after - before);
        before = after;
        if ready() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_again_late_sleeps_for_a_while_and_then_tries_again() {
        let yielding = Yielding {
            sleeps: AtomicU32::new(0),
            penalty: AtomicU32::new(0),
        };
        let sleeps = || (0..).take_while(|_| !yielding.pays()).count() as u32;
        assert_eq!(sleeps(), 0);
        yielding.resumed(2 * LATE);
        assert_eq!(sleeps(), SLEEPS);
        yielding.resumed(2 * LATE);
        assert_eq!(sleeps(), 2 * SLEEPS);
        for _ in 0..20 {
            yielding.resumed(2 * LATE);
        }
        assert_eq!(sleeps(), MOST_SLEEPS);
        for _ in 0..2000 {
            yielding.resumed(LATE / 2);
        }
        assert_eq!(sleeps(), 0);
        yielding.resumed(2 * LATE);
        assert_eq!(sleeps(), SLEEPS);
    }
}
