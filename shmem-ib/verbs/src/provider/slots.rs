//! A table of objects with numbers of 24 bits that are not reused soon.
//!
//! The lower 16 bits are a place in the table, the upper 8 its generation, which counts how often the place
//! was used, so that the number of a destroyed object does not name its successor. Free places are
//! reused oldest first, and rest until a few others are free.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use crate::rng::Rng;

const INDEX_BITS: u32 = 16;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// Most objects in one table.
pub const MAX_SLOTS: u32 = 1 << INDEX_BITS;
/// So many free places rest.
const RESTING: usize = 16;

/// Objects by number.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
    /// Where generations begin, if not at 0.
    scatter: Option<Rng>,
    /// What places are mixed with in numbers.
    mask: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u8,
    value: Option<T>,
}

impl<T> Default for Slots<T> {
    /// Numbers count from 0.
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
            scatter: None,
            mask: 0,
        }
    }
}

impl<T> Slots<T> {
    /// A table whose numbers tell a stranger little: generations begin anywhere, from 1 to 255, and the bits
    /// of places are mixed. But who knows one number knows half of the others, so they are no secrets.
    #[must_use]
    pub fn scattered(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mask = rng.next_u32() & INDEX_MASK;
        Self {
            scatter: Some(rng),
            mask,
            ..Self::default()
        }
    }

    /// Puts in an object and returns its number; `None` if the table is full.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        self.insert_with(|_| value)
    }

    /// Puts in what `make` makes of its number, and returns that; `None` if the table is full.
    pub fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let full = self.slots.len() == MAX_SLOTS as usize;
        let index = if full || self.free.len() > RESTING {
            self.free.pop_front()?
        } else {
            let first = |rng: &mut Rng| 1 + rng.below(255) as u8;
            self.slots.push(Slot {
                generation: self.scatter.as_mut().map_or(0, first),
                value: None,
            });
            self.slots.len() as u32 - 1
        };
        let slot = &mut self.slots[index as usize];
        let number = u32::from(slot.generation) << INDEX_BITS | (index ^ self.mask);
        slot.value = Some(make(number));
        Some(number)
    }

    const fn index(&self, number: u32) -> usize {
        ((number ^ self.mask) & INDEX_MASK) as usize
    }

    fn slot(&mut self, number: u32) -> Option<&mut Slot<T>> {
        let index = self.index(number);
        let slot = self.slots.get_mut(index)?;
        (u32::from(slot.generation) == number >> INDEX_BITS).then_some(slot)
    }

    /// The object of this number.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slot(number)?.value.as_mut()
    }

    /// The object of this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        let slot = self.slots.get(self.index(number))?;
        if u32::from(slot.generation) != number >> INDEX_BITS {
            return None;
        }
        slot.value.as_ref()
    }

    /// All objects.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.iter_numbered().map(|(_, value)| value)
    }

    /// All objects with their numbers.
    pub fn iter_numbered(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let mask = self.mask;
        let numbered = (0..).zip(&mut self.slots);
        numbered.filter_map(move |(index, slot)| {
            let number = u32::from(slot.generation) << INDEX_BITS | (index ^ mask);
            Some((number, slot.value.as_mut()?))
        })
    }

    /// Takes it out; nobody gets its number soon.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let slot = self.slot(number)?;
        let value = slot.value.take()?;
        // From 1 to 255: 0 is for places that were never used.
        slot.generation = slot.generation % 255 + 1;
        self.free.push_back(self.index(number) as u32);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_gone_name_nothing() {
        let mut slots = Slots::default();
        let a = slots.insert('a').unwrap();
        let b = slots.insert('b').unwrap();
        assert_eq!(slots.remove(a), Some('a'));
        assert_eq!(slots.get(a), None);
        assert_eq!(slots.remove(a), None);
        let c = slots.insert('c').unwrap();
        assert_ne!(a, c);
        assert_eq!(slots.get(a), None);
        assert_eq!(slots.get_mut(a), None);
        assert_eq!((slots.get(b), slots.get(c)), (Some(&'b'), Some(&'c')));
        assert!(c < 1 << 24);
    }

    #[test]
    fn numbers_are_not_reused_soon() {
        let mut slots = Slots::scattered(254);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..16 * 255 {
            let number = slots.insert(()).unwrap();
            assert!(number > 0xffff && number < 1 << 24);
            assert!(seen.insert(number), "{number:#x} came back");
            assert!(slots.get(number).is_some());
            assert!(slots.remove(number).is_some());
            assert!(slots.get(number).is_none() && slots.remove(number).is_none());
        }
    }

    #[test]
    fn numbers_of_two_scattered_tables_have_little_in_common() {
        let numbers = |seed: u64| -> Vec<u32> {
            let mut slots = Slots::scattered(seed);
            (0..256).map(|_| slots.insert(()).unwrap()).collect()
        };
        let (one, two) = (numbers(1), numbers(2));
        assert_eq!(one, numbers(1));
        let same = |bits: u32| {
            one.iter()
                .zip(&two)
                .filter(|(a, b)| *a & bits == *b & bits)
                .count()
        };
        assert_eq!((same(0xff_ffff), same(0xffff)), (0, 0));
        // Of a generation a few are the same by chance.
        assert!(same(0xff_0000) < 16, "{}", same(0xff_0000));
        // And one after the other is not one more.
        let steps = one.windows(2).filter(|w| w[1] == w[0] + 1).count();
        assert!(steps < 16, "{steps}");
    }

    #[test]
    fn the_table_is_bounded() {
        let mut slots = Slots::scattered(0);
        let all: Vec<u32> = std::iter::from_fn(|| slots.insert(())).collect();
        assert_eq!(all.len(), MAX_SLOTS as usize);
        slots.remove(all[5]).unwrap();
        let again = slots.insert(()).unwrap();
        assert_ne!(again, all[5]);
        assert!(slots.insert(()).is_none());
        let mut slots = Slots::default();
        for i in 0..MAX_SLOTS {
            assert_eq!(slots.insert(()), Some(i));
        }
        assert_eq!(slots.insert(()), None);
        slots.remove(7).unwrap();
        assert_eq!(slots.insert(()), Some(1 << INDEX_BITS | 7));
    }
}
