//! Whether the other end of a link is at work: heartbeats, in both directions of every link of the tree.
//!
//! Launcher and agents look at their links in a fixed rhythm. An end that has sent nothing but beats since its last
//! look sends a beat, so a link that is in use costs nothing. An end of which nothing was heard in
//! [`LOOKS`] looks one after the other counts as silent: what happens then is its machine's business. That is never before
//! the time-out is over, and at most an eighth of it later.
//!
//! # False alarms
//! Looks are counted, not seconds. Who was stopped, starved or suspended itself has looked once when it
//! goes on, whatever the clock says, and reads what has come meanwhile before it looks again; and on a
//! machine that has no time for anybody, who waits has no more of it than who is waited for.
//!
//! Before anything comes of it an end is still busy with what cannot be interrupted: reading its orders,
//! making memory, starting others. It has longer for that.

use std::time::Duration;

use crate::frame::{Frame, OutBuf};

/// Looks in a row that find nothing, which are the time-out. What was heard last came at or before the look that found it, so
/// the whole time-out is over with the last of them.
const LOOKS: u32 = 8;

/// When to look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rhythm {
    /// Nanoseconds; 0 for never.
    interval: u64,
    next: u64,
    /// How long an end may be silent before anything was heard of it.
    preparation: u64,
}

impl Rhythm {
    /// That of ends that may be silent for so long, at first for as long as their `preparation` may take;
    /// for ever if that is nothing.
    pub(crate) fn new(timeout: Duration, preparation: Duration) -> Self {
        Self {
            interval: (timeout.as_nanos() as u64).div_ceil(LOOKS.into()),
            next: 0,
            preparation: preparation.as_nanos() as u64,
        }
    }

    /// When the next look is due. The first one is at once.
    pub(crate) fn deadline(&self) -> Option<u64> {
        (self.interval > 0).then_some(self.next)
    }

    /// Whether it is time to look, which is then done.
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        let due = self.deadline().is_some_and(|at| at <= now);
        if due {
            self.next = now.saturating_add(self.interval);
        }
        due
    }

    /// How many looks an end has before anything was heard of it.
    fn looks_at_start(&self) -> u32 {
        let looks = self.preparation.div_ceil(self.interval.max(1));
        // The first one is at once.
        LOOKS.max(looks.try_into().unwrap_or(u32::MAX)) + 1
    }
}

/// What is known of the other end of a link.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pulse {
    /// Whether something came since the last look.
    heard: bool,
    /// When something came last.
    heard_at: Option<u64>,
    /// Looks since then.
    missed: u32,
    /// It had a reason for its silence, and nothing was heard of it since.
    excused: bool,
    /// Bytes that this end has sent when the beat of the last look is out.
    sent: u64,
}

impl Pulse {
    /// Something came.
    pub(crate) fn received(&mut self, now: u64) {
        (self.heard, self.excused) = (true, false);
        self.heard_at = Some(now);
    }

    /// Nothing is expected of the other end for now.
    pub(crate) fn excuse(&mut self) {
        (self.missed, self.excused) = (0, true);
    }

    /// Whether the other end had an excuse until now: then it has the whole time-out to be heard, once.
    pub(crate) fn resumes(&mut self) -> bool {
        let resumes = std::mem::take(&mut self.excused);
        if resumes {
            self.missed = 0;
        }
        resumes
    }

    /// Sends a sign of life over a link on which nothing else has gone out since the last look, nor waits
    /// to.
    pub(crate) fn beat(&mut self, out: &mut OutBuf) {
        if out.is_empty() && out.written() == self.sent {
            out.send(&Frame::Beat);
        }
        self.sent = out.written() + out.pending().len() as u64;
    }

    /// Looks for the other end. If it is silent, for how many milliseconds.
    pub(crate) fn look(&mut self, rhythm: &Rhythm, now: u64) -> Option<u64> {
        if std::mem::take(&mut self.heard) {
            self.missed = 0;
            return None;
        }
        self.missed += 1;
        let (most, ns) = match self.heard_at {
            Some(at) => (LOOKS, now.saturating_sub(at)),
            None => (rhythm.looks_at_start(), rhythm.preparation),
        };
        (self.missed >= most).then_some(ns / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn rhythm(timeout: u64) -> Rhythm {
        Rhythm::new(Duration::from_secs(timeout), Duration::from_secs(60))
    }

    /// Looks until the pulse is silent or `end` has come; gives when that was, and what is said.
    fn silent(pulse: &mut Pulse, rhythm: &mut Rhythm, end: u64) -> Option<(u64, u64)> {
        while let Some(now) = rhythm.deadline().filter(|&at| at < end) {
            assert!(rhythm.is_due(now));
            if let Some(ms) = pulse.look(rhythm, now) {
                return Some((now, ms));
            }
        }
        None
    }

    #[test]
    fn an_end_is_silent_after_the_timeout_and_not_much_later() {
        for at in (0..16).map(|n| 20 * S + n * S / 8) {
            let mut rhythm = rhythm(8);
            let mut pulse = Pulse::default();
            pulse.received(1);
            assert_eq!(silent(&mut pulse, &mut rhythm, 4 * S), None);
            while let Some(now) = rhythm.deadline().filter(|&now| now <= at) {
                pulse.received(now);
                assert_eq!(silent(&mut pulse, &mut rhythm, now + 1), None);
            }
            pulse.received(at);
            let (now, ms) = silent(&mut pulse, &mut rhythm, u64::MAX).unwrap();
            assert!((at + 8 * S..=at + 9 * S).contains(&now), "{now} of {at}");
            assert_eq!(ms, (now - at) / 1_000_000);
        }
    }

    #[test]
    fn who_did_not_run_does_not_accuse() {
        let mut rhythm = rhythm(8);
        let mut pulse = Pulse::default();
        pulse.received(1);
        for hours in 1..6 {
            let now = hours * 3600 * S;
            assert!(rhythm.is_due(now) && !rhythm.is_due(now));
            assert_eq!(pulse.look(&rhythm, now), None);
        }
    }

    #[test]
    fn at_the_start_there_is_time() {
        let mut rhythm = rhythm(8);
        let mut pulse = Pulse::default();
        let (now, _) = silent(&mut pulse, &mut rhythm, u64::MAX).unwrap();
        assert!((59 * S..=61 * S).contains(&now), "{now}");
    }

    #[test]
    fn nobody_looks_where_silence_is_nobodys_business() {
        let mut rhythm = rhythm(0);
        assert_eq!((rhythm.deadline(), rhythm.is_due(u64::MAX)), (None, false));
    }

    #[test]
    fn beats_are_for_links_that_are_not_in_use() {
        let (mut pulse, mut out) = (Pulse::default(), OutBuf::default());
        let mut beat = Vec::new();
        Frame::Beat.encode(&mut beat);
        pulse.beat(&mut out);
        assert_eq!(out.pending(), beat);
        // Not while something waits for room.
        pulse.beat(&mut out);
        assert_eq!(out.take(), beat);
        // A beat is nothing that makes the next one needless.
        for _ in 0..3 {
            pulse.beat(&mut out);
            assert_eq!(out.take(), beat);
        }
        out.send(&Frame::Go);
        out.take();
        pulse.beat(&mut out);
        assert!(out.is_empty());
        pulse.beat(&mut out);
        assert_eq!(out.take(), beat);
    }

    /// Two ends of a link that carries nothing for a while, and then what was sent meanwhile; in virtual time.
    fn survives(limit: u64, cut_at: u64, cut_for: u64) -> bool {
        let mut rhythms = [rhythm(limit), rhythm(limit)];
        let (mut pulses, mut outs) = (
            [Pulse::default(); 2],
            [OutBuf::default(), OutBuf::default()],
        );
        // They began at different times.
        rhythms[1].next = limit * S / 13;
        let mut under_way: Vec<(u64, usize)> = Vec::new();
        let end = cut_at + cut_for + 3 * limit * S;
        loop {
            let look = (0..2).min_by_key(|&n| rhythms[n].next).unwrap();
            under_way.sort_unstable();
            let now = rhythms[look].next;
            if let Some(&(at, to)) = under_way.first()
                && at <= now
            {
                under_way.remove(0);
                pulses[to].received(at);
                continue;
            }
            if now > end {
                return true;
            }
            assert!(rhythms[look].is_due(now));
            if pulses[look].look(&rhythms[look], now).is_some() {
                return false;
            }
            pulses[look].beat(&mut outs[look]);
            if !outs[look].take().is_empty() {
                let cut = cut_at..cut_at + cut_for;
                let leaves = if cut.contains(&now) { cut.end } else { now };
                under_way.push((leaves + S / 1000, 1 - look));
            }
        }
    }

    #[test]
    fn an_outage_below_seven_eighths_of_the_timeout_ends_nothing_and_a_longer_one_does() {
        for limit in [2, 8, 30] {
            for at in (0..64).map(|n| 5 * limit * S + n * limit * S / 64) {
                let eighth = limit * S / 8;
                assert!(
                    survives(limit, at, 7 * eighth - S / 500),
                    "{limit} s, cut at {at}"
                );
                assert!(
                    !survives(limit, at, 9 * eighth + S / 100),
                    "{limit} s, cut at {at}"
                );
            }
        }
    }
}
