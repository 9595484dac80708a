//! What all checks share: their type, their sizes, and numbers that they use.

use std::sync::OnceLock;

/// A check's name, and the function that all PEs call.
pub(crate) type Check = (&'static str, fn());

/// Whether checks have all their sizes and rounds: the same on all PEs.
pub(crate) fn thorough() -> bool {
    static THOROUGH: OnceLock<bool> = OnceLock::new();
    *THOROUGH.get_or_init(|| std::env::var_os("SHMEM_TEST_THOROUGH").is_some())
}

/// The one in each run, the other if checks are [`thorough`].
pub(crate) fn usual_or<T>(usual: T, most: T) -> T {
    if thorough() { most } else { usual }
}

/// Numbers that look random but are the same in every run: a check's inputs.
pub(crate) fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    move || {
        x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = x;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
