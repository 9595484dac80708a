//! Memory of grids: zeroed numbers on huge pages.
//!
//! A sweep through a grid of a hundred megabytes touches a new 4 KiB page every 512 numbers, and a
//! stencil walks along many rows in as many pages. With pages of 2 MiB the processor finds all of
//! them in its TLB. Kernels commonly give them only where they are asked for (`madvise`).

use memmap2::{Advice, MmapMut};
use std::io;
use std::ops::{Deref, DerefMut};

/// A fixed number of `f64`, zero at first, aligned to a page. Memory is taken when it is first
/// written.
#[derive(Debug)]
pub struct Array {
    map: MmapMut,
    len: usize,
}

impl Array {
    /// `len` zeros.
    ///
    /// # Errors
    /// If there is no address space for so many, or a limit (`ulimit -v`) forbids it.
    pub fn new(len: usize) -> io::Result<Self> {
        let bytes = len
            .checked_mul(size_of::<f64>())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapMut::map_anon(bytes.max(1))?;
        // Advice only: a kernel without huge pages says no, and the array works as well.
        #[cfg(target_os = "linux")]
        let _ = map.advise(Advice::HugePage);
        Ok(Self { map, len })
    }
}

impl Deref for Array {
    type Target = [f64];

    #[inline]
    fn deref(&self) -> &[f64] {
        bytemuck::cast_slice(&self.map[..self.len * size_of::<f64>()])
    }
}

impl DerefMut for Array {
    #[inline]
    fn deref_mut(&mut self) -> &mut [f64] {
        bytemuck::cast_slice_mut(&mut self.map[..self.len * size_of::<f64>()])
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
        assert!(Array::new(usize::MAX).is_err());
        assert!(Array::new(1 << 57).is_err());
    }
}
