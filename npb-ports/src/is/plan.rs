//! Numbers of PEs and memory: what all PEs agree on.

use super::params::Params;
use super::ranges::widest;
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

#[cfg(test)]
mod tests {
    use super::*;

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
