//! Moving pages of static data into the segment.
//!
//! Between copying a page and mapping its copy nothing here writes static data, not even that of the
//! library itself, which may be linked into the program: no allocation, no lock, no output.

use std::fs::File;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;

use super::stretch::Stretch;
use crate::heap::access;

/// Which pages of this process have memory, as far as the kernel tells.
pub(super) struct Present {
    /// Bytes of one.
    size: usize,
    pagemap: Option<File>,
    /// Entries of the pages from `first` on.
    entries: Vec<u8>,
    first: usize,
}

/// Pages asked about at a time.
const WINDOW: usize = 4096;
/// Bits of an entry: the page is in memory, or was swapped out.
const IN_MEMORY: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;

impl Present {
    pub(super) fn open(size: usize) -> Self {
        Self {
            size,
            pagemap: File::open("/proc/self/pagemap").ok(),
            entries: Vec::with_capacity(WINDOW * 8),
            first: 0,
        }
    }

    /// Whether the page at `at` may hold anything but zeros, if nothing of it comes from a file.
    fn has(&mut self, at: usize) -> bool {
        let Some(pagemap) = &self.pagemap else {
            return true;
        };
        let page = at / self.size;
        if !(self.first..self.first + self.entries.len() / 8).contains(&page) {
            // Within the capacity: no allocation.
            self.entries.resize(WINDOW * 8, 0);
            let read = pagemap.read_at(&mut self.entries, page as u64 * 8);
            self.entries.truncate(read.unwrap_or(0) / 8 * 8);
            self.first = page;
        }
        let at = (page - self.first) * 8;
        match self.entries.get(at..at + 8) {
            Some(entry) => {
                let entry = u64::from_ne_bytes(entry.try_into().expect("8 bytes"));
                entry & (IN_MEMORY | SWAPPED) != 0
            }
            None => true,
        }
    }
}

/// A stretch to be moved.
pub(super) struct Job {
    pub(super) stretch: Stretch,
    /// Bytes at its start that come from the program's file.
    pub(super) from_file: usize,
    /// First byte of this PE's segment.
    pub(super) segment: *mut u8,
    /// The file of the heap memory, and where the segment begins in it.
    pub(super) file: RawFd,
    pub(super) in_file: u64,
}

/// Copies what the stretch holds into the segment, and maps that in its place. The error is the
/// operating system's number; nothing has changed then.
///
/// # Safety
/// The stretch is writable memory of this process that keeps its address for ever, and no other
/// thread writes it meanwhile. The segment is mapped, with room for the stretch that nobody else
/// uses, at the offsets that `job` says, and zero.
pub(super) unsafe fn remap(job: Job, pages: &mut Present) -> Result<(), i32> {
    let Stretch { start, at, .. } = job.stretch;
    let (len, page_size) = (job.stretch.pages(), pages.size);
    for page in (0..len).step_by(page_size) {
        let from = (start + page) as *const u8;
        if page >= job.from_file && !pages.has(start + page) {
            continue;
        }
        // SAFETY: both pages are mapped, by the caller.
        unsafe {
            if !is_zero(from, page_size) {
                access::copy(from, job.segment.add(at + page), page_size);
            }
        }
    }
    // SAFETY: the same bytes at the same addresses, by the caller.
    let mapped = unsafe {
        libc::mmap(
            start as *mut libc::c_void,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
            job.file,
            (job.in_file + at as u64) as libc::off_t,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO));
    }
    Ok(())
}

/// # Safety
/// The page, of `size` bytes, is mapped.
unsafe fn is_zero(page: *const u8, size: usize) -> bool {
    let words = page.cast::<u64>();
    // SAFETY: aligned words of the page. Volatile, because the memory is not a Rust object.
    (0..size / 8).all(|i| unsafe { words.add(i).read_volatile() } == 0)
}
