//! A hash map that all PEs share: open addressing in a symmetric table, claimed slot by slot with
//! compare-and-swap, so nobody waits for anybody.
//!
//! Each access of a key on another node is several messages there and back. Where all PEs add much at a time, they had
//! better add up what they have, and give it to the owners by one `alltoallv`, as `own_type.rs` does.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use shmem::{Error, SymSlice, Team};

/// Counts by key. Keys are any numbers but 0, which stands for a slot that is free. Entries come, and stay.
#[derive(Clone, Copy, Debug)]
struct CountMap {
    keys: SymSlice<u64>,
    counts: SymSlice<u64>,
}

/// No slot is left where the key belongs.
#[derive(Debug, PartialEq)]
struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the part of the map where a key belongs is full: make the map with more slots")
    }
}

impl std::error::Error for Full {}

impl CountMap {
    /// A map of `slots` slots on every PE. Collective.
    fn new(slots: usize) -> Result<Self, Error> {
        Ok(Self {
            keys: shmem::alloc(slots)?,
            counts: shmem::alloc(slots)?,
        })
    }

    /// The PE of a key, and the slots in which it may be there, in order.
    fn places(&self, key: u64) -> (usize, impl Iterator<Item = usize> + use<>) {
        assert!(key != 0, "0 is no key: it stands for a free slot");
        let (hash, slots) = (
            BuildHasherDefault::<DefaultHasher>::default().hash_one(key),
            self.keys.len(),
        );
        let (pe, first) = (
            hash as usize % shmem::n_pes(),
            (hash >> 32) as usize % slots,
        );
        (pe, (first..slots).chain(0..first))
    }

    /// Adds to the count of a key. Others see it at the latest after this PE's next quiet or barrier.
    fn add(&self, key: u64, more: u64) -> Result<(), Full> {
        let (pe, places) = self.places(key);
        for slot in places {
            // A look costs less than a claim where the key is there, as it mostly is.
            let mut found = shmem::atomic_fetch(self.keys.elem(slot), pe);
            if found == 0 {
                found = match shmem::atomic_compare_exchange(self.keys.elem(slot), 0, key, pe) {
                    Ok(_) => key,
                    Err(faster) => faster,
                };
            }
            if found == key {
                shmem::atomic_add(self.counts.elem(slot), more, pe);
                return Ok(());
            }
        }
        Err(Full)
    }

    /// The count of a key, if it has come.
    fn get(&self, key: u64) -> Option<u64> {
        let (pe, places) = self.places(key);
        for slot in places {
            match shmem::atomic_fetch(self.keys.elem(slot), pe) {
                0 => return None,
                found if found == key => {
                    return Some(shmem::atomic_fetch(self.counts.elem(slot), pe));
                }
                _ => {}
            }
        }
        None
    }

    /// The entries on this PE; after a barrier, all that were added.
    fn local(&self) -> impl Iterator<Item = (u64, u64)> {
        self.keys
            .iter()
            .zip(self.counts.iter())
            .filter(|(key, _)| *key != 0)
    }

    /// How many keys there are on all PEs. Collective.
    fn len(&self) -> usize {
        Team::world().sum(self.local().count())
    }

    /// Collective.
    fn free(self) -> Result<(), Error> {
        shmem::free(self.counts)?;
        shmem::free(self.keys)
    }
}

fn main() {
    shmem::run(|world| {
        let (me, n) = (world.my_pe() as u64, world.n_pes() as u64);
        // Words of a text, say: everybody counts some that others count, too, and some of its own.
        let map = CountMap::new(1000)?;
        for round in 1..=3 {
            for word in 1..=100 {
                map.add(word, round)?;
            }
            for word in 0..20 {
                map.add(1000 + me * 20 + word, 1)?;
            }
        }
        world.barrier();
        assert!((1..=100).all(|word| map.get(word) == Some(6 * n)));
        assert!((0..20 * n).all(|word| map.get(1000 + word) == Some(3)));
        assert_eq!(map.get(999), None);
        assert_eq!(map.len(), 100 + 20 * n as usize);
        let counted = world.sum(map.local().map(|(_, count)| count).sum::<u64>());
        assert_eq!(counted, 100 * 6 * n + 20 * n * 3);
        world.barrier();
        map.free()?;

        // A map that is full says so, and keeps what it has.
        let small = CountMap::new(2)?;
        let added = (1..=100)
            .filter(|&key| small.add(key + me * 1000, 1).is_ok())
            .count();
        assert_eq!(world.sum(added), 2 * n as usize);
        world.barrier();
        assert_eq!(small.len(), 2 * n as usize);
        small.free()?;
        if me == 0 {
            println!("{n} PEs have counted {counted} words");
        }
        Ok(())
    });
}
