//! Maps the file of a domain.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::fs::{fstat, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::domain::FileId;
use super::table::{WORDS, Words};

/// The table of a domain, in its file.
#[derive(Debug)]
pub(crate) struct MappedTable(NonNull<AtomicU64>);

// SAFETY: it is memory that is accessed through atomics only, and owned until it is dropped.
unsafe impl Send for MappedTable {}

/// Bytes of the file of a domain. Pages of it exist once they are used.
pub const FILE_LEN: usize = WORDS * size_of::<AtomicU64>();

impl MappedTable {
    /// Maps a file, and gives an empty one its size.
    ///
    /// # Errors
    /// The file has another size, cannot be written, or has no memory behind it.
    pub(crate) fn open(file: BorrowedFd<'_>) -> io::Result<Self> {
        let len = fstat(file)?.st_size as u64;
        if len == 0 {
            ftruncate(file, FILE_LEN as u64)?;
        } else if len != FILE_LEN as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the file has {len} bytes, a domain's has {FILE_LEN}, or 0 when it is new"),
            ));
        }
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping anywhere, of a file that is as long as it.
        let start = unsafe { mmap(ptr::null_mut(), FILE_LEN, access, kind, file, 0)? };
        NonNull::new(start.cast())
            .map(Self)
            .ok_or_else(|| io::Error::other("mapped at address 0"))
    }
}

impl Words for MappedTable {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped with this length, aligned to a page, zeros or words written by other
        // processes, and every access is atomic. A process of the domain that made the file shorter
        // would break this; processes of a domain trust each other.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), WORDS) }
    }
}

impl Drop for MappedTable {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference to it is left.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), FILE_LEN) };
    }
}

/// Which file this is.
///
/// # Errors
/// The system refuses to tell.
pub fn file_id(file: BorrowedFd<'_>) -> io::Result<FileId> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}
