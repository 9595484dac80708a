//! A table of objects with numbers of 24 bits that are not reused soon.
//!
//! The lower 16 bits are a place in the table, the upper 8 count how often it was used, so that the
//! number of a destroyed object does not name its successor.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

const INDEX_BITS: u32 = 16;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// Most objects in one table.
pub const MAX_SLOTS: u32 = 1 << INDEX_BITS;

/// Objects by number.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u8,
    value: Option<T>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Puts in an object and returns its number; `None` if the table is full.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        let index = match self.free.pop_front() {
            Some(index) => index,
            None if self.slots.len() as u32 == MAX_SLOTS => return None,
            None => {
                self.slots.push(Slot {
                    generation: 0,
                    value: None,
                });
                self.slots.len() as u32 - 1
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Some(u32::from(slot.generation) << INDEX_BITS | index)
    }

    fn slot(&mut self, number: u32) -> Option<&mut Slot<T>> {
        let slot = self.slots.get_mut((number & INDEX_MASK) as usize)?;
        (u32::from(slot.generation) == number >> INDEX_BITS).then_some(slot)
    }

    /// The object of this number.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slot(number)?.value.as_mut()
    }

    /// The object of this number.
    pub fn get(&self, number: u32) -> Option<&T> {
        let slot = self.slots.get((number & INDEX_MASK) as usize)?;
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
        (0..).zip(&mut self.slots).filter_map(|(index, slot)| {
            let number = u32::from(slot.generation) << INDEX_BITS | index;
            Some((number, slot.value.as_mut()?))
        })
    }

    /// Takes it out; nobody gets its number soon.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let slot = self.slot(number)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push_back(number & INDEX_MASK);
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
    fn the_table_is_bounded() {
        let mut slots = Slots::default();
        for i in 0..MAX_SLOTS {
            assert_eq!(slots.insert(()), Some(i));
        }
        assert_eq!(slots.insert(()), None);
        slots.remove(7).unwrap();
        assert_eq!(slots.insert(()), Some(1 << INDEX_BITS | 7));
    }
}
