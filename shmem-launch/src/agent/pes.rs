//! The PEs of a node, as their agent keeps track of them: asked for, started, ended, silent.

use std::collections::VecDeque;

use crate::frame::Stream;
use crate::limits::SpawnQuota;

#[derive(Debug, Default)]
struct Pe {
    pid: u32,
    ended: bool,
    /// Has failed, and may be started again.
    failed: bool,
    /// Is being started again: it is not known yet whether it runs.
    restarting: bool,
    /// Has taken leave of PMI: whatever it does then, nobody waits for it.
    finalized: bool,
    /// Has closed its PMI connection after init and without taking leave, a while ago, and lives.
    disconnected: bool,
    /// Whether a stream may still bring output.
    open: [bool; 2],
}

/// All of them.
#[derive(Debug)]
pub(super) struct Pes {
    pes: Vec<Pe>,
    /// PEs to start; less than all once starting was given up.
    wanted: u32,
    asked: u32,
    started: u32,
    /// Sizes of unanswered requests.
    in_flight: VecDeque<u32>,
    ended: u32,
    /// Those who closed their PMI connection without taking leave, in that order, and when each of
    /// them counts as disconnected.
    pmi_closed: VecDeque<(u64, u32)>,
    disconnected: u32,
    open: u32,
    /// PEs that are to be started again when all that they have written was read, and how often that makes.
    respawns: Vec<(u32, u32)>,
}

impl Pes {
    pub(super) fn new(n: u32) -> Self {
        Self {
            pes: (0..n).map(|_| Pe::default()).collect(),
            wanted: n,
            asked: 0,
            started: 0,
            in_flight: VecDeque::new(),
            ended: 0,
            pmi_closed: VecDeque::new(),
            disconnected: 0,
            open: 0,
            respawns: Vec::new(),
        }
    }

    /// The next PEs to ask for, unless enough requests are unanswered. Their output counts as open
    /// from now on.
    pub(super) fn next_batch(&mut self, quota: SpawnQuota) -> Option<(u32, u32)> {
        let count = quota.pes.min(self.wanted - self.asked);
        if count == 0 || self.in_flight.len() >= quota.requests as usize {
            return None;
        }
        let first = self.asked;
        self.asked += count;
        self.in_flight.push_back(count);
        for pe in &mut self.pes[first as usize..(first + count) as usize] {
            pe.open = [true; 2];
        }
        self.open += 2 * count;
        Some((first, count))
    }

    /// Notes the answer to the oldest request; says how many PEs it asked for.
    pub(super) fn answered(&mut self, pids: &[i32]) -> usize {
        let asked = self.in_flight.pop_front().unwrap_or(0) as usize;
        for (pe, pid) in self.pes[self.started as usize..]
            .iter_mut()
            .zip(pids)
            .take(asked)
        {
            pe.pid = *pid as u32;
        }
        self.started += pids.len().min(asked) as u32;
        asked
    }

    /// PEs that were started; they are the first ones.
    pub(super) fn started(&self) -> u32 {
        self.started
    }

    /// No more requests.
    pub(super) fn stop_asking(&mut self) {
        self.wanted = self.asked;
    }

    /// No more requests, and no answers to those that were made. Says how many PEs are missing.
    pub(super) fn give_up_starting(&mut self) -> u32 {
        self.stop_asking();
        self.in_flight.clear();
        self.pes.len() as u32 - self.started
    }

    /// Whether all requests that will ever be made are answered.
    pub(super) fn all_answered(&self) -> bool {
        self.asked == self.wanted && self.in_flight.is_empty()
    }

    pub(super) fn pid(&self, local: u32) -> u32 {
        self.pes[local as usize].pid
    }

    /// Notes a PE's end; false if it is known already.
    pub(super) fn ended(&mut self, local: u32) -> bool {
        let pe = &mut self.pes[local as usize];
        let news = !pe.ended;
        pe.ended = true;
        self.ended += u32::from(news);
        news
    }

    /// Whether the PE has ended, of those that have started.
    pub(super) fn has_ended(&self, local: u32) -> bool {
        self.pes[local as usize].ended
    }

    /// Whether the PE will not join collective operations any more.
    pub(super) fn is_absent(&self, local: u32) -> bool {
        let pe = &self.pes[local as usize];
        pe.ended || pe.disconnected
    }

    /// How many have ended, and how many are disconnected.
    pub(super) fn absent(&self) -> (u32, u32) {
        (self.ended, self.disconnected)
    }

    /// Whether there are PEs that live, or lived, without their connection.
    pub(super) fn any_disconnected(&self) -> bool {
        self.disconnected > 0
    }

    /// Whether no PE will join anything. Costs a look at each.
    pub(super) fn all_absent(&self) -> bool {
        self.pes.iter().all(|pe| pe.ended || pe.disconnected)
    }

    /// Notes that a PE has taken leave of PMI.
    pub(super) fn finalized(&mut self, local: u32) {
        self.pes[local as usize].finalized = true;
    }

    /// Whether it has.
    pub(super) fn has_finalized(&self, local: u32) -> bool {
        self.pes[local as usize].finalized
    }

    /// Notes that a PE has closed its PMI connection after init, without taking leave. It counts as
    /// disconnected at `disconnected_at`, which is not before that of another one.
    pub(super) fn pmi_closed(&mut self, local: u32, disconnected_at: u64) {
        self.pmi_closed.push_back((disconnected_at, local));
    }

    /// When the next one counts as disconnected, unless it ends.
    pub(super) fn next_disconnected(&self) -> Option<u64> {
        self.pmi_closed.front().map(|&(at, _)| at)
    }

    /// All of them count as disconnected so much later.
    pub(super) fn postpone_disconnected(&mut self, by: u64) {
        for (at, _) in &mut self.pmi_closed {
            *at = at.saturating_add(by);
        }
    }

    /// Those who closed their connection long enough ago and did not end since are disconnected. Gives them
    /// one by one.
    pub(super) fn settle_closed(&mut self, now: u64) -> Option<u32> {
        while let Some(&(at, local)) = self.pmi_closed.front()
            && at <= now
        {
            self.pmi_closed.pop_front();
            let pe = &mut self.pes[local as usize];
            if !pe.ended && !pe.failed {
                self.disconnected += u32::from(!std::mem::replace(&mut pe.disconnected, true));
                return Some(local);
            }
        }
        None
    }

    /// Notes that a PE has failed and waits to be started again: what becomes of it will join what
    /// others wait for.
    pub(super) fn failed(&mut self, local: u32) {
        let pe = &mut self.pes[local as usize];
        pe.failed = true;
        self.disconnected -= u32::from(std::mem::take(&mut pe.disconnected));
    }

    pub(super) fn has_failed(&self, local: u32) -> bool {
        self.pes[local as usize].failed
    }

    /// Notes that a PE that had failed runs again, as this process.
    pub(super) fn respawned(&mut self, local: u32, pid: u32) {
        self.pmi_closed.retain(|&(_, closed)| closed != local);
        let pe = &mut self.pes[local as usize];
        self.open += pe.open.iter().map(|open| u32::from(!open)).sum::<u32>();
        *pe = Pe {
            pid,
            open: [true; 2],
            ..Pe::default()
        };
    }

    /// Notes whether a PE that has failed is being started again.
    pub(super) fn set_restarting(&mut self, local: u32, restarting: bool) {
        self.pes[local as usize].restarting = restarting;
    }

    /// PEs that have failed have ended: nobody will start them again. Those that are being started may run
    /// already.
    pub(super) fn end_failed(&mut self) {
        for local in 0..self.started {
            let pe = &mut self.pes[local as usize];
            if !pe.restarting && std::mem::take(&mut pe.failed) {
                self.ended(local);
            }
        }
    }

    /// A PE that has failed is to be started again, for the `count`th time, as soon as its output was read.
    pub(super) fn respawn(&mut self, local: u32, count: u32) {
        self.respawns.push((local, count));
    }

    /// The next of those of whom all was read, which is being started again from now on. Those that were given up
    /// meanwhile are not.
    pub(super) fn next_respawn(&mut self) -> Option<(u32, u32)> {
        let pes = &self.pes;
        self.respawns
            .retain(|&(local, _)| pes[local as usize].failed);
        let closed = |&(local, _): &(u32, u32)| pes[local as usize].open == [false; 2];
        let at = self.respawns.iter().position(closed)?;
        let (local, count) = self.respawns.remove(at);
        self.set_restarting(local, true);
        Some((local, count))
    }

    /// Nobody is started again of those that were to be.
    pub(super) fn respawn_nobody(&mut self) {
        self.respawns.clear();
    }

    pub(super) fn all_ended(&self) -> bool {
        self.ended >= self.started
    }

    /// Notes that a stream has ended.
    pub(super) fn output_closed(&mut self, local: u32, stream: Stream) {
        let pe = &mut self.pes[local as usize];
        if std::mem::take(&mut pe.open[stream as usize]) {
            self.open -= 1;
        }
    }

    /// Whether no stream may bring output.
    pub(super) fn all_closed(&self) -> bool {
        self.open == 0
    }

    /// The streams that have not ended.
    pub(super) fn close_all_output(&self) -> Vec<(u32, Stream)> {
        (0u32..)
            .zip(&self.pes)
            .flat_map(|(local, pe)| {
                Stream::ALL
                    .into_iter()
                    .filter(|&s| pe.open[s as usize])
                    .map(move |s| (local, s))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pe_that_is_being_started_again_has_not_ended() {
        let mut pes = Pes::new(2);
        let quota = SpawnQuota {
            pes: 2,
            requests: 1,
        };
        assert_eq!(pes.next_batch(quota), Some((0, 2)));
        assert_eq!(pes.answered(&[10, 11]), 2);
        pes.failed(0);
        pes.failed(1);
        pes.set_restarting(0, true);
        // The job ends.
        pes.end_failed();
        assert!(pes.has_ended(1) && !pes.all_ended());
        pes.respawned(0, 12);
        assert!(!pes.has_failed(0) && !pes.all_ended());
        assert!(pes.ended(0) && pes.all_ended());
    }

    #[test]
    fn a_pe_that_could_not_be_started_again_has_ended() {
        let mut pes = Pes::new(1);
        let quota = SpawnQuota {
            pes: 1,
            requests: 1,
        };
        assert_eq!(pes.next_batch(quota), Some((0, 1)));
        pes.answered(&[10]);
        pes.failed(0);
        pes.set_restarting(0, true);
        pes.end_failed();
        assert!(!pes.all_ended());
        pes.set_restarting(0, false);
        pes.end_failed();
        assert!(pes.all_ended());
    }
}
