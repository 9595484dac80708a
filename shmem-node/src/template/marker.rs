//! How the launcher knows that a program can be a template: an ELF note in it.
//!
//! The program must not be run to find out (without the constructor it would start as a lonely
//! PE), so the library leaves a note named `SHMEM` whose content is the contract version.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::contract::NODE_CONTRACT;

/// Type of our note.
const NOTE_TYPE: u32 = 1;
const NAME: [u8; 8] = *b"SHMEM\0\0\0";

/// The note as it lies in the program; place a static of it in section `.note.shmem`.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct Note {
    name_len: u32,
    content_len: u32,
    kind: u32,
    name: [u8; 8],
    content: [u8; 4],
}

impl Note {
    /// The note of this version.
    pub const CURRENT: Self = {
        let version = NODE_CONTRACT.as_bytes();
        assert!(version.len() <= 4);
        let mut content = [0; 4];
        let mut i = 0;
        while i < version.len() {
            content[i] = version[i];
            i += 1;
        }
        Self {
            name_len: 6,
            content_len: 4,
            kind: NOTE_TYPE,
            name: NAME,
            content,
        }
    };

    /// The note's bytes, for those who write object files.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.name_len, self.content_len, self.kind]
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .chain(self.name)
            .chain(self.content)
            .collect()
    }
}

/// What a program file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// No note: not linked with `shmem`, or not an ELF program at all.
    Absent,
    /// Can be a template for this launcher.
    Current,
    /// Linked with a `shmem` of another contract version.
    Other(String),
}

/// Looks for the note in the program at `path`.
///
/// # Errors
/// When the file cannot be read.
pub fn find(path: &Path) -> io::Result<Marker> {
    let mut file = File::open(path)?;
    // Program headers and notes lie at the start of every program that linkers make.
    let mut head = Vec::new();
    Read::by_ref(&mut file)
        .take(64 << 10)
        .read_to_end(&mut head)?;
    for (offset, len) in note_segments(&head) {
        let mut notes = Vec::new();
        file.seek(SeekFrom::Start(offset))?;
        Read::by_ref(&mut file)
            .take(len.min(1 << 20))
            .read_to_end(&mut notes)?;
        if let Some(content) = our_note(&notes) {
            let end = content
                .iter()
                .position(|&b| b == 0)
                .unwrap_or(content.len());
            let version = String::from_utf8_lossy(&content[..end]).into_owned();
            let current = version == NODE_CONTRACT;
            return Ok(if current {
                Marker::Current
            } else {
                Marker::Other(version)
            });
        }
    }
    Ok(Marker::Absent)
}

fn uint<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    uint(bytes, at).map(|b| u32::from_le_bytes(b) as usize)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    uint(bytes, at).map(u64::from_le_bytes)
}

/// File offset and length of each PT_NOTE segment of a 64-bit little-endian ELF file.
fn note_segments(elf: &[u8]) -> Vec<(u64, u64)> {
    const PT_NOTE: usize = 4;
    let headers = || {
        if !elf.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let table = usize::try_from(u64_at(elf, 32)?).ok()?;
        let entry_len = u16::from_le_bytes(uint(elf, 54)?) as usize;
        let count = u16::from_le_bytes(uint(elf, 56)?) as usize;
        (entry_len >= 56).then_some((table, entry_len, count))
    };
    let Some((table, entry_len, count)) = headers() else {
        return Vec::new();
    };
    (0..count)
        .map_while(|i| {
            let at = table.checked_add(i * entry_len)?;
            Some((
                u32_at(elf, at)?,
                u64_at(elf, at + 8)?,
                u64_at(elf, at + 32)?,
            ))
        })
        .filter(|&(kind, _, _)| kind == PT_NOTE)
        .map(|(_, offset, len)| (offset, len))
        .collect()
}

/// Content of our note among `notes`.
fn our_note(notes: &[u8]) -> Option<&[u8]> {
    let mut at = 0usize;
    loop {
        let name_len = u32_at(notes, at)?;
        let content_len = u32_at(notes, at.checked_add(4)?)?;
        let kind = u32_at(notes, at.checked_add(8)?)?;
        let name_at = at.checked_add(12)?;
        let content_at = name_at.checked_add(name_len.checked_next_multiple_of(4)?)?;
        let end = content_at.checked_add(content_len)?;
        if kind == NOTE_TYPE as usize && notes.get(name_at..name_at + 6) == Some(&NAME[..6]) {
            return notes.get(content_at..end);
        }
        at = content_at.checked_add(content_len.checked_next_multiple_of(4)?)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn programs_without_the_library_have_no_marker() {
        for path in ["/bin/sh", "/etc/passwd", "/proc/self/exe"] {
            assert_eq!(find(Path::new(path)).unwrap(), Marker::Absent, "{path}");
        }
        assert!(find(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn our_note_is_found_behind_another() {
        let mut notes = Vec::new();
        for (name, kind, content) in [
            (&b"GNU\0"[..], 3u32, &b"abcde"[..]),
            (b"SHMEM\0", 1, b"1\0\0\0"),
        ] {
            notes.extend((name.len() as u32).to_le_bytes());
            notes.extend((content.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            for part in [name, content] {
                notes.extend(part);
                notes.resize(notes.len().next_multiple_of(4), 0);
            }
        }
        assert_eq!(our_note(&notes), Some(&b"1\0\0\0"[..]));
    }

    proptest! {
        #[test]
        fn garbage_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut elf = b"\x7fELF\x02\x01".to_vec();
            elf.extend(&bytes);
            let _ = (note_segments(&elf), our_note(&bytes));
        }
    }
}
