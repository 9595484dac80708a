//! How reductions combine elements, with the types erased: the algorithms know sizes and one of
//! these functions, and are compiled once.
//!
//! Any PE can write a symmetric array at any time, by a mistake in safe code too, and a function that
//! computes with elements takes them for its own. So elements are copied out of shared memory, a
//! [`Block`] at a time, combined in private memory, and copied back.

use std::any::type_name;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::op::ReduceOp;
use crate::datum::Datum;
use crate::heap::access;
use crate::team::{ProgramOperation, Team};

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

    /// What [`combine`] makes of a value of `O`, which the caller has. To run it that value must have been forgotten.
    pub(super) const fn of<T: Datum, O: ReduceOp<T>>() -> Self {
        Self {
            run: combine_all::<T, O>,
            names: || [type_name::<T>(), type_name::<O>()],
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
    Combine::of::<T, O>()
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
    let operation = ProgramOperation;
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

/// Bytes of a block that lie in the frame of the function that needs it. Several blocks are in use at a time, and
/// programs call collectives on the stacks of user-level threads, of which many have 16 KiB.
const IN_FRAME: usize = 512;

/// Blocks and their bytes that a thread keeps for its next collective.
const KEPT: usize = 4;
const KEPT_BYTES: usize = 64 << 10;

type Rooms = Vec<Room<128>>;

thread_local! {
    static SPARE: Cell<Vec<Rooms>> = const { Cell::new(Vec::new()) };
}

/// Private room for some bytes.
pub(super) struct Block {
    frame: Room<IN_FRAME>,
    beside: Rooms,
}

impl Block {
    /// For at least `bytes`. A thread allocates for its first collectives only.
    #[inline]
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            frame: Room([MaybeUninit::uninit(); IN_FRAME]),
            beside: match bytes {
                0..=IN_FRAME => Vec::new(),
                _ => beside(bytes),
            },
        }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        match self.beside.capacity() {
            0 => self.frame.0.as_mut_ptr().cast(),
            _ => self.beside.as_mut_ptr().cast(),
        }
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        if self.beside.capacity() > 0 {
            keep(std::mem::take(&mut self.beside));
        }
    }
}

/// Room of at least `bytes`, which this thread may have used before.
#[cold]
fn beside(bytes: usize) -> Rooms {
    let spare = SPARE.try_with(|spare| {
        let mut all = spare.take();
        let last = all.pop();
        spare.set(all);
        last
    });
    let mut rooms = spare.ok().flatten().unwrap_or_default();
    rooms.reserve_exact(bytes.div_ceil(size_of::<Room<128>>()));
    rooms
}

/// Leaves room to the thread's next block.
#[cold]
fn keep(rooms: Rooms) {
    let of_thread = |spare: &Cell<Vec<Rooms>>| {
        let mut all = spare.take();
        if all.len() < KEPT && rooms.capacity() * size_of::<Room<128>>() <= KEPT_BYTES {
            all.push(rooms);
        }
        spare.set(all);
    };
    // A thread that ends keeps nothing.
    let _ = SPARE.try_with(of_thread);
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

    /// Room for as many of `n` as are worked on at a time in room for `bytes`.
    pub(super) fn block(self, n: usize, bytes: usize) -> Block {
        Block::new(self.in_room(bytes).min(n) * self.size)
    }

    /// Combines `n` elements of shared memory into private ones.
    ///
    /// # Safety
    /// Both arrays are mapped and hold `n` elements; nobody else knows of `into`, which is aligned.
    #[inline]
    pub(super) unsafe fn add(self, into: *mut u8, from: *const u8, n: usize) {
        let per = self.in_room(OPERAND);
        let mut operand = self.block(n, OPERAND);
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
        let mut sum = self.block(n, OPERAND);
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

/// One reduction: its arrays and what to do with them.
#[derive(Clone, Copy)]
pub(super) struct Reduction<'a> {
    pub(super) team: &'a Team,
    pub(super) dest: usize,
    pub(super) source: usize,
    pub(super) n: usize,
    pub(super) of: Elements,
}

impl Reduction<'_> {
    pub(super) fn bytes(&self) -> usize {
        self.n * self.of.size
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::op::{And, Max, Min, Or, Prod, Sum, Xor};
    use super::*;
    use crate::datum::Complex;

    #[test]
    fn blocks_have_room_for_what_was_asked_for() {
        let sizes = [
            0,
            1,
            IN_FRAME,
            IN_FRAME + 1,
            BLOCK,
            3 * BLOCK + 5,
            2 * KEPT_BYTES,
        ];
        // Once more with what was kept.
        for bytes in sizes.into_iter().chain(sizes) {
            let mut blocks = [Block::new(bytes), Block::new(bytes)];
            for block in &mut blocks {
                let at = block.as_mut_ptr();
                assert!(at.addr().is_multiple_of(128));
                // SAFETY: as much as the block was made for.
                unsafe { at.write_bytes(7, bytes) };
            }
        }
    }

    #[test]
    fn a_thread_uses_its_blocks_again() {
        let at = |bytes| Block::new(bytes).as_mut_ptr();
        let first = at(BLOCK);
        assert_eq!((at(BLOCK), at(IN_FRAME + 1)), (first, first));
        assert!(size_of::<Block>() <= IN_FRAME + 128);
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
