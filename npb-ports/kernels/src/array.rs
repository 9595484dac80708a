//! Memory of grids, keys and matrices: zeroed numbers on huge pages.
//!
//! A sweep through a grid of a hundred megabytes touches a new 4 KiB page every 512 numbers, and a
//! stencil walks along many rows in as many pages. With pages of 2 MiB the processor finds all of
//! them in its TLB. Kernels commonly give them only where they are asked for (`madvise`).

use bytemuck::Pod;
use memmap2::{Advice, MmapMut};
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A fixed number of elements, zero at first, aligned to a page. Memory is taken when it is first
/// written.
#[derive(Debug)]
pub struct Array<T = f64> {
    map: MmapMut,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Array<T> {
    /// `len` zeros.
    ///
    /// # Errors
    /// If there is no address space for so many, or a limit (`ulimit -v`) forbids it.
    pub fn new(len: usize) -> io::Result<Self> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapMut::map_anon(bytes.max(1))?;
        // Advice only: a kernel without huge pages says no, and the array works as well.
        #[cfg(target_os = "linux")]
        let _ = map.advise(Advice::HugePage);
        Ok(Self {
            map,
            len,
            element: PhantomData,
        })
    }
}

impl<T: Pod> Deref for Array<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.map[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> DerefMut for Array<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map[..self.len * size_of::<T>()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_with_zeros_and_keeps_what_is_written() {
        for len in [0, 1, 511, 1 << 19] {
            let mut array = Array::new(len).unwrap();
            assert_eq!(array.len(), len);
            assert!(array.iter().all(|x| *x == 0.0));
            array.fill(1.5);
            assert_eq!(array.iter().sum::<f64>(), 1.5 * len as f64);
            assert!(array.as_ptr().cast::<u8>().align_offset(64) == 0);
        }
    }

    #[test]
    fn what_no_machine_has_is_an_error() {
        assert!(Array::<f64>::new(usize::MAX).is_err());
        assert!(Array::<u32>::new(1 << 57).is_err());
    }
}
