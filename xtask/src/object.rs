//! Makes a relocatable object file that holds one ELF note, without an assembler.
//!
//! A program that is linked with `libshmem.so` has to say in its own file that `shmrun` may start it
//! from a template; the library cannot say it for it. `oshcc` therefore links this object.
//!
//! The note promises a constructor that is in the library, so the object also asks for a symbol of
//! the library: linkers would otherwise leave it out of programs that call none of its functions.

use std::fs;
use std::io::Read;
use std::path::Path;

use crate::error::Error;

/// Section numbers of the file.
const NOTE: u16 = 1;
const NAMES: u16 = 4;
const SECTIONS: u16 = 6;
/// Length of the ELF header, and of an entry of the section table.
const HEADER: usize = 64;
/// Length of a symbol, and what makes it global.
const SYMBOL: usize = 24;
const GLOBAL: u8 = 1 << 4;

/// Numbers of the section of symbols, and of that of their names.
const SYMBOL_NAMES: u32 = 5;

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_NOTE: u32 = 7;
const SHF_ALLOC: u64 = 2;

/// What programs run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// As Rust and the names of packages have it.
    pub arch: &'static str,
    /// Its number in ELF headers.
    number: u16,
    /// Flags of ELF headers: RISC-V objects say which floating-point registers carry arguments.
    flags: u32,
}

impl Machine {
    pub(crate) const KNOWN: [Self; 3] = [
        Self::new("x86_64", 62, 0),
        Self::new("aarch64", 183, 0),
        Self::new("riscv64", 243, 5),
    ];

    const fn new(arch: &'static str, number: u16, flags: u32) -> Self {
        Self {
            arch,
            number,
            flags,
        }
    }

    /// That of a program or library.
    ///
    /// # Errors
    /// If the file cannot be read, is no ELF file of 64 bits, or is for a machine that is not known here.
    pub fn of(file: &Path) -> Result<Self, Error> {
        let mut header = [0; 20];
        fs::File::open(file)
            .and_then(|mut file| file.read_exact(&mut header))
            .map_err(|e| Error::io("read", file, e))?;
        Self::of_header(&header).ok_or_else(|| Error::Machine(file.to_owned()))
    }

    fn of_header(header: &[u8; 20]) -> Option<Self> {
        let number = u16::from_le_bytes([header[18], header[19]]);
        let machine = Self::KNOWN.into_iter().find(|m| m.number == number);
        // 64 bits, little-endian.
        machine.filter(|_| header.starts_with(b"\x7fELF\x02\x01"))
    }
}

/// One entry of the section table.
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    offset: usize,
    len: usize,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
}

impl Section {
    const EMPTY: Self = Self {
        name: 0,
        kind: 0,
        flags: 0,
        offset: 0,
        len: 0,
        link: 0,
        info: 0,
        align: 0,
        entry: 0,
    };

    fn render(&self, out: &mut Vec<u8>) {
        out.extend(self.name.to_le_bytes());
        out.extend(self.kind.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(0_u64.to_le_bytes()); // address: the linker's to give
        out.extend((self.offset as u64).to_le_bytes());
        out.extend((self.len as u64).to_le_bytes());
        out.extend(self.link.to_le_bytes());
        out.extend(self.info.to_le_bytes());
        out.extend(self.align.to_le_bytes());
        out.extend(self.entry.to_le_bytes());
    }
}

/// An object file for `machine` with `note`, a whole ELF note, in a section named `section`, that
/// needs the global symbol `needed`.
///
/// # Panics
/// If the length of the note is no multiple of 4: every ELF note's is.
pub fn note_object(machine: Machine, section: &str, note: &[u8], needed: &str) -> Vec<u8> {
    assert!(note.len().is_multiple_of(4), "not an ELF note");
    let mut names = vec![0];
    let mut name = |text: &str| {
        let at = names.len() as u32;
        names.extend(text.as_bytes());
        names.push(0);
        at
    };
    // Without the section that says so, linkers take it that the object needs an executable stack.
    let [
        note_name,
        stack_name,
        symbols_name,
        names_name,
        strings_name,
    ] = [
        section,
        ".note.GNU-stack",
        ".symtab",
        ".shstrtab",
        ".strtab",
    ]
    .map(&mut name);
    let strings = format!("\0{needed}\0");

    let note_at = HEADER;
    let symbols_at = (note_at + note.len()).next_multiple_of(8);
    let symbols_len = 2 * SYMBOL; // the null symbol that every table begins with, and the needed one
    let names_at = symbols_at + symbols_len;
    let strings_at = names_at + names.len();
    let table_at = (strings_at + strings.len()).next_multiple_of(8);
    let sections: [Section; SECTIONS as usize] = [
        Section::EMPTY,
        Section {
            name: note_name,
            kind: SHT_NOTE,
            flags: SHF_ALLOC,
            offset: note_at,
            len: note.len(),
            align: 4,
            ..Section::EMPTY
        },
        Section {
            name: stack_name,
            kind: SHT_PROGBITS,
            offset: symbols_at,
            align: 1,
            ..Section::EMPTY
        },
        Section {
            name: symbols_name,
            kind: SHT_SYMTAB,
            offset: symbols_at,
            len: symbols_len,
            link: SYMBOL_NAMES,
            info: 1, // the first global symbol
            align: 8,
            entry: SYMBOL as u64,
            ..Section::EMPTY
        },
        Section {
            name: names_name,
            kind: SHT_STRTAB,
            offset: names_at,
            len: names.len(),
            align: 1,
            ..Section::EMPTY
        },
        Section {
            name: strings_name,
            kind: SHT_STRTAB,
            offset: strings_at,
            len: strings.len(),
            align: 1,
            ..Section::EMPTY
        },
    ];
    debug_assert!(sections[NOTE as usize].kind == SHT_NOTE);

    let mut out = Vec::new();
    // 64 bits, little-endian, version 1, System V.
    out.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    out.extend(1_u16.to_le_bytes()); // relocatable
    out.extend(machine.number.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    out.extend(0_u64.to_le_bytes()); // entry point
    out.extend(0_u64.to_le_bytes()); // program headers
    out.extend((table_at as u64).to_le_bytes());
    out.extend(machine.flags.to_le_bytes());
    out.extend((HEADER as u16).to_le_bytes());
    out.extend([0; 4]); // size and number of program headers
    out.extend((HEADER as u16).to_le_bytes());
    out.extend(SECTIONS.to_le_bytes());
    out.extend(NAMES.to_le_bytes());
    out.extend(note);
    out.resize(symbols_at + SYMBOL, 0);
    out.extend(1_u32.to_le_bytes()); // its name
    out.extend([GLOBAL, 0, 0, 0]); // defined in no section of this file
    out.resize(symbols_at + symbols_len, 0);
    out.extend(&names);
    out.extend(strings.as_bytes());
    out.resize(table_at, 0);
    for section in &sections {
        section.render(&mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_points_at_the_section_table() {
        let note = [7; 24];
        let machine = Machine::KNOWN[1];
        let object = note_object(machine, ".note.x", &note, "f");
        assert_eq!(
            Machine::of_header(object[..20].try_into().unwrap()),
            Some(machine)
        );
        let table = u64::from_le_bytes(object[40..48].try_into().unwrap()) as usize;
        assert_eq!(object.len(), table + SECTIONS as usize * HEADER);
        // The second entry is the note's: its offset and length lead to the note.
        let entry = &object[table + HEADER..];
        let at = u64::from_le_bytes(entry[24..32].try_into().unwrap()) as usize;
        let len = u64::from_le_bytes(entry[32..40].try_into().unwrap()) as usize;
        assert_eq!(object[at..at + len], note);
    }

    #[test]
    fn a_program_says_what_it_runs_on() {
        let own = Machine::of(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(own.arch, std::env::consts::ARCH);
        let header = |bytes: &[u8]| {
            let mut header = [0; 20];
            header[..bytes.len()].copy_from_slice(bytes);
            Machine::of_header(&header)
        };
        assert_eq!(header(b"#!/bin/sh\n"), None);
        // Of 32 bits; of big-endian S/390.
        assert_eq!(
            header(b"\x7fELF\x01\x01\0\0\0\0\0\0\0\0\0\0\x03\0\xb7\0"),
            None
        );
        assert_eq!(
            header(b"\x7fELF\x02\x02\0\0\0\0\0\0\0\0\0\0\0\x03\0\x16"),
            None
        );
    }
}
