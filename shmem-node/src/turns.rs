//! Turns: how often sleepers look by themselves, all of a node together.
//!
//! Who sleeps until somebody rings may have to look now and then as well: a store of a program's own
//! rings no bell. A look is a wake-up, two changes of context and cold caches. One sleeper can
//! afford it every few milliseconds, thousands cannot: they fill the machine, and who has something to
//! do waits behind them all. So sleepers count themselves, and each looks again after as many turns as
//! there are sleepers: however many they are, one of them looks per turn. Who comes while others go to
//! sleep gets a later turn than they, so looks are spread without anybody arranging it.
//!
//! The count is a hint: it orders nothing, and a sleeper that is killed stays in it, which makes the
//! others' looks rarer by a turn.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering};

/// Time from one look of a node's sleepers to the next. A look costs 10 to 40 microseconds, the more
/// the less of the sleeper is left in the caches, so all together take a hundredth of a core at most.
pub const TURN: Duration = Duration::from_millis(4);

/// The turns of a node's sleepers, as one of its processes takes them.
#[derive(Debug, Clone, Copy)]
pub struct Turns<'a> {
    sleepers: &'a AtomicU32,
    nodes: u32,
    turn: Duration,
}

impl<'a> Turns<'a> {
    /// Those who count themselves in `sleepers`; as do others on `nodes` nodes, this one among them,
    /// that share the machine.
    pub fn new(sleepers: &'a AtomicU32, nodes: u32) -> Self {
        Self {
            sleepers,
            nodes,
            turn: TURN,
        }
    }

    /// The same with turns of another length: for looks that are not a precaution but the only way to
    /// learn of something.
    #[must_use]
    pub fn each(self, turn: Duration) -> Self {
        Self { turn, ..self }
    }

    /// Counts a sleeper, until the result is dropped.
    pub fn take(&self) -> Turn<'a> {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        Turn(*self)
    }
}

/// One who sleeps.
#[derive(Debug)]
pub struct Turn<'a>(Turns<'a>);

impl Turn<'_> {
    /// How long to sleep before the next look: until it is this sleeper's turn, and not less than
    /// `least`.
    pub fn after(&self, least: Duration) -> Duration {
        let Turns {
            sleepers,
            nodes,
            turn,
        } = self.0;
        let all = sleepers.load(Ordering::Relaxed).saturating_mul(nodes);
        least.max(turn.saturating_mul(all))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    #[test]
    fn turns_are_as_far_apart_as_there_are_sleepers() {
        let count = AtomicU32::new(0);
        let turns = Turns::new(&count, 1);
        let first = turns.take();
        assert_eq!(first.after(Duration::ZERO), TURN);
        let rest: Vec<_> = (0..99).map(|_| turns.take()).collect();
        assert_eq!(first.after(Duration::ZERO), 100 * TURN);
        assert_eq!(first.after(2000 * TURN), 2000 * TURN);
        let emulated = Turns::new(&count, 8);
        assert_eq!(emulated.take().after(Duration::ZERO), 808 * TURN);
        let often = turns.each(TURN / 4);
        assert_eq!(often.take().after(Duration::ZERO), 101 * (TURN / 4));
        drop(rest);
        assert_eq!(first.after(Duration::ZERO), TURN);
        drop(first);
        assert_eq!(count.into_inner(), 0);
    }

    /// In simulated time: any number of sleepers, however they come, make one look per turn.
    #[test]
    fn all_together_look_once_a_turn() {
        for n in [1, 10, 500, 8192] {
            for apart in [Duration::ZERO, TURN / 10, TURN * 3] {
                let count = AtomicU32::new(0);
                let turns = Turns::new(&count, 1);
                let mut asleep = Vec::new();
                // When each looks next; who comes later is in it with its arrival.
                let mut events: BinaryHeap<_> = (0..n).map(|i| Reverse((apart * i, i))).collect();
                let end = apart * n + TURN * 20_000;
                let mut looks = 0;
                while let Some(Reverse((now, i))) = events.pop().filter(|e| e.0.0 < end) {
                    if asleep.len() <= i as usize {
                        asleep.push(turns.take());
                    } else {
                        looks += 1;
                    }
                    let next = asleep[i as usize].after(Duration::ZERO);
                    events.push(Reverse((now + next, i)));
                }
                let passed = (end.as_nanos() / TURN.as_nanos()) as u32;
                assert!(looks <= passed + n, "{n}, {apart:?}: {looks} of {passed}");
            }
        }
    }
}
