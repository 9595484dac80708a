//! PEs that others wait for in vain: they have ended, or closed their connection, and cannot join what others have
//! joined. What a PE brought before its end has been read before.

use super::Agent;
use super::event::Service;
use crate::child::Child;
use crate::exit::Cause;
use crate::frame::Frame;

/// How many are absent: PEs of the node that ended, those that are disconnected, and children.
type Absent = [u32; 3];

/// What has been looked for, and what was reported: each is reported once.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// For which operation of each service, and with how many absent, the missing were looked for last.
    looked: [Option<(u64, Absent)>; 2],
    /// The same for group barriers, of which the state has a number.
    looked_at_groups: Option<(u64, Absent)>,
    /// Whether somebody was reported as missing for ever.
    reported: bool,
    /// Whether it was reported that no PE of the subtree will join anything any more.
    pub(super) disconnected_reported: bool,
    /// Whether it was reported that a PE is in finalize.
    leaving_reported: bool,
}

impl Agent {
    /// Tells when some have joined an operation that others, who have ended, cannot join any more:
    /// those who did would wait for ever. What a PE brought before its end has been read before.
    pub(super) fn look_for_absent(&mut self) {
        for service in Service::ALL {
            self.look_for_absent_at(service);
        }
    }

    fn look_for_absent_at(&mut self, service: Service) {
        // Whoever has left PMI may bring its address all the same.
        let left_counts = service == Service::Pmi;
        let has_left = |c: &Child| left_counts && c.disconnected;
        let children = self.children.iter();
        let below = children.fold(0, |n, c| {
            n + u32::from(c.exited) + u32::from(has_left(c)) + u32::from(c.is_lost())
        });
        let (ended, disconnected) = match (self.pes.absent(), left_counts) {
            (absent, true) => absent,
            ((ended, _), false) => (ended, 0),
        };
        let absent = [ended, disconnected, below];
        if self.life.stopping || self.absence.reported || absent == [0; 3] {
            return;
        }
        let server = self.servers.of(service);
        let Some(request) = server.oldest_incomplete() else {
            return;
        };
        // Looking costs a look at each PE, and those who are missing only get fewer: there is nothing
        // new to find before another one is, or another operation is the oldest.
        if self.absence.looked[service as usize].replace((request, absent))
            == Some((request, absent))
        {
            return;
        }
        let missing = server.who_is_missing(request);
        let first = self.setup.first_rank;
        let is_absent = |rank: &u32| match left_counts {
            true => self.pes.is_absent(rank - first),
            false => self.pes.has_ended(rank - first),
        };
        let here = missing.local.iter().find(is_absent);
        let here = here.map(|rank| (rank, self.pes.has_ended(rank - first)));
        let below = || {
            let mut absent = missing
                .children
                .iter()
                .map(|(c, ranks)| (&self.children[*c], ranks))
                .filter(|(c, _)| c.exited || has_left(c) || c.is_lost());
            absent.find_map(|(c, ranks)| Some((ranks.first()?, c.exited || c.is_lost())))
        };
        if let Some((rank, ended)) = here.or_else(below) {
            self.absence.reported = true;
            let cause = match ended {
                true => Cause::Absent { rank },
                false => Cause::Disconnected { rank },
            };
            self.fault(0, cause);
        }
    }

    /// The same for group barriers.
    pub(super) fn look_for_absent_of_groups(&mut self) {
        let gone = |c: &Child| c.exited || c.disconnected;
        let below = self.children.iter().filter(|c| gone(c)).count() as u32;
        let (ended, disconnected) = self.pes.absent();
        let state = (
            self.servers.pmi.barrier_version(),
            [ended, disconnected, below],
        );
        let nobody = state.0 == 0 || state.1 == [0; 3];
        if self.life.stopping || self.absence.reported || nobody {
            return;
        }
        if self.absence.looked_at_groups.replace(state) == Some(state) {
            return;
        }
        let (first, pes, children) = (self.setup.first_rank, &self.pes, &self.children);
        let is_absent = |rank| pes.is_absent(rank - first);
        let rank = self
            .servers
            .pmi
            .barrier_waits_for(is_absent, |c| gone(&children[c]));
        if let Some(rank) = rank {
            self.absence.reported = true;
            self.fault(0, Cause::Absent { rank });
        }
    }

    /// Says once when no PE of the subtree will join anything any more, though some live.
    pub(super) fn look_for_disconnected(&mut self) {
        let absent = |c: &Child| c.exited || c.disconnected || c.is_lost();
        let disconnected =
            self.pes.any_disconnected() || self.children.iter().any(|c| c.disconnected);
        if disconnected
            && !self.absence.disconnected_reported
            && self.pes.all_absent()
            && self.children.iter().all(absent)
        {
            self.absence.disconnected_reported = true;
            self.parent.out.send(&Frame::Disconnected);
        }
    }

    /// A PE of the subtree is in finalize: the launcher hears of the first.
    pub(super) fn leaves(&mut self) {
        if !std::mem::replace(&mut self.absence.leaving_reported, true) {
            self.parent.out.send(&Frame::Leaving);
        }
    }
}
