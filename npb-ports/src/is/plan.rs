//! Numbers of PEs and memory: what all PEs agree on.

use super::params::Params;
use super::{keys, ranker};
use crate::class::Class;
use crate::exchange::Slots;
use crate::processes::Rule;

/// On which numbers of PEs it runs. The upper limits are those of the reference programs; the lower one is where ranks
/// within a PE's range, which have 32 bits, might not be enough.
#[must_use]
pub fn rule(params: &Params) -> Rule {
    Rule::Any {
        least: 1 << params.log_keys.saturating_sub(u32::BITS - 1),
        most: if params.class == Class::S { 128 } else { 1024 },
    }
}

/// Bytes that a PE needs at most, landing slots included.
#[must_use]
pub fn memory(params: &Params, n_pes: usize) -> u64 {
    const WORD: u64 = size_of::<u32>() as u64;
    let places = keys::places(params, 0, n_pes);
    let mine = places.end - places.start;
    // In the end there are sorted ones, too. Shares differ, more than by a quarter only where there is little at all.
    let keys = mine + mine * 5 / 4;
    let sizes = ranker::sizes(params, n_pes);
    let slots = Slots::<u32>::bytes(&sizes.slots()) as u64;
    let aside = sizes.bytes();
    (keys + widest(params, n_pes)) * WORD + aside + slots
}

/// Values in the widest range of a PE, which is one at the edge: a share x of all values has a part of (4 x)^4 / 24 of all
/// keys there, or less in the middle.
fn widest(params: &Params, n_pes: usize) -> u64 {
    let share = match n_pes {
        1 => 1.0,
        _ => 1.1 * (24.0 / n_pes as f64).powf(0.25) / 4.0,
    };
    let values = 1_u64 << params.log_limit;
    (share * values as f64) as u64 + (1 << params.shift())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Level;
    use crate::is::ranges::{Ranges, tests::samples};

    #[test]
    fn ranges_are_not_wider_than_planned() {
        let params = Params::of(Class::W).unwrap();
        let keys = keys::generate(&params, 0..params.keys(), Level::best()).unwrap();
        for n_pes in [1, 2, 3, 4, 5, 8, 16, 64, 256, 1024] {
            let mut ranges = Ranges::new(&params, n_pes);
            ranges.cut(&samples(&params, n_pes, &keys));
            let width = |pe| ranges.keys(pe).end - ranges.keys(pe).start;
            let found = (0..n_pes).map(width).max().unwrap();
            assert!(found <= widest(&params, n_pes), "{n_pes}: {found}");
        }
    }

    #[test]
    fn large_classes_need_what_they_need() {
        let of = |class| Params::of(class).unwrap();
        assert_eq!(
            rule(&of(Class::S)).to_string(),
            "any number of PEs up to 128"
        );
        assert_eq!(
            rule(&of(Class::D)).to_string(),
            "any number of PEs up to 1024"
        );
        assert_eq!(rule(&of(Class::E)).to_string(), "16 to 1024 PEs");
        // Keys, once as they were drawn, once sorted, and ranks.
        let gib = |class, n_pes| memory(&of(class), n_pes) >> 30;
        assert_eq!(gib(Class::D, 1), 18);
        assert_eq!(gib(Class::E, 64), 6);
    }
}
