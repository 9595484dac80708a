//! Losing, doubling and reordering packets on purpose, to test what is above.

#![forbid(unsafe_code)]

use shmem_verbs::AddressVector;
use shmem_verbs::rng::Rng;

/// How an HCA mistreats the packets that it sends. All zero: not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Packets lost, in a million.
    pub drop: u32,
    /// Packets sent twice, in a million.
    pub duplicate: u32,
    /// Packets held back behind one to four later ones, in a million.
    pub reorder: u32,
    /// Decides which.
    pub seed: u64,
}

impl Faults {
    /// Whether packets are mistreated at all.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.drop != 0 || self.duplicate != 0 || self.reorder != 0
    }
}

/// A packet on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parcel {
    pub(crate) dst: AddressVector,
    pub(crate) bytes: Vec<u8>,
}

/// Most packets held back at a time.
const HELD_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct FaultFilter {
    faults: Faults,
    rng: Rng,
    /// Packets held back, and how many others have to pass first.
    held: Vec<(u32, Parcel)>,
}

impl FaultFilter {
    pub(crate) fn new(faults: Faults) -> Self {
        Self {
            faults,
            rng: Rng::new(faults.seed),
            held: Vec::new(),
        }
    }

    /// Takes a packet and appends what really goes out now.
    pub(crate) fn pass(&mut self, parcel: Parcel, out: &mut Vec<Parcel>) {
        if !self.rng.chance_ppm(self.faults.drop) {
            if self.rng.chance_ppm(self.faults.duplicate) {
                out.push(parcel.clone());
            }
            if self.held.len() < HELD_MAX && self.rng.chance_ppm(self.faults.reorder) {
                self.held.push((1 + self.rng.below(4) as u32, parcel));
                return;
            }
            out.push(parcel);
        }
        for (others, _) in &mut self.held {
            *others = others.saturating_sub(1);
        }
        out.extend(
            self.held
                .extract_if(.., |(others, _)| *others == 0)
                .map(|(_, p)| p),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loses_doubles_and_reorders_about_as_often_as_told() {
        let faults = Faults {
            drop: 100_000,
            duplicate: 50_000,
            reorder: 200_000,
            seed: 5,
        };
        let mut filter = FaultFilter::new(faults);
        let mut out = Vec::new();
        for i in 0..10_000_u32 {
            let parcel = Parcel {
                dst: AddressVector::default(),
                bytes: i.to_le_bytes().to_vec(),
            };
            filter.pass(parcel, &mut out);
        }
        let ids: Vec<u32> = out
            .iter()
            .map(|p| u32::from_le_bytes([p.bytes[0], p.bytes[1], p.bytes[2], p.bytes[3]]))
            .collect();
        let distinct: std::collections::HashSet<u32> = ids.iter().copied().collect();
        assert!(
            (8_800..9_200).contains(&distinct.len()),
            "{}",
            distinct.len()
        );
        assert!((350..550).contains(&(ids.len() - distinct.len())));
        let swaps = ids.windows(2).filter(|w| w[1] < w[0]).count();
        assert!(swaps > 1_000, "{swaps}");
    }
}
