//! Handles to symmetric arrays, and access to this PE's own elements.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::datum::Datum;
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::runtime::rt;

/// A symmetric array of `T`: it exists on every PE, at the same place in each PE's heap.
///
/// This is a handle, an offset and a length, free to copy and valid on all PEs. It gives no access
/// to elements by reference, because any PE may write them at any time: copy them in and out with
/// [`read`](Self::read) and [`write`](Self::write), or take a reference with an `unsafe` method and
/// promise that nobody else writes meanwhile.
///
/// # Values that are written while they are read
/// An element of 1, 2, 4 or 8 bytes that is aligned to its size, and is read or written alone
/// ([`read`](Self::read), [`write`](Self::write), [`p`](crate::p), [`g`](crate::g), a slice of one), is read
/// as it was before or after, by this PE and by others. Of anything longer (`u128`, `Complex<f64>`, arrays,
/// slices) a reader may get some bytes from before and some from after: separate its reading from the
/// writing, with [`put_signal`](crate::put_signal), a [`fence`](crate::fence) and a flag, or a barrier.
///
/// A handle does not own: the memory lives until [`free`](crate::free) or finalize. Use after that
/// reads and writes whatever object lies there then (it stays inside the heap).
pub struct SymSlice<T> {
    /// From the start of the segment, in bytes.
    offset: usize,
    /// In elements.
    len: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for SymSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SymSlice<T> {}

impl<T> std::fmt::Debug for SymSlice<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "SymSlice<{}>[{}]@{:#x}",
            std::any::type_name::<T>(),
            self.len,
            self.offset
        )
    }
}

impl<T: Datum> SymSlice<T> {
    pub(crate) fn from_raw(offset: usize, len: usize) -> Self {
        Self {
            offset,
            len,
            of: PhantomData,
        }
    }

    /// `len` elements, from element `start` on, of the array that begins at the same place on another PE. That array may
    /// be longer than this one. `None` if the elements lie outside the segment, where no array is.
    pub(crate) fn elsewhere(self, start: u64, len: usize) -> Option<Self> {
        let bytes = |elements: usize| elements.checked_mul(size_of::<T>());
        let offset = self.offset.checked_add(bytes(start.try_into().ok()?)?)?;
        let end = offset.checked_add(bytes(len)?)?;
        (end <= rt().node.segment_len()).then_some(Self::from_raw(offset, len))
    }

    /// The array of `len` elements at a symmetric address, such as one that
    /// [`symmetric`](crate::raw::symmetric) has found.
    ///
    /// # Safety
    /// The elements lie in symmetric memory, aligned for `T`.
    #[inline]
    pub const unsafe fn from_addr(at: SymAddr, len: usize) -> Self {
        Self {
            offset: at.offset(),
            len,
            of: PhantomData,
        }
    }

    /// The symmetric address of the first element.
    #[inline]
    #[must_use]
    pub const fn addr(&self) -> SymAddr {
        SymAddr::new(self.offset)
    }

    /// Number of elements.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Offset in the segment, in bytes.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Size in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The elements `range`, as a symmetric array of its own.
    ///
    /// # Panics
    /// If the range reaches past the end.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn at(&self, range: impl RangeBounds<usize>) -> Self {
        let start = match range.start_bound() {
            Bound::Included(&n) => n,
            Bound::Excluded(&n) => n.saturating_add(1),
            Bound::Unbounded => 0,
        };
        // Saturated, an inclusive end lies past every array but one of 2^64 - 1 empty elements.
        let end = match range.end_bound() {
            Bound::Included(&n) => n.saturating_add(1),
            Bound::Excluded(&n) => n,
            Bound::Unbounded => self.len,
        };
        assert!(
            start <= end && end <= self.len,
            "elements {start}..{end} of a symmetric array of {}",
            self.len
        );
        Self::from_raw(self.offset + start * size_of::<T>(), end - start)
    }

    /// Element `i`, as a symmetric array of one: what atomics, waits and signals take. [`value`](Self::value) is the same
    /// as a [`Sym`](crate::Sym), whose methods are its operations.
    ///
    /// # Panics
    /// If `i` is out of range.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn elem(&self, i: usize) -> Self {
        if i >= self.len {
            self.no_such_element(i);
        }
        Self::from_raw(self.offset + i * size_of::<T>(), 1)
    }

    /// The first `n` elements, for an operation on them such as `"put of"` so many `"into"` the array.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    #[track_caller]
    pub(crate) fn up_to(&self, n: usize, [operation, way]: [&str; 2]) -> Self {
        if n > self.len {
            self.too_short(n, operation, way);
        }
        Self::from_raw(self.offset, n)
    }

    #[cold]
    #[track_caller]
    fn no_such_element(&self, i: usize) -> ! {
        panic!("element {i} of a symmetric array of {}", self.len)
    }

    #[cold]
    #[track_caller]
    fn too_short(&self, n: usize, operation: &str, way: &str) -> ! {
        panic!(
            "{operation} {n} elements {way} a symmetric array of {}",
            self.len
        )
    }

    /// The first element, as a symmetric array of one; `None` if there is none.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Option<Self> {
        (self.len > 0).then(|| self.elem(0))
    }

    /// The last element, as a symmetric array of one; `None` if there is none.
    #[inline]
    #[must_use]
    pub fn last(&self) -> Option<Self> {
        (self.len > 0).then(|| self.elem(self.len - 1))
    }

    /// The first `mid` elements, and the others.
    ///
    /// # Panics
    /// If `mid` is past the end.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn split_at(&self, mid: usize) -> (Self, Self) {
        (self.at(..mid), self.at(mid..))
    }

    /// Pieces of `n` elements one after the other; the last one has what remains.
    ///
    /// # Panics
    /// If `n` is 0.
    #[track_caller]
    #[must_use]
    pub fn chunks(&self, n: usize) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        assert!(n > 0, "chunks of 0 elements");
        let array = *self;
        (0..self.len.div_ceil(n))
            .map(move |i| array.at(i * n..array.len.min((i + 1).saturating_mul(n))))
    }

    /// This PE's elements, each read when it is asked for ([`read`](Self::read)).
    #[track_caller]
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator {
        // A closure has no caller that could be told.
        let _initialised = rt();
        let array = *self;
        (0..self.len).map(move |i| array.read(i))
    }

    /// Where this PE can load and store `pe`'s copy directly: its own, or that of a PE of the same
    /// node. Stores do not wake a PE that waits in [`wait_until`](crate::wait_until), which finds them
    /// only when it looks; a put tells it at once.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ptr`.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn ptr(&self, pe: usize) -> Option<*mut T> {
        rt().reach(SymAddr::new(self.offset), pe)
            .map(|at| at.cast())
    }

    /// Address of this PE's own copy.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn as_ptr(&self) -> *mut T {
        rt().own(self.offset).cast()
    }

    /// This PE's element `i`. More than 8 bytes that another PE writes meanwhile may be read in part
    /// ([above](Self#values-that-are-written-while-they-are-read)).
    ///
    /// # Panics
    /// If `i` is out of range.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn read(&self, i: usize) -> T {
        let one = self.elem(i);
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        // SAFETY: the element lies in this PE's segment; any bytes are a value of a `Datum`.
        unsafe {
            let to = value.as_mut_ptr().cast();
            access::copy(one.as_ptr().cast::<u8>(), to, size_of::<T>());
            value.assume_init()
        }
    }

    /// Sets this PE's element `i`. Other PEs see it after a barrier or another synchronisation; more than 8
    /// bytes possibly in part before ([above](Self#values-that-are-written-while-they-are-read)).
    ///
    /// # Panics
    /// If `i` is out of range.
    #[inline]
    #[track_caller]
    pub fn write(&self, i: usize, value: T) {
        let one = self.elem(i);
        // SAFETY: the element lies in this PE's segment.
        unsafe {
            access::copy(
                (&raw const value).cast(),
                one.as_ptr().cast(),
                size_of::<T>(),
            );
        }
    }

    /// Copies this PE's elements from the first on into `out`.
    ///
    /// # Panics
    /// If `out` is longer than the array.
    #[track_caller]
    pub fn read_to(&self, out: &mut [T]) {
        let part = self.up_to(out.len(), ["read of", "from"]);
        // SAFETY: both ranges have the length of `out`; any bytes are values.
        unsafe {
            access::copy(
                part.as_ptr().cast::<u8>(),
                out.as_mut_ptr().cast(),
                size_of_val(out),
            );
        }
    }

    /// Copies `values` into this PE's elements from the first on.
    ///
    /// # Panics
    /// If there are more values than elements.
    #[track_caller]
    pub fn write_from(&self, values: &[T]) {
        let part = self.up_to(values.len(), ["write of", "into"]);
        // SAFETY: both ranges have the length of `values`.
        unsafe {
            access::copy(
                values.as_ptr().cast(),
                part.as_ptr().cast(),
                size_of_val(values),
            );
        }
    }

    /// Copies this PE's elements into a vector.
    #[track_caller]
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        let mut out = Vec::<T>::with_capacity(self.len);
        // SAFETY: the vector has room for the array, and the copy fills it with values.
        unsafe {
            let to = out.as_mut_ptr();
            access::copy(self.as_ptr().cast::<u8>(), to.cast(), self.bytes());
            out.set_len(self.len);
        }
        out
    }

    /// Sets all of this PE's elements.
    #[track_caller]
    pub fn fill(&self, value: T) {
        for i in 0..self.len {
            self.write(i, value);
        }
    }

    /// This PE's elements as a slice, for computing in place.
    ///
    /// # Safety
    /// While the slice lives no PE writes these elements: not this one through another handle, and
    /// no other one by put, atomics or a collective. The memory is not freed meanwhile.
    #[inline]
    #[track_caller]
    pub unsafe fn as_slice<'a>(&self) -> &'a [T] {
        // SAFETY: in the segment, aligned by the allocator, valid values; unwritten by the caller.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// This PE's elements as a mutable slice, for computing in place.
    ///
    /// # Safety
    /// While the slice lives no PE reads or writes these elements in any other way, and the memory
    /// is not freed.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    #[track_caller]
    pub unsafe fn as_mut_slice<'a>(&self) -> &'a mut [T] {
        // SAFETY: in the segment, aligned by the allocator, valid values; exclusive by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len) }
    }
}

/// This PE's elements, one by one.
impl<T: Datum + PartialEq> PartialEq<[T]> for SymSlice<T> {
    fn eq(&self, other: &[T]) -> bool {
        self.len == other.len() && self.iter().zip(other).all(|(mine, other)| mine == *other)
    }
}

macro_rules! equal {
    ($($other:ty $(, $n:ident)?;)*) => { $(
        /// This PE's elements, one by one.
        impl<T: Datum + PartialEq $(, const $n: usize)?> PartialEq<$other> for SymSlice<T> {
            fn eq(&self, other: &$other) -> bool {
                *self == other[..]
            }
        }
    )* };
}
equal! {
    &[T];
    Vec<T>;
    [T; N], N;
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERNAL_SIZE: usize = 1 << 20;

    fn array() -> SymSlice<u32> {
        SymSlice::from_raw(INTERNAL_SIZE, 10)
    }

    #[test]
    fn parts_lie_inside_the_whole() {
        let part = array().at(2..=4);
        assert_eq!((part.len(), part.offset()), (3, INTERNAL_SIZE + 8));
        assert_eq!(part.at(1..).elem(1).offset(), INTERNAL_SIZE + 16);
        assert!(array().at(10..).is_empty());
        let after_first = (Bound::Excluded(0), Bound::Unbounded);
        assert_eq!(array().at(after_first).len(), 9);
    }

    #[test]
    fn pieces_make_up_the_whole() {
        let starts = |n: usize| -> Vec<_> {
            let piece = |part: SymSlice<u32>| (part.offset() - INTERNAL_SIZE, part.len());
            array().chunks(n).map(piece).collect()
        };
        assert_eq!(starts(4), [(0, 4), (16, 4), (32, 2)]);
        assert_eq!(starts(10), [(0, 10)]);
        assert_eq!(starts(usize::MAX), [(0, 10)]);
        assert_eq!(array().at(..0).chunks(3).len(), 0);
        let (left, right) = array().split_at(3);
        assert_eq!((left.len(), right.len()), (3, 7));
        assert_eq!(right.first().unwrap().offset(), INTERNAL_SIZE + 12);
        assert_eq!(right.last().unwrap().offset(), INTERNAL_SIZE + 36);
        assert!(array().at(..0).first().is_none() && array().at(..0).last().is_none());
    }

    #[test]
    #[should_panic(expected = "chunks of 0")]
    fn no_chunk_is_empty() {
        let _ = array().chunks(0);
    }

    #[test]
    #[should_panic(expected = "of a symmetric array of 10")]
    fn an_inclusive_end_at_the_limit_is_past_the_end() {
        let _ = array().at(0..=usize::MAX);
    }

    #[test]
    #[should_panic(expected = "of a symmetric array of 10")]
    fn an_exclusive_start_at_the_limit_is_past_the_end() {
        let _ = array().at((Bound::Excluded(usize::MAX), Bound::Unbounded));
    }

    #[test]
    #[should_panic(expected = "of a symmetric array of 10")]
    fn no_element_has_the_largest_number() {
        let _ = array().elem(usize::MAX);
    }
}
