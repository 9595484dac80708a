//! Lists of operations to begin with.

use shmem_ib::rng::Rng;

/// Random lists, of which the greater part does no harm.
#[must_use]
pub fn verbs_seeds() -> Vec<Vec<u8>> {
    (0..24)
        .map(|seed| {
            let mut rng = Rng::new(seed);
            let mut list: Vec<u8> = (0..10).map(|_| rng.next_u32() as u8).collect();
            for _ in 0..40 + rng.below(200) {
                // The last three kinds break connections: rarely.
                let kinds = if rng.below(30) == 0 { 32 } else { 29 };
                list.push(rng.below(kinds) as u8);
                list.extend((0..10).map(|_| rng.next_u32() as u8));
            }
            list
        })
        .collect()
}
