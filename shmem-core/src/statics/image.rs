//! The main program as it lies in memory: its program headers and notes.

use std::ffi::{c_int, c_void};

use shmem_node::elf::{PT_INTERP, PT_LOAD, PT_NOTE, ProgramHeader, StaticData};

/// The main program, loaded.
#[derive(Debug, Default)]
pub(super) struct Image {
    /// What is added to the headers' addresses.
    pub(super) base: usize,
    headers: Vec<ProgramHeader>,
    /// Bytes of each segment of notes.
    notes: Vec<&'static [u8]>,
}

impl Image {
    /// Whether no dynamic linker has loaded it, so that it has a C library of its own.
    pub(super) fn is_static(&self) -> bool {
        self.headers.iter().all(|h| h.kind != PT_INTERP)
    }

    /// Where its writable static data lies, by pages of this size.
    pub(super) fn statics(&self, page: usize) -> Option<StaticData> {
        StaticData::of(&self.headers, self.notes.iter().copied(), page)
    }
}

/// Looks at the main program; `None` if the C library does not tell.
pub(super) fn main_program() -> Option<Image> {
    let mut found: Option<Image> = None;
    // SAFETY: the callback gets back the pointer given here, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
    found
}

/// Called with the main program first; more are not wanted.
///
/// # Safety
/// As `dl_iterate_phdr` calls it, with an `Option<Image>` as `data`.
unsafe extern "C" fn first(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    data: *mut c_void,
) -> c_int {
    // SAFETY: valid during the call, by the C library's contract.
    let (info, out) = unsafe { (&*info, &mut *data.cast::<Option<Image>>()) };
    if info.dlpi_phdr.is_null() {
        return 1;
    }
    // SAFETY: as many headers as it says, in memory that stays.
    let raw = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let headers: Vec<ProgramHeader> = raw
        .iter()
        .map(|h| ProgramHeader {
            kind: h.p_type,
            flags: h.p_flags,
            offset: h.p_offset,
            address: h.p_vaddr,
            file_len: h.p_filesz,
            len: h.p_memsz,
        })
        .collect();
    let base = info.dlpi_addr as usize;
    let loaded = |h: &&ProgramHeader| {
        headers.iter().any(|l| {
            l.kind == PT_LOAD
                && l.address <= h.address
                && h.address + h.file_len <= l.address + l.file_len
        })
    };
    let notes = headers
        .iter()
        .filter(|h| h.kind == PT_NOTE)
        .filter(loaded)
        .map(|h| {
            // SAFETY: in a loaded segment of the main program, which is never unloaded, and which
            // nobody writes.
            unsafe {
                std::slice::from_raw_parts(
                    (base + h.address as usize) as *const u8,
                    h.file_len as usize,
                )
            }
        })
        .collect();
    *out = Some(Image {
        base,
        headers,
        notes,
    });
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::atomic::AtomicU64;

    static DATA: AtomicU64 = AtomicU64::new(7);
    static BSS: [AtomicU64; 100] = [const { AtomicU64::new(0) }; 100];
    static CONSTANT: [u64; 100] = [3; 100];

    /// The launcher reads the file, the PE its memory: they must agree on every byte.
    #[test]
    fn the_image_is_that_of_the_file() {
        use shmem_node::elf::program_headers;
        let image = main_program().unwrap();
        let file = std::fs::read(Path::new("/proc/self/exe")).unwrap();
        let headers = program_headers(&file);
        assert_eq!(headers, image.headers);
        let notes = headers
            .iter()
            .filter(|h| h.kind == PT_NOTE)
            .map(|h| &file[h.offset as usize..(h.offset + h.file_len) as usize]);
        let page = shmem_node::sys::page_size();
        let data = StaticData::of(&headers, notes, page).unwrap();
        assert_eq!(Some(&data), image.statics(page).as_ref());
        let inside = |at: usize| {
            data.stretches
                .iter()
                .any(|s| (image.base + s.start as usize..image.base + s.end as usize).contains(&at))
        };
        let here = 0u8;
        assert!(inside(&raw const DATA as usize));
        assert!(inside(&raw const BSS[99] as usize));
        assert!(!inside(&raw const CONSTANT as usize));
        assert!(!inside(&raw const here as usize));
        assert!(!inside(Box::new(1u8).as_ref() as *const u8 as usize));
        assert!(!inside(main_program as *const () as usize));
    }
}
