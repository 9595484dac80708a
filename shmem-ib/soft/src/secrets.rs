//! Numbers that nobody can guess, not even who has seen others of them: SipHash-2-4 of a counter under
//! a secret key.

#![forbid(unsafe_code)]

use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use shmem_verbs::rng::Rng;

/// A generator. As good as its key: that of the system where there are strangers, or made from a seed
/// in simulations, which are to be repeated.
#[derive(Clone)]
pub(crate) struct Secrets {
    key: [u8; 16],
    taken: u64,
}

impl From<[u8; 16]> for Secrets {
    fn from(key: [u8; 16]) -> Self {
        Self { key, taken: 0 }
    }
}

impl From<u64> for Secrets {
    fn from(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let key = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        Self::from(key.to_ne_bytes())
    }
}

impl Secrets {
    pub(crate) fn next_u64(&mut self) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u64(self.taken);
        self.taken += 1;
        hasher.finish()
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        self.next_u64() as u32
    }

    /// Another generator, of which this one's numbers tell nothing.
    pub(crate) fn fork(&mut self) -> Self {
        let key = u128::from(self.next_u64()) << 64 | u128::from(self.next_u64());
        Self::from(key.to_ne_bytes())
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_every_bit_of_a_key_counts() {
        let draw = |secrets: Secrets| {
            let mut secrets = secrets;
            (0..4).map(|_| secrets.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7.into()), draw(7.into()));
        let reference = draw([0; 16].into());
        for bit in 0..128 {
            let other = draw((1_u128 << bit).to_le_bytes().into());
            let equal = reference.iter().zip(&other).filter(|(a, b)| a == b);
            assert_eq!(equal.count(), 0, "bit {bit}");
        }
        let mut parent = Secrets::from(7);
        let child = draw(parent.fork());
        assert!(draw(parent).iter().all(|n| !child.contains(n)));
    }

    #[test]
    fn the_function_is_siphash_2_4() {
        // Of the reference implementation: key 00 to 0f, and 8 bytes 00 to 07.
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let mut secrets = Secrets {
            key,
            taken: u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7]),
        };
        if cfg!(target_endian = "little") {
            assert_eq!(secrets.next_u64(), 0x93f5_f579_9a93_2462);
        }
    }
}
