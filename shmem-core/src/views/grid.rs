//! Symmetric matrices: rows that follow each other, parts of them that do not, and copies of those.

use std::ops::{Bound, RangeBounds};

use crate::context::Ctx;
use crate::datum::Datum;
use crate::rma::{Blocks, Completion, copy_blocks, get_blocks, put_blocks};
use crate::symmetric::array::SymSlice;

/// A symmetric matrix, stored row after row, or a rectangle of one. A handle, free to copy, as
/// [`SymSlice`] is.
///
/// Slices of ordinary memory that are copied to and from it hold its rows one after the other. Where these
/// lie apart the copy is a strided one: on a node a loop; over the network one message for each row, all under way
/// together, and for columns one for each element: many columns are better packed.
///
/// ```
/// # fn main() -> Result<(), shmem::Error> {
/// # let _world = shmem::init()?;
/// let grid = shmem::alloc::<f32>(6 * 4)?.grid(6, 4);
/// let me = shmem::my_pe();
/// // The first column of this PE's grid.
/// grid.at(.., 0..1).put(&[1.0; 6], me);
/// shmem::quiet();
/// assert_eq!((grid.read(5, 0), grid.read(5, 1)), (1.0, 0.0));
/// // A border of two rows and columns.
/// assert_eq!(grid.at(4.., 2..).get_vec(me), [0.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct SymGrid<T> {
    /// From the first element on to the last one.
    array: SymSlice<T>,
    rows: usize,
    cols: usize,
    /// Elements from the beginning of a row to that of the next.
    stride: usize,
}

impl<T> Clone for SymGrid<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SymGrid<T> {}

impl<T> std::fmt::Debug for SymGrid<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rows, cols, stride) = (self.rows, self.cols, self.stride);
        write!(f, "{rows}x{cols}, rows {stride} apart, of {:?}", self.array)
    }
}

impl<T: Datum> SymSlice<T> {
    /// The array as a matrix of `rows` times `cols` elements, row after row.
    ///
    /// # Panics
    /// If the array has not as many elements.
    #[track_caller]
    #[must_use]
    pub fn grid(&self, rows: usize, cols: usize) -> SymGrid<T> {
        assert!(
            rows.checked_mul(cols) == Some(self.len()),
            "a symmetric array of {} elements is no grid of {rows} times {cols}",
            self.len()
        );
        SymGrid {
            array: *self,
            rows,
            cols,
            stride: cols,
        }
    }
}

/// The beginning and the length of a range of `n`.
#[track_caller]
fn extent(what: &str, range: &impl RangeBounds<usize>, n: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(&i) => i,
        Bound::Excluded(&i) => i.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&i) => i.saturating_add(1),
        Bound::Excluded(&i) => i,
        Bound::Unbounded => n,
    };
    assert!(
        start <= end && end <= n,
        "{what} {start}..{end} of a symmetric grid with {n}"
    );
    (start, end - start)
}

impl<T: Datum> SymGrid<T> {
    /// Number of rows.
    #[inline]
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    #[inline]
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Row `i`, whose elements follow each other.
    ///
    /// # Panics
    /// If `i` is out of range.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn row(&self, i: usize) -> SymSlice<T> {
        assert!(
            i < self.rows,
            "row {i} of a symmetric grid with {}",
            self.rows
        );
        let start = i * self.stride;
        self.array.at(start..start + self.cols)
    }

    /// The rectangle of these rows and columns: `grid.at(1..3, ..)`, and a column as `grid.at(.., 2..3)`.
    ///
    /// # Panics
    /// If a range reaches past the end.
    #[track_caller]
    #[must_use]
    pub fn at(&self, rows: impl RangeBounds<usize>, cols: impl RangeBounds<usize>) -> Self {
        let (row, rows) = extent("rows", &rows, self.rows);
        let (col, cols) = extent("columns", &cols, self.cols);
        let array = match rows.checked_sub(1) {
            Some(last) if cols > 0 => {
                let start = row * self.stride + col;
                self.array.at(start..start + last * self.stride + cols)
            }
            _ => self.array.at(..0),
        };
        Self {
            array,
            rows,
            cols,
            stride: self.stride,
        }
    }

    /// This PE's element in row `i` and column `j` ([`SymSlice::read`]).
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn read(&self, i: usize, j: usize) -> T {
        self.row(i).read(j)
    }

    /// Sets this PE's element in row `i` and column `j` ([`SymSlice::write`]).
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    #[track_caller]
    pub fn write(&self, i: usize, j: usize, value: T) {
        self.row(i).write(j, value);
    }

    /// Number of elements.
    fn len(&self) -> usize {
        self.rows * self.cols
    }

    /// The rows, which are `dest` and `source` elements apart.
    fn blocks(&self, dest: usize, source: usize) -> Blocks {
        let size = size_of::<T>();
        Blocks {
            count: if self.cols == 0 { 0 } else { self.rows },
            bytes: self.cols * size,
            dest_stride: dest * size,
            source_stride: source * size,
        }
    }

    #[track_caller]
    fn check_len(&self, what: &str, len: usize) {
        assert!(
            len == self.len(),
            "{what}: {len} elements for a symmetric grid of {} times {}",
            self.rows,
            self.cols
        );
    }

    /// Copies this PE's elements into `out`, row after row.
    ///
    /// # Panics
    /// If `out` has another number of elements.
    #[track_caller]
    pub fn read_to(&self, out: &mut [T]) {
        self.check_len("read_to", out.len());
        let blocks = self.blocks(self.cols, self.stride);
        // SAFETY: the rows lie inside both arrays; any bytes are values.
        unsafe { copy_blocks(self.array.as_ptr().cast(), out.as_mut_ptr().cast(), blocks) };
    }

    /// Sets this PE's elements, row after row.
    ///
    /// # Panics
    /// If there is another number of values.
    #[track_caller]
    pub fn write_from(&self, values: &[T]) {
        self.check_len("write_from", values.len());
        let blocks = self.blocks(self.stride, self.cols);
        // SAFETY: the rows lie inside both arrays.
        unsafe { copy_blocks(values.as_ptr().cast(), self.array.as_ptr().cast(), blocks) };
    }

    /// Copies `source` into the elements of `pe`.
    ///
    /// # Completion
    /// As for [`put`](crate::put).
    ///
    /// # Panics
    /// If `source` has another number of elements, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ibput`.
    #[track_caller]
    pub fn put(&self, source: &[T], pe: usize) {
        self.check_len("put", source.len());
        let (ctx, blocks) = (Ctx::default_ctx(), self.blocks(self.stride, self.cols));
        let (dest, from) = (self.array.addr(), source.as_ptr().cast());
        // SAFETY: the rows lie inside both arrays.
        unsafe { put_blocks(ctx, dest, from, blocks, pe, Completion::OnReturn) };
    }

    /// Copies the elements of `source` on this PE into those of `pe`: of two rectangles of the same shape, perhaps
    /// of the same matrix.
    ///
    /// # Completion
    /// As for [`put`](crate::put).
    ///
    /// # Panics
    /// If `source` has another shape, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ibput`.
    #[track_caller]
    pub fn put_sym(&self, source: Self, pe: usize) {
        self.check_shape("put_sym", source);
        let (ctx, blocks) = (Ctx::default_ctx(), self.blocks(self.stride, source.stride));
        let (dest, from) = (self.array.addr(), source.array.as_ptr().cast_const().cast());
        // SAFETY: the rows lie inside both arrays, of segments that stay mapped.
        unsafe { put_blocks(ctx, dest, from, blocks, pe, Completion::OnReturn) };
    }

    #[track_caller]
    fn check_shape(&self, what: &str, other: Self) {
        assert!(
            (self.rows, self.cols) == (other.rows, other.cols),
            "{what}: {} times {} elements for a symmetric grid of {} times {}",
            other.rows,
            other.cols,
            self.rows,
            self.cols
        );
    }

    /// Copies the elements of `pe` into `out`.
    ///
    /// # Completion
    /// `out` holds the data on return.
    ///
    /// # Panics
    /// If `out` has another number of elements, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_ibget`.
    #[track_caller]
    pub fn get(&self, out: &mut [T], pe: usize) {
        self.check_len("get", out.len());
        let (ctx, blocks) = (Ctx::default_ctx(), self.blocks(self.cols, self.stride));
        // SAFETY: the rows lie inside both arrays.
        unsafe {
            get_blocks(
                ctx,
                out.as_mut_ptr().cast(),
                self.array.addr(),
                blocks,
                pe,
                Completion::OnReturn,
            )
        };
    }

    /// Copies the elements of `pe` into a vector.
    ///
    /// # Panics
    /// If there is no such PE.
    #[track_caller]
    #[must_use]
    pub fn get_vec(&self, pe: usize) -> Vec<T> {
        let mut out = Vec::<T>::with_capacity(self.len());
        let (ctx, blocks) = (Ctx::default_ctx(), self.blocks(self.cols, self.stride));
        // SAFETY: the vector has room for all rows, which fill it; any bytes are values.
        unsafe {
            get_blocks(
                ctx,
                out.as_mut_ptr().cast(),
                self.array.addr(),
                blocks,
                pe,
                Completion::OnReturn,
            );
            out.set_len(self.len());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> SymGrid<u32> {
        SymSlice::<u32>::from_raw(4096, 35).grid(5, 7)
    }

    #[test]
    fn rectangles_lie_inside_the_whole() {
        let part = grid().at(1..4, 2..=5);
        assert_eq!((part.rows(), part.cols()), (3, 4));
        assert_eq!(part.array.offset(), 4096 + 4 * (7 + 2));
        assert_eq!(part.array.len(), 7 + 7 + 4);
        let inner = part.at(2.., 3..);
        assert_eq!((inner.rows(), inner.cols(), inner.array.len()), (1, 1, 1));
        assert_eq!(inner.row(0).offset(), 4096 + 4 * (3 * 7 + 5));
        let column = grid().at(.., 6..);
        assert_eq!(
            (column.array.len(), column.row(4).offset()),
            (29, 4096 + 4 * 34)
        );
    }

    #[test]
    fn empty_rectangles_have_nothing() {
        for part in [
            grid().at(5.., ..),
            grid().at(.., 7..),
            grid().at(2..2, 3..3),
        ] {
            assert!(part.array.is_empty() && part.len() == 0);
            let blocks = part.blocks(7, 7);
            assert_eq!(blocks.count * blocks.bytes, 0);
        }
    }

    #[test]
    #[should_panic(expected = "columns 3..8 of a symmetric grid with 7")]
    fn no_column_is_past_the_end() {
        let _ = grid().at(.., 3..8);
    }

    #[test]
    #[should_panic(expected = "row 3 of a symmetric grid with 3")]
    fn no_row_is_past_the_end() {
        let _ = grid().at(..3, ..).row(3);
    }

    #[test]
    #[should_panic(expected = "35 elements is no grid of 6 times 6")]
    fn grids_have_as_many_elements_as_the_array() {
        let _ = SymSlice::<u32>::from_raw(4096, 35).grid(6, 6);
    }
}
