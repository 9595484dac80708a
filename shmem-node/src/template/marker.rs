//! What the launcher learns from a program's file: whether the program can be a template, and how much
//! room its static data needs.
//!
//! The program must not be run to find out (without the constructor it would start as a lonely
//! PE), so it has an ELF note named `SHMEM` whose content is the contract version and what it wants.
//! Programs that are linked with the Rust library have the library's. Those that use it as a shared
//! library need one of their own, since the launcher looks at the program alone: what links them
//! adds an object with [`Note::to_bytes`].

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::contract::NODE_CONTRACT;
use crate::elf::{self, PT_NOTE, StaticData};
use crate::layout::AGREED_ALIGN;
use crate::settings::StaticsSize;
use crate::sys::page_size;

/// Type of our note.
const NOTE_TYPE: u32 = 1;
const NAME: [u8; 8] = *b"SHMEM\0\0\0";
/// Bytes of the name with its final NUL.
const NAME_LEN: usize = 6;
/// The program's static data is to be symmetric.
const WANTS_STATICS: u32 = 1;

/// The note as it lies in the program; place a static of it in section `.note.shmem`.
#[repr(C, align(4))]
#[derive(Debug, Clone, Copy)]
pub struct Note {
    name_len: u32,
    content_len: u32,
    kind: u32,
    name: [u8; 8],
    version: [u8; 4],
    flags: u32,
}

impl Note {
    /// The note of this version, for a program that uses symmetric memory of the heap alone.
    pub const CURRENT: Self = Self::new(0);

    /// The same for one whose static data is to be symmetric, as C's is. In a program with several
    /// notes one such is enough.
    pub const WITH_STATICS: Self = Self::new(WANTS_STATICS);

    const fn new(flags: u32) -> Self {
        let version = NODE_CONTRACT.as_bytes();
        assert!(version.len() <= 4);
        let mut content = [0; 4];
        let mut i = 0;
        while i < version.len() {
            content[i] = version[i];
            i += 1;
        }
        Self {
            name_len: NAME_LEN as u32,
            content_len: 8,
            kind: NOTE_TYPE,
            name: NAME,
            version: content,
            flags,
        }
    }

    /// The note's bytes, for those who write object files.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.name_len, self.content_len, self.kind]
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .chain(self.name)
            .chain(self.version)
            .chain(self.flags.to_ne_bytes())
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

/// What was learned from a program file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its note.
    pub marker: Marker,
    /// Its static data, if that may have to be symmetric: unless a note says otherwise.
    pub statics: Option<StaticData>,
}

/// The room for symmetric static data in every PE's segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StaticsRoom {
    /// Bytes, whole pages of any size.
    pub bytes: u64,
    /// The layout that it was made for, or 0 if any may take it.
    pub layout: u64,
}

impl StaticsRoom {
    /// For a program of which nobody knows, because another one starts it: enough for most. It takes
    /// addresses, and memory as far as it is used.
    pub const UNKNOWN: Self = Self {
        bytes: 1 << 30,
        layout: 0,
    };

    /// The room that a setting and a program ask for.
    pub fn of(setting: StaticsSize, program: &Program) -> Self {
        match setting {
            StaticsSize::Bytes(bytes) => Self {
                bytes: bytes.next_multiple_of(AGREED_ALIGN as u64),
                layout: 0,
            },
            StaticsSize::Auto => program
                .statics
                .as_ref()
                .map_or(Self::default(), |data| Self {
                    bytes: data.room,
                    layout: data.layout,
                }),
        }
    }
}

/// Reads the program at `path`.
///
/// # Errors
/// When the file cannot be read.
pub fn read(path: &Path) -> io::Result<Program> {
    let mut file = File::open(path)?;
    // Program headers lie at the start of every program that linkers make.
    let mut head = Vec::new();
    Read::by_ref(&mut file)
        .take(64 << 10)
        .read_to_end(&mut head)?;
    let headers = elf::program_headers(&head);
    let mut segments = Vec::new();
    for h in headers.iter().filter(|h| h.kind == PT_NOTE) {
        let mut notes = Vec::new();
        file.seek(SeekFrom::Start(h.offset))?;
        Read::by_ref(&mut file)
            .take(h.file_len.min(1 << 20))
            .read_to_end(&mut notes)?;
        segments.push(notes);
    }
    let (marker, wants) = judge(segments.iter().map(Vec::as_slice));
    let statics = wants
        .then(|| StaticData::of(&headers, segments.iter().map(Vec::as_slice), page_size()))
        .flatten();
    Ok(Program { marker, statics })
}

/// What the notes of a program say: its marker, and whether its static data may have to be symmetric.
fn judge<'a>(segments: impl IntoIterator<Item = &'a [u8]>) -> (Marker, bool) {
    let (mut marker, mut wants) = (Marker::Absent, false);
    for note in segments.into_iter().flat_map(elf::notes) {
        if note.kind != NOTE_TYPE || note.name != &NAME[..NAME_LEN] {
            continue;
        }
        let (version, flags) = note.content.split_at(note.content.len().min(4));
        let end = version
            .iter()
            .position(|&b| b == 0)
            .unwrap_or(version.len());
        let version = String::from_utf8_lossy(&version[..end]);
        if version != NODE_CONTRACT {
            marker = Marker::Other(version.into_owned());
        } else if marker == Marker::Absent {
            marker = Marker::Current;
        }
        if let Ok(flags) = <[u8; 4]>::try_from(flags) {
            wants |= u32::from_le_bytes(flags) & WANTS_STATICS != 0;
        }
    }
    let wants = wants || marker == Marker::Absent;
    (marker, wants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_without_the_library_have_no_marker() {
        for path in ["/bin/sh", "/etc/passwd", "/proc/self/exe"] {
            let program = read(Path::new(path)).unwrap();
            assert_eq!(program.marker, Marker::Absent, "{path}");
            // They may be the program that loads it.
            assert_eq!(program.statics.is_some(), path != "/etc/passwd", "{path}");
        }
        assert!(read(Path::new("/nonexistent")).is_err());
    }

    fn with_content(content: &[u8]) -> Vec<u8> {
        let mut note = Note::CURRENT.to_bytes();
        note[4..8].copy_from_slice(&(content.len() as u32).to_le_bytes());
        note.truncate(20);
        note.extend(content);
        note
    }

    #[test]
    fn notes_add_up() {
        let gnu: &[u8] = b"\x04\0\0\0\x05\0\0\0\x03\0\0\0GNU\0abcde\0\0\0";
        let (plain, statics) = (Note::CURRENT.to_bytes(), Note::WITH_STATICS.to_bytes());
        let judge = |parts: &[&[u8]]| {
            let all = parts.concat();
            super::judge([&all[..]])
        };
        assert_eq!(judge(&[gnu]), (Marker::Absent, true));
        assert_eq!(judge(&[gnu, &plain]), (Marker::Current, false));
        for order in [[&plain[..], &statics], [&statics, &plain]] {
            assert_eq!(judge(&order), (Marker::Current, true));
        }
        // Of a version that had no flags.
        let old = with_content(b"1\0\0\0");
        assert_eq!(judge(&[&old]), (Marker::Other("1".into()), false));
        assert_eq!(judge(&[&with_content(b"")]).0, Marker::Other(String::new()));
    }

    #[test]
    fn a_setting_comes_before_what_the_program_needs() {
        let program = read(Path::new("/bin/sh")).unwrap();
        let own = program.statics.as_ref().unwrap();
        let auto = StaticsRoom::of(StaticsSize::Auto, &program);
        assert_eq!((auto.bytes, auto.layout), (own.room, own.layout));
        let set = StaticsRoom::of(StaticsSize::Bytes(5000), &program);
        assert_eq!((set.bytes, set.layout), (AGREED_ALIGN as u64, 0));
        let none = Program {
            statics: None,
            ..program
        };
        assert_eq!(
            StaticsRoom::of(StaticsSize::Auto, &none),
            StaticsRoom::default()
        );
    }
}
