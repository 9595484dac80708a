//! How reductions combine elements, with the types erased: the algorithms know sizes and one of
//! these functions, and are compiled once.
//!
//! Any PE can write a symmetric array at any time, by a mistake in safe code too, and a function that
//! computes with elements takes them for its own. So elements are copied out of shared memory, a
//! [`Block`] at a time, combined in private memory, and copied back.

use std::any::type_name;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::op::ReduceOp;
use crate::datum::Datum;
use crate::heap::access;
use crate::team::Operation;

/// Combines `n` elements: `into[i] = into[i] op from[i]`.
///
/// # Safety
/// What such a function asks of its caller: both arrays hold `n` elements of its type, aligned, and
/// they lie apart in memory that nobody else knows of. The library gives it copies of its own.
type Run = unsafe fn(into: *mut u8, from: *const u8, n: usize);

/// An operation on elements of some type: [`combine`] gives those of types, [`new`](Self::new) any.
#[derive(Clone, Copy, Debug)]
pub struct Combine {
    run: Run,
    /// Names of the types of elements and operation.
    names: fn() -> [&'static str; 2],
}

impl Combine {
    /// The operation that a function does with `n` elements: `into[i] = into[i] op from[i]`. It may count on
    /// both arrays to hold so many, aligned, and to lie apart in memory that nobody else knows of.
    pub const fn new(run: unsafe fn(into: *mut u8, from: *const u8, n: usize)) -> Self {
        Self {
            run,
            names: || ["", ""],
        }
    }

    pub(super) fn names(self) -> [&'static str; 2] {
        (self.names)()
    }
}

/// The operation `O` on elements of type `T`, for [`reduce`](crate::raw::reduce) and
/// [`scan`](crate::raw::scan). It has no data.
pub const fn combine<T: Datum, O: ReduceOp<T>>(op: O) -> Combine {
    // It exists from now on, and has no bytes that could lie anywhere.
    std::mem::forget(op);
    Combine {
        run: combine_all::<T, O>,
        names: || [type_name::<T>(), type_name::<O>()],
    }
}

/// # Safety
/// As [`Run`] says, and a value of `O` has been forgotten.
unsafe fn combine_all<T: Datum, O: ReduceOp<T>>(into: *mut u8, from: *const u8, n: usize) {
    const {
        assert!(
            size_of::<O>() == 0,
            "an operation of a reduction must have no data, and a closure capture nothing: all PEs \
             have to combine in the same way"
        );
    }
    // SAFETY: one exists for ever, by the caller, and has no bytes.
    let op = unsafe { NonNull::<O>::dangling().as_ref() };
    // SAFETY: by the caller; any bytes are values.
    let (into, from) = unsafe {
        (
            std::slice::from_raw_parts_mut(into.cast::<T>(), n),
            std::slice::from_raw_parts(from.cast::<T>(), n),
        )
    };
    let operation = Operation;
    for (into, from) in into.iter_mut().zip(from) {
        *into = op.combine(*into, *from);
    }
    std::mem::forget(operation);
}

/// What is combined at a time in a large reduction: it stays in the first cache.
pub(super) const BLOCK: usize = 8 << 10;

/// What is copied out of shared memory at a time, to be combined with a block.
const OPERAND: usize = 2 << 10;

/// Aligned for every type.
#[repr(C, align(128))]
struct Room<const N: usize>([MaybeUninit<u8>; N]);

/// Private room for `N` bytes, or for one element of a program's own type that is larger.
pub(super) struct Block<const N: usize = BLOCK> {
    usual: Room<N>,
    large: Vec<Room<128>>,
}

impl<const N: usize> Block<N> {
    /// For at least `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            usual: Room([MaybeUninit::uninit(); N]),
            large: match bytes {
                _ if bytes <= N => Vec::new(),
                _ => Vec::with_capacity(bytes.div_ceil(size_of::<Room<128>>())),
            },
        }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        match self.large.capacity() {
            0 => self.usual.0.as_mut_ptr().cast(),
            _ => self.large.as_mut_ptr().cast(),
        }
    }
}

/// Elements that are combined.
#[derive(Clone, Copy)]
pub(super) struct Elements {
    /// Bytes of one.
    pub(super) size: usize,
    pub(super) combine: Combine,
}

impl Elements {
    /// How many are worked on at a time in room for `bytes`.
    pub(super) fn in_room(self, bytes: usize) -> usize {
        (bytes / self.size).max(1)
    }

    /// Room for as many as are worked on in `N` bytes.
    pub(super) fn block<const N: usize>(self) -> Block<N> {
        Block::new(self.size)
    }

    /// Combines `n` elements of shared memory into private ones.
    ///
    /// # Safety
    /// Both arrays are mapped and hold `n` elements; nobody else knows of `into`, which is aligned.
    #[inline]
    pub(super) unsafe fn add(self, into: *mut u8, from: *const u8, n: usize) {
        let per = self.in_room(OPERAND);
        let mut operand = self.block::<OPERAND>();
        for start in (0..n).step_by(per) {
            let (at, n) = (start * self.size, per.min(n - start));
            // SAFETY: by the caller; the operand has room for them.
            unsafe {
                access::copy(from.add(at), operand.as_mut_ptr(), n * self.size);
                (self.combine.run)(into.add(at), operand.as_mut_ptr(), n);
            }
        }
    }

    /// Combines `n` elements of shared memory into others there: `into` becomes `into` op `from`.
    ///
    /// # Safety
    /// Both arrays are mapped and hold `n` elements; `into` is writable.
    pub(super) unsafe fn add_shared(self, into: *mut u8, from: *const u8, n: usize) {
        // SAFETY: by the caller.
        unsafe { self.sum_shared(into, from, into, n) }
    }

    /// The same the other way round: `into` becomes `from` op `into`.
    ///
    /// # Safety
    /// As for [`add_shared`](Self::add_shared).
    pub(super) unsafe fn add_shared_before(self, into: *mut u8, from: *const u8, n: usize) {
        // SAFETY: by the caller.
        unsafe { self.sum_shared(from, into, into, n) }
    }

    /// # Safety
    /// The arrays are mapped and hold `n` elements; `to`, which may be one of the others, is writable.
    unsafe fn sum_shared(self, a: *const u8, b: *const u8, to: *mut u8, n: usize) {
        let per = self.in_room(OPERAND);
        let mut sum = self.block::<OPERAND>();
        for start in (0..n).step_by(per) {
            let (at, n) = (start * self.size, per.min(n - start));
            // SAFETY: by the caller; the block has room for them.
            unsafe {
                access::copy(a.add(at), sum.as_mut_ptr(), n * self.size);
                self.add(sum.as_mut_ptr(), b.add(at), n);
                access::copy(sum.as_mut_ptr(), to.add(at), n * self.size);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::op::{And, Max, Min, Or, Prod, Sum, Xor};
    use super::*;
    use crate::datum::Complex;

    #[test]
    fn blocks_have_room_for_what_was_asked_for() {
        for bytes in [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5] {
            let mut block: Block = Block::new(bytes);
            let at = block.as_mut_ptr();
            assert!(at.addr().is_multiple_of(128));
            // SAFETY: as much as the block was made for, and at least its usual size.
            unsafe { at.write_bytes(7, bytes.max(BLOCK)) };
        }
    }

    /// Adds arrays byte by byte.
    struct Bytes;

    impl<const N: usize> ReduceOp<[u8; N]> for Bytes {
        fn combine(&self, a: [u8; N], b: [u8; N]) -> [u8; N] {
            std::array::from_fn(|i| a[i].wrapping_add(b[i]))
        }
    }

    #[test]
    fn elements_of_all_sizes_are_added_piece_by_piece() {
        fn run<const N: usize>() {
            let of = Elements {
                size: N,
                combine: combine::<[u8; N], _>(Bytes),
            };
            for n in [0, 1, 2, 3 * BLOCK / N] {
                let from: Vec<u8> = (0..n * N).map(|i| (i % 101) as u8).collect();
                let mut into = from.clone();
                // SAFETY: both arrays have `n` elements.
                unsafe {
                    of.add(into.as_mut_ptr(), from.as_ptr(), n);
                    of.add_shared(into.as_mut_ptr(), from.as_ptr(), n);
                }
                assert!(
                    into.iter()
                        .zip(&from)
                        .all(|(&sum, &one)| sum == one.wrapping_mul(3))
                );
            }
        }
        run::<1>();
        run::<8>();
        run::<48>();
        run::<{ OPERAND + 8 }>();
        run::<{ BLOCK + 8 }>();
    }

    #[test]
    fn elements_are_combined_one_by_one() {
        fn run<T: Datum + PartialEq, O: ReduceOp<T>>(_: O, a: [T; 3], b: [T; 3], c: [T; 3]) {
            let mut into = a;
            // SAFETY: arrays of three elements of the type.
            unsafe { combine_all::<T, O>(into.as_mut_ptr().cast(), b.as_ptr().cast(), 3) };
            assert_eq!(into, c);
        }
        run(Sum, [1, -2, i32::MAX], [3, 4, 1], [4, 2, i32::MIN]);
        run(Prod, [1.5, 2.0, 0.0], [2.0, -1.0, 5.0], [3.0, -2.0, 0.0]);
        run(Prod, [3u8, 16, 1], [4, 16, 1], [12, 0, 1]);
        run(
            Min,
            [1.0f32, f32::NAN, 3.0],
            [2.0, 7.0, -3.0],
            [1.0, 7.0, -3.0],
        );
        run(
            Max,
            [f64::NAN, 1.0, 2.0],
            [2.0, f64::NAN, 1.0],
            [2.0, 1.0, 2.0],
        );
        run(Max, [1u8, 200, 3], [2, 100, 3], [2, 200, 3]);
        run(Min, [-1i8, 5, 0], [1, 4, 0], [-1, 4, 0]);
        run(And, [6u16, 0, 9], [3, 1, 8], [2, 0, 8]);
        run(Or, [6u64, 0, 9], [3, 1, 2], [7, 1, 11]);
        run(Xor, [6i64, 0, 9], [3, 1, 9], [5, 1, 0]);
        let complex = |re, im| Complex { re, im };
        let (a, b) = ([complex(1.0, 2.0); 3], [complex(3.0, -1.0); 3]);
        run(Prod, a, b, [complex(5.0, 5.0); 3]);
        run(Sum, a, b, [complex(4.0, 1.0); 3]);
    }
}
