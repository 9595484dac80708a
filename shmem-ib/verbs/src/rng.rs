//! A small seeded generator, so that everything random can be replayed from one number.

#![forbid(unsafe_code)]

/// SplitMix64: passes statistical tests, one addition of state per number, any seed is good.
///
/// Not for secrets: whoever sees a whole 64-bit output can compute the next ones.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that is a function of `seed` alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 32 random bits.
    pub const fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number from 0 to `n - 1`; 0 if `n` is 0. The bias is below 2^-32 for `n` below 2^32.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// True `ppm` times in a million.
    pub const fn chance_ppm(&mut self, ppm: u32) -> bool {
        ppm != 0 && self.below(1_000_000) < ppm as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn same_seed_same_numbers_and_chances_are_about_right() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
        let hits = (0..100_000).filter(|_| a.chance_ppm(100_000)).count();
        assert!((9_000..11_000).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| a.below(7) < 7));
        assert!(!(0..1000).any(|_| a.chance_ppm(0)));
        assert_eq!(a.below(0), 0);
    }
}
