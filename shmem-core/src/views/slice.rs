//! The elements of an array on any PE: methods of [`SymSlice`] for what [`put`](crate::put) and [`get`](crate::get) do.

#![forbid(unsafe_code)]

use crate::datum::Datum;
use crate::rma::typed;
use crate::symmetric::array::SymSlice;

impl<T: Datum> SymSlice<T> {
    /// Copies `source` into the first elements on `pe`.
    ///
    /// ```
    /// # let world = shmem::init().unwrap();
    /// let array = shmem::alloc::<u32>(3).unwrap();
    /// array.at(1..).put(&[5, 6], world.my_pe());
    /// world.barrier();
    /// assert_eq!(array.get_vec(world.my_pe()), [0, 5, 6]);
    /// ```
    ///
    /// # Completion
    /// As for [`put`](crate::put).
    ///
    /// # Panics
    /// If `source` is longer than the array, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_put`.
    #[inline]
    #[track_caller]
    pub fn put(self, source: &[T], pe: usize) {
        typed::put(self, source, pe);
    }

    /// Copies the first elements on `pe` into `out`.
    ///
    /// # Completion
    /// `out` holds the data on return.
    ///
    /// # Panics
    /// If `out` is longer than the array, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_get`.
    #[inline]
    #[track_caller]
    pub fn get(self, out: &mut [T], pe: usize) {
        typed::get(out, self, pe);
    }

    /// Copies the elements on `pe` into a vector.
    ///
    /// # Completion
    /// The vector holds the data on return.
    ///
    /// # Panics
    /// If there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_get`.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn get_vec(self, pe: usize) -> Vec<T> {
        typed::get_vec(self, pe)
    }
}
