//! Objects by number, for many threads: lookups without hashing, and none of them waits for
//! another.
//!
//! A number has 24 bits, as queue pair numbers have; each byte leads one level down a tree of which
//! only the parts in use exist. At its leaves every object has a lock of its own. Whoever uses
//! the object holds it for reading, so the object cannot be destroyed meanwhile, and threads that
//! use different objects share nothing that is written to.

#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const FAN: usize = 256;

type Level<T> = Box<[OnceLock<T>]>;
type Leaf<T> = Box<[RwLock<Option<T>>]>;

/// A table of objects.
#[derive(Debug)]
pub(super) struct Table<T> {
    root: Level<Level<Leaf<T>>>,
}

/// An object in use.
pub(super) struct Used<'a, T>(RwLockReadGuard<'a, Option<T>>);

/// An object that nobody else uses.
pub(super) struct Alone<'a, T>(RwLockWriteGuard<'a, Option<T>>);

const HELD: &str = "checked when the guard was made";

impl<T> Deref for Used<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T> Deref for Alone<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for Alone<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(HELD)
    }
}

impl<T> Alone<'_, T> {
    /// Takes the object out of the table.
    pub(super) fn take(mut self) -> T {
        self.0.take().expect(HELD)
    }
}

fn level<T>() -> Level<T> {
    (0..FAN).map(|_| OnceLock::new()).collect()
}

fn path(number: u32) -> [usize; 3] {
    [16, 8, 0].map(|shift| (number >> shift) as usize % FAN)
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { root: level() }
    }
}

impl<T> Table<T> {
    fn place(&self, number: u32) -> Option<&RwLock<Option<T>>> {
        if number >> 24 != 0 {
            return None;
        }
        let [high, middle, low] = path(number);
        self.root[high].get()?[middle].get()?.get(low)
    }

    /// The object of this number, for use.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<Used<'_, T>> {
        let guard = self.place(number)?.read();
        let guard = guard.unwrap_or_else(PoisonError::into_inner);
        guard.is_some().then_some(Used(guard))
    }

    /// The object of this number, alone: waits until nobody uses it.
    pub(super) fn alone(&self, number: u32) -> Option<Alone<'_, T>> {
        let guard = self.place(number)?.write();
        let guard = guard.unwrap_or_else(PoisonError::into_inner);
        guard.is_some().then_some(Alone(guard))
    }

    /// Puts in an object. The number has 24 bits, and was free or will be at once: a device gives
    /// a number anew while whoever has destroyed its bearer still takes that out here.
    pub(super) fn put(&self, number: u32, object: T) {
        let [high, middle, low] = path(number);
        let leaf = self.root[high].get_or_init(level)[middle]
            .get_or_init(|| (0..FAN).map(|_| RwLock::new(None)).collect());
        let mut guard = leaf[low].write().unwrap_or_else(PoisonError::into_inner);
        *guard = Some(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_all_24_bits() {
        let table = Table::default();
        for number in [0, 1, 0xff, 0x100, 0x1_0000, 0xff_ffff] {
            assert!(table.get(number).is_none());
            table.put(number, number);
        }
        for number in [0, 1, 0xff, 0x100, 0x1_0000, 0xff_ffff] {
            assert_eq!(*table.get(number).unwrap(), number);
        }
        assert!(table.get(0x100_0000).is_none() && table.get(2).is_none());
        assert!(table.get(0x2_0000).is_none());
        let mut alone = table.alone(0x100).unwrap();
        *alone += 1;
        assert_eq!(alone.take(), 0x101);
        assert!(table.get(0x100).is_none() && table.alone(0x100).is_none());
    }

    #[test]
    fn an_object_in_use_is_not_taken() {
        let table = std::sync::Arc::new(Table::default());
        table.put(7, std::sync::Arc::new(()));
        let used = table.get(7).unwrap();
        let (object, other) = (std::sync::Arc::clone(&used), table.clone());
        let taker = std::thread::spawn(move || other.alone(7).map(Alone::take));
        for _ in 0..100 {
            std::thread::yield_now();
        }
        // Here, in the table, and not with the taker, which waits.
        assert_eq!(std::sync::Arc::strong_count(&object), 2);
        drop(used);
        assert!(taker.join().unwrap().is_some());
        assert!(table.get(7).is_none());
    }
}
