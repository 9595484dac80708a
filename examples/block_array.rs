//! A long array in blocks, one a PE: every element can be read and written from everywhere, and each PE goes
//! through its own as through a slice.

use std::ops::Range;

use shmem::{Atomic, AtomicInt, Datum, Error, SymSlice, Team};

/// An array of `len` elements, of which each PE has a block. Free to copy, as symmetric arrays are.
#[derive(Clone, Copy, Debug)]
struct BlockArray<T> {
    len: usize,
    /// Elements of a block, the last ones of which there may be fewer.
    block: usize,
    here: SymSlice<T>,
}

impl<T: Datum> BlockArray<T> {
    /// All elements are zero. Collective.
    fn new(len: usize) -> Result<Self, Error> {
        let block = len.div_ceil(shmem::n_pes());
        let here = shmem::alloc(block)?;
        Ok(Self { len, block, here })
    }

    /// Where an element is: its PE, and its cell there.
    fn at(&self, i: usize) -> (usize, SymSlice<T>) {
        assert!(i < self.len, "element {i} of an array of {}", self.len);
        (i / self.block, self.here.elem(i % self.block))
    }

    fn get(&self, i: usize) -> T {
        let (pe, cell) = self.at(i);
        shmem::g(cell, pe)
    }

    /// Elsewhere at the next quiet or barrier.
    fn put(&self, i: usize, value: T) {
        let (pe, cell) = self.at(i);
        shmem::p(cell, value, pe);
    }

    /// Copies a range, of one block after the other.
    fn get_range(&self, range: Range<usize>) -> Vec<T> {
        assert!(range.end <= self.len, "elements {range:?} of {}", self.len);
        let mut out = Vec::with_capacity(range.len());
        let mut at = range.start;
        while at < range.end {
            let (pe, first) = (at / self.block, at % self.block);
            let count = (self.block - first).min(range.end - at);
            out.extend(shmem::get_vec(self.here.at(first..first + count), pe));
            at += count;
        }
        out
    }

    /// The numbers of this PE's elements.
    fn local_range(&self) -> Range<usize> {
        let start = self.len.min(shmem::my_pe() * self.block);
        start..self.len.min(start + self.block)
    }

    /// This PE's elements, with their numbers.
    fn local(&self) -> impl Iterator<Item = (usize, T)> {
        self.local_range().zip(self.here.iter())
    }

    /// Makes this PE's elements anew from their numbers and what they are.
    fn update_local(&self, f: impl Fn(usize, T) -> T) {
        for (at, (i, old)) in self.local().enumerate() {
            self.here.write(at, f(i, old));
        }
    }

    /// What all elements make together. Collective.
    fn fold<A: shmem::Arithmetic>(&self, zero: A, f: impl Fn(A, T) -> A) -> A {
        let here = self.local().fold(zero, |sum, (_, value)| f(sum, value));
        Team::world().sum(here)
    }

    /// Collective.
    fn free(self) -> Result<(), Error> {
        shmem::free(self.here)
    }
}

impl<T: Atomic> BlockArray<T> {
    fn swap(&self, i: usize, value: T) -> T {
        let (pe, cell) = self.at(i);
        shmem::atomic_swap(cell, value, pe)
    }
}

impl<T: AtomicInt> BlockArray<T> {
    fn fetch_add(&self, i: usize, value: T) -> T {
        let (pe, cell) = self.at(i);
        shmem::atomic_fetch_add(cell, value, pe)
    }
}

fn main() {
    shmem::run(|world| {
        let (me, n) = (world.my_pe(), world.n_pes());
        // A length that blocks do not divide, and fewer elements than PEs.
        for len in [1001, 7, 1] {
            let squares = BlockArray::<u64>::new(len)?;
            squares.update_local(|i, _| (i * i) as u64);
            world.barrier();
            for i in (me..len).step_by(3) {
                assert_eq!(squares.get(i), (i * i) as u64);
            }
            let middle = squares.get_range(len / 3..len - len / 4);
            assert!(
                (len / 3..)
                    .zip(middle)
                    .all(|(i, value)| value == (i * i) as u64)
            );
            let sum = squares.fold(0, |a, b| a + b);
            assert_eq!(sum, (0..len as u64).map(|i| i * i).sum());

            // Everybody adds to every element, and one puts a last one.
            world.barrier();
            (0..len).for_each(|i| _ = squares.fetch_add(i, 1));
            world.barrier();
            assert!(
                squares
                    .local()
                    .all(|(i, value)| value == (i * i + n) as u64)
            );
            world.barrier();
            if me == 0 {
                squares.put(len - 1, 5);
                shmem::quiet();
                assert_eq!(squares.swap(len - 1, 6), 5);
            }
            world.barrier();
            assert_eq!(squares.get(len - 1), 6);
            world.barrier();
            squares.free()?;
        }
        if me == 0 {
            println!("{n} PEs share an array");
        }
        Ok(())
    });
}
