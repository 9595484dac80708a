//! The PEs of a node, as their agent keeps track of them: asked for, started, ended, silent.

use std::collections::VecDeque;

use crate::frame::Stream;
use crate::limits::Portion;

#[derive(Debug, Default)]
struct Pe {
    pid: u32,
    ended: bool,
    /// Has failed, and may be started again.
    down: bool,
    /// Is being started again: it is not known yet whether it runs.
    again: bool,
    /// Has taken leave of PMI: whatever it does then, nobody waits for it.
    finalized: bool,
    /// Has closed its PMI connection after init and without taking leave, a while ago, and lives.
    deaf: bool,
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
    /// them counts as deaf.
    lost: VecDeque<(u64, u32)>,
    deaf: u32,
    open: u32,
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
            lost: VecDeque::new(),
            deaf: 0,
            open: 0,
        }
    }

    /// The next PEs to ask for, unless enough requests are unanswered. Their output counts as open
    /// from now on.
    pub(super) fn next_batch(&mut self, portion: Portion) -> Option<(u32, u32)> {
        let count = portion.pes.min(self.wanted - self.asked);
        if count == 0 || self.in_flight.len() >= portion.requests as usize {
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
    pub(super) fn spawned(&mut self, pids: &[i32]) -> usize {
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
    pub(super) fn is_gone(&self, local: u32) -> bool {
        let pe = &self.pes[local as usize];
        pe.ended || pe.deaf
    }

    /// How many have ended, and how many are deaf.
    pub(super) fn gone(&self) -> (u32, u32) {
        (self.ended, self.deaf)
    }

    /// Whether there are PEs that live, or lived, without their connection.
    pub(super) fn any_deaf(&self) -> bool {
        self.deaf > 0
    }

    /// Whether no PE will join anything. Costs a look at each.
    pub(super) fn all_gone(&self) -> bool {
        self.pes.iter().all(|pe| pe.ended || pe.deaf)
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
    /// deaf at `deaf_at`, which is not before that of another one.
    pub(super) fn lost(&mut self, local: u32, deaf_at: u64) {
        self.lost.push_back((deaf_at, local));
    }

    /// When the next one counts as deaf, unless it ends.
    pub(super) fn next_deaf(&self) -> Option<u64> {
        self.lost.front().map(|&(at, _)| at)
    }

    /// All of them count as deaf so much later.
    pub(super) fn postpone_deaf(&mut self, by: u64) {
        for (at, _) in &mut self.lost {
            *at = at.saturating_add(by);
        }
    }

    /// Those who closed their connection long enough ago and did not end since are deaf. Gives them
    /// one by one.
    pub(super) fn settle_lost(&mut self, now: u64) -> Option<u32> {
        while let Some(&(at, local)) = self.lost.front()
            && at <= now
        {
            self.lost.pop_front();
            let pe = &mut self.pes[local as usize];
            if !pe.ended && !pe.down {
                self.deaf += u32::from(!std::mem::replace(&mut pe.deaf, true));
                return Some(local);
            }
        }
        None
    }

    /// Notes that a PE has failed and waits to be started again: what becomes of it will join what
    /// others wait for.
    pub(super) fn down(&mut self, local: u32) {
        let pe = &mut self.pes[local as usize];
        pe.down = true;
        self.deaf -= u32::from(std::mem::take(&mut pe.deaf));
    }

    pub(super) fn is_down(&self, local: u32) -> bool {
        self.pes[local as usize].down
    }

    /// Notes that a PE that was down runs again, as this process.
    pub(super) fn respawned(&mut self, local: u32, pid: u32) {
        self.lost.retain(|&(_, lost)| lost != local);
        let pe = &mut self.pes[local as usize];
        self.open += pe.open.iter().map(|open| u32::from(!open)).sum::<u32>();
        *pe = Pe {
            pid,
            open: [true; 2],
            ..Pe::default()
        };
    }

    /// Notes whether a PE that is down is being started again.
    pub(super) fn set_again(&mut self, local: u32, again: bool) {
        self.pes[local as usize].again = again;
    }

    /// PEs that are down have ended: nobody will start them again. Those that are being started may run
    /// already.
    pub(super) fn bury_down(&mut self) {
        for local in 0..self.started {
            let pe = &mut self.pes[local as usize];
            if !pe.again && std::mem::take(&mut pe.down) {
                self.ended(local);
            }
        }
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

    /// Whether no stream of a PE may bring output.
    pub(super) fn is_closed(&self, local: u32) -> bool {
        self.pes[local as usize].open == [false; 2]
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
        let portion = Portion {
            pes: 2,
            requests: 1,
        };
        assert_eq!(pes.next_batch(portion), Some((0, 2)));
        assert_eq!(pes.spawned(&[10, 11]), 2);
        pes.down(0);
        pes.down(1);
        pes.set_again(0, true);
        // The job ends.
        pes.bury_down();
        assert!(pes.has_ended(1) && !pes.all_ended());
        pes.respawned(0, 12);
        assert!(!pes.is_down(0) && !pes.all_ended());
        assert!(pes.ended(0) && pes.all_ended());
    }

    #[test]
    fn a_pe_that_could_not_be_started_again_has_ended() {
        let mut pes = Pes::new(1);
        let portion = Portion {
            pes: 1,
            requests: 1,
        };
        assert_eq!(pes.next_batch(portion), Some((0, 1)));
        pes.spawned(&[10]);
        pes.down(0);
        pes.set_again(0, true);
        pes.bury_down();
        assert!(!pes.all_ended());
        pes.set_again(0, false);
        pes.bury_down();
        assert!(pes.all_ended());
    }
}
