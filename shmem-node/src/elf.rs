//! What a program file, or the image of a running program, says about itself in its ELF headers:
//! notes, and where its writable static data lies.
//!
//! The launch agent reads the file to leave room in the node's memory, the PE reads its own image to
//! fill it. Both call the same arithmetic here.

#![forbid(unsafe_code)]

use crate::layout::AGREED_ALIGN;

/// A segment that is loaded.
pub const PT_LOAD: u32 = 1;
/// The name of the dynamic linker.
pub const PT_INTERP: u32 = 3;
/// A segment of notes.
pub const PT_NOTE: u32 = 4;
/// Data that is only read once it has been relocated.
pub const PT_GNU_RELRO: u32 = 0x6474_e552;
/// Permission to write a segment.
pub const PF_W: u32 = 2;

/// One program header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramHeader {
    /// `PT_*`.
    pub kind: u32,
    /// `PF_*`.
    pub flags: u32,
    /// Where it lies in the file.
    pub offset: u64,
    /// Where it lies in memory, from where the program was loaded.
    pub address: u64,
    /// Bytes in the file.
    pub file_len: u64,
    /// Bytes in memory.
    pub len: u64,
}

fn uint<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    uint(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    uint(bytes, at).map(u64::from_le_bytes)
}

/// The program headers of a 64-bit little-endian ELF file that begins with `head`; none if it is
/// something else.
pub fn program_headers(head: &[u8]) -> Vec<ProgramHeader> {
    let table = || {
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let table = usize::try_from(u64_at(head, 32)?).ok()?;
        let entry_len = u16::from_le_bytes(uint(head, 54)?) as usize;
        let count = u16::from_le_bytes(uint(head, 56)?) as usize;
        (entry_len >= 56).then_some((table, entry_len, count))
    };
    let Some((table, entry_len, count)) = table() else {
        return Vec::new();
    };
    (0..count)
        .map_while(|i| {
            let at = table.checked_add(i * entry_len)?;
            Some(ProgramHeader {
                kind: u32_at(head, at)?,
                flags: u32_at(head, at + 4)?,
                offset: u64_at(head, at + 8)?,
                address: u64_at(head, at + 16)?,
                file_len: u64_at(head, at + 32)?,
                len: u64_at(head, at + 40)?,
            })
        })
        .collect()
}

/// The machine of an ELF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine(u16);

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            3 => f.write_str("x86, 32 bits"),
            8 => f.write_str("MIPS"),
            21 => f.write_str("PowerPC, 64 bits"),
            22 => f.write_str("S/390"),
            40 => f.write_str("ARM, 32 bits"),
            62 => f.write_str("x86-64"),
            183 => f.write_str("AArch64"),
            243 => f.write_str("RISC-V"),
            258 => f.write_str("LoongArch"),
            n => write!(f, "number {n} of the ELF standard"),
        }
    }
}

/// For which machine the ELF file is that begins with `head`.
pub fn machine(head: &[u8]) -> Option<Machine> {
    let number = uint(head, 18)?;
    let number = match head.get(5)? {
        2 => u16::from_be_bytes(number),
        _ => u16::from_le_bytes(number),
    };
    head.starts_with(b"\x7fELF").then_some(Machine(number))
}

/// A note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoteRef<'a> {
    /// Its owner's type number.
    pub kind: u32,
    /// Its owner, with the final NUL.
    pub name: &'a [u8],
    /// Its content.
    pub content: &'a [u8],
}

/// The notes in a segment of notes, as far as they are well-formed.
pub fn notes(segment: &[u8]) -> impl Iterator<Item = NoteRef<'_>> {
    let mut at = 0usize;
    std::iter::from_fn(move || {
        let len = |at| u32_at(segment, at).map(|n| n as usize);
        let (name_len, content_len) = (len(at)?, len(at.checked_add(4)?)?);
        let kind = u32_at(segment, at.checked_add(8)?)?;
        let name_at = at.checked_add(12)?;
        let content_at = name_at.checked_add(name_len.checked_next_multiple_of(4)?)?;
        let note = NoteRef {
            kind,
            name: segment.get(name_at..name_at.checked_add(name_len)?)?,
            content: segment.get(content_at..content_at.checked_add(content_len)?)?,
        };
        at = content_at.checked_add(content_len.checked_next_multiple_of(4)?)?;
        Some(note)
    })
}

/// A stretch of writable static data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// First byte in memory, on a page border.
    pub start: u64,
    /// End of what comes from the file: from here on it is zero at first.
    pub file_end: u64,
    /// End of the data; its last page ends later.
    pub end: u64,
}

/// Stands for static data that is not symmetric, where 0 stands for no word of it. No layout has this number.
pub(crate) const PRIVATE_LAYOUT: u64 = 1;

/// Where a program's writable static data lies, from where it was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticData {
    /// In order of address, apart from each other by whole pages.
    pub stretches: Vec<Stretch>,
    /// What addresses are counted from in symmetric memory: no stretch begins before it, whatever a page is.
    pub origin: u64,
    /// Bytes from there to the end of the last page, of the largest size.
    pub room: u64,
    /// Tells layouts apart: equal for images of one file.
    pub layout: u64,
}

/// Sizes of pages of kernels.
#[cfg(test)]
pub(crate) const PAGE_SIZES: [usize; 3] = [4 << 10, 16 << 10, AGREED_ALIGN];

const fn down(n: u64, page: usize) -> u64 {
    n & !(page as u64 - 1)
}

fn up(n: u64, page: usize) -> Option<u64> {
    n.checked_next_multiple_of(page as u64)
}

impl StaticData {
    /// The writable data of a program with these headers: all that is loaded for writing, without the
    /// pages, of `page` bytes, that are only read after relocation. `notes` are the bytes of its segments of notes,
    /// among them the build's id. `None` if there is none, or the headers are nonsense.
    ///
    /// Stretches depend on the size of pages, as what can be mapped does; what nodes agree on does not.
    pub fn of<'a>(
        headers: &[ProgramHeader],
        notes: impl IntoIterator<Item = &'a [u8]>,
        page: usize,
    ) -> Option<Self> {
        let relro = headers.iter().find(|h| h.kind == PT_GNU_RELRO);
        // As the dynamic linker protects it.
        let (read_from, read_to) = match relro {
            Some(h) => (
                down(h.address, page),
                down(h.address.checked_add(h.len)?, page),
            ),
            None => (0, 0),
        };
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut add = |start: u64, file_end: u64, end: u64| {
            if start >= end {
                return;
            }
            let (start, file_end) = (down(start, page), file_end.clamp(start, end));
            match stretches.last_mut() {
                // They share a page, or touch.
                Some(last) if up(last.end, page).is_none_or(|e| e >= start) => {
                    last.file_end = last.file_end.max(file_end);
                    last.end = last.end.max(end);
                }
                _ => stretches.push(Stretch {
                    start,
                    file_end,
                    end,
                }),
            }
        };
        let mut loads: Vec<_> = headers
            .iter()
            .filter(|h| h.kind == PT_LOAD && h.flags & PF_W != 0 && h.len > 0)
            .collect();
        loads.sort_by_key(|h| h.address);
        let mut last = 0;
        for h in &loads {
            let end = h.address.checked_add(h.len).filter(|&e| e < 1 << 47)?;
            last = last.max(end);
            let file_end = h.address.checked_add(h.file_len)?.min(end);
            let hidden = read_from < read_to && read_from < end && h.address < read_to;
            if hidden {
                add(h.address, file_end, read_from.min(end));
                add(read_to.max(h.address), file_end, end);
            } else {
                add(h.address, file_end, end);
            }
        }
        if stretches.is_empty() {
            return None;
        }
        // Behind what is only read, where that comes first: none of its pages are left, or its last one.
        let first = loads.first()?.address;
        let origin = match relro.and_then(|h| Some((h.address, h.address.checked_add(h.len)?))) {
            Some((from, to)) if from <= first && first < to => to,
            _ => first,
        };
        let origin = down(origin, AGREED_ALIGN);
        let mut hash = Fnv::default();
        for h in headers
            .iter()
            .filter(|h| matches!(h.kind, PT_LOAD | PT_GNU_RELRO))
        {
            for n in [u64::from(h.flags), h.address, h.file_len, h.len] {
                hash.add(&n.to_le_bytes());
            }
        }
        for bytes in notes {
            hash.add(bytes);
        }
        Some(Self {
            stretches,
            origin,
            room: up(last, AGREED_ALIGN)?.checked_sub(origin)?,
            layout: hash.0.max(PRIVATE_LAYOUT + 1),
        })
    }
}

/// FNV-1a, for telling layouts apart.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = (self.0 ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(flags: u32, address: u64, file_len: u64, len: u64) -> ProgramHeader {
        ProgramHeader {
            kind: PT_LOAD,
            flags,
            offset: 0,
            address,
            file_len,
            len,
        }
    }

    fn relro(address: u64, len: u64) -> ProgramHeader {
        ProgramHeader {
            kind: PT_GNU_RELRO,
            ..load(4, address, len, len)
        }
    }

    fn stretches_on(page: usize, headers: &[ProgramHeader]) -> Vec<(u64, u64, u64)> {
        let data = StaticData::of(headers, [], page);
        data.map_or(Vec::new(), |d| {
            d.stretches
                .iter()
                .map(|s| (s.start, s.file_end, s.end))
                .collect()
        })
    }

    fn stretches(headers: &[ProgramHeader]) -> Vec<(u64, u64, u64)> {
        stretches_on(4096, headers)
    }

    #[test]
    fn data_lies_behind_what_is_read_only_after_relocation() {
        // As GNU ld lays out a PIE: RELRO ends on a page border.
        let pie = [
            load(5, 0x1000, 0x500, 0x500),
            load(6, 0x3d80, 0x400, 0x2400),
            relro(0x3d80, 0x280),
        ];
        assert_eq!(stretches(&pie), [(0x4000, 0x4180, 0x6180)]);
        let data = StaticData::of(&pie, [], 4096).unwrap();
        assert_eq!((data.origin, data.room), (0, 0x10000));
        // Without RELRO the first page belongs to it.
        assert_eq!(stretches(&pie[..2]), [(0x3000, 0x4180, 0x6180)]);
        // As lld does: RELRO in a segment of its own, data in another.
        let lld = [
            load(6, 0x3000, 0x800, 0x1000),
            relro(0x3000, 0x1000),
            load(6, 0x5100, 0x80, 0x180),
        ];
        assert_eq!(stretches(&lld), [(0x5000, 0x5180, 0x5280)]);
        // Linked for pages of 64 KiB, as is usual on AArch64; on larger pages than it was linked for, nothing of
        // RELRO is kept from writes.
        let wide = [load(6, 0x1_fc80, 0x400, 0x2400), relro(0x1_fc80, 0x380)];
        for page in PAGE_SIZES {
            assert_eq!(stretches_on(page, &wide), [(0x2_0000, 0x2_0080, 0x2_2080)]);
        }
        assert_eq!(stretches_on(64 << 10, &pie), [(0, 0x4180, 0x6180)]);
    }

    #[test]
    fn stretches_are_whole_pages_apart() {
        let two = [load(6, 0x1000, 0x10, 0x20), load(6, 0x9000, 0x10, 0x20)];
        assert_eq!(
            stretches(&two),
            [(0x1000, 0x1010, 0x1020), (0x9000, 0x9010, 0x9020)]
        );
        assert_eq!(
            stretches_on(16 << 10, &two),
            [(0, 0x1010, 0x1020), (0x8000, 0x9010, 0x9020)]
        );
        let touching = [load(6, 0x1000, 0x10, 0x20), load(6, 0x1800, 0x10, 0x20)];
        assert_eq!(stretches(&touching), [(0x1000, 0x1810, 0x1820)]);
        assert_eq!(stretches(&[load(4, 0x1000, 1, 1)]), []);
        assert_eq!(stretches(&[load(6, u64::MAX, 1, 1)]), []);
    }

    #[test]
    fn layouts_differ_by_sizes_and_by_notes() {
        let a = [load(6, 0x1000, 0x10, 0x20)];
        let b = [load(6, 0x1000, 0x10, 0x28)];
        let layout =
            |headers: &[_], notes: &[u8]| StaticData::of(headers, [notes], 4096).unwrap().layout;
        assert_eq!(layout(&a, b"x"), layout(&a, b"x"));
        assert_ne!(layout(&a, b"x"), layout(&b, b"x"));
        assert_ne!(layout(&a, b"x"), layout(&a, b"y"));
    }

    proptest! {
        #[test]
        fn garbage_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut file = b"\x7fELF\x02\x01".to_vec();
            file.extend(&bytes);
            let headers = program_headers(&file);
            let _ = (StaticData::of(&headers, [&bytes[..]], 4096), notes(&bytes).count());
        }

        #[test]
        fn stretches_are_in_order_and_cover_the_data(
            loads in prop::collection::vec((0u64..1 << 20, 0u64..1 << 16, 0u64..1 << 16), 1..5),
            at: u16, len: u16,
        ) {
            let mut headers: Vec<_> = loads.iter().map(|&(a, f, m)| load(6, a, f.min(m), m)).collect();
            headers.push(relro(at.into(), len.into()));
            let on = PAGE_SIZES.map(|page| (page as u64, StaticData::of(&headers, [], page)));
            let agreed: Vec<_> = on.iter().flat_map(|(_, d)| d).map(|d| (d.origin, d.room, d.layout)).collect();
            prop_assert!(agreed.windows(2).all(|two| two[0] == two[1]), "{agreed:x?}");
            for (page, data) in on {
                let Some(data) = data else { continue };
                let mut end = data.origin;
                for s in &data.stretches {
                    prop_assert!(s.start.is_multiple_of(page) && s.start >= end);
                    prop_assert!(s.start <= s.file_end && s.file_end <= s.end && s.start < s.end);
                    end = s.end.next_multiple_of(page);
                }
                prop_assert!(end <= data.origin + data.room);
            }
        }
    }
}
