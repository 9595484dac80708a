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

use object::elf::{self, FileHeader64};
use object::read::elf::FileHeader;
use object::write::{Object, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, FileFlags, LittleEndian, SectionFlags, SectionKind,
    SymbolFlags, SymbolKind, SymbolScope,
};

use crate::error::Error;

/// What programs run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// As Rust and the names of packages have it.
    pub arch: &'static str,
    architecture: Architecture,
    /// Its number in ELF headers.
    number: elf::Machine,
    /// Flags of ELF headers: RISC-V objects say which floating-point registers carry arguments.
    flags: elf::FileFlags,
}

impl Machine {
    pub(crate) const KNOWN: [Self; 3] = [
        Self {
            arch: "x86_64",
            architecture: Architecture::X86_64,
            number: elf::EM_X86_64,
            flags: elf::FileFlags(0),
        },
        Self {
            arch: "aarch64",
            architecture: Architecture::Aarch64,
            number: elf::EM_AARCH64,
            flags: elf::FileFlags(0),
        },
        Self {
            arch: "riscv64",
            architecture: Architecture::Riscv64,
            number: elf::EM_RISCV,
            flags: elf::FileFlags(elf::EF_RISCV_RVC.0 | elf::EF_RISCV_FLOAT_ABI_DOUBLE.0),
        },
    ];

    /// That of a program or library.
    ///
    /// # Errors
    /// If the file cannot be read, is no ELF file of 64 bits, or is for a machine that is not known here.
    pub fn of(file: &Path) -> Result<Self, Error> {
        let mut header = Vec::new();
        fs::File::open(file)
            .and_then(|opened| opened.take(64).read_to_end(&mut header))
            .map_err(|e| Error::io("read", file, e))?;
        Self::of_header(&header).ok_or_else(|| Error::Machine(file.to_owned()))
    }

    fn of_header(header: &[u8]) -> Option<Self> {
        let header = FileHeader64::<LittleEndian>::parse(header).ok()?;
        let number = header.e_machine(header.endian().ok()?);
        Self::KNOWN.into_iter().find(|m| m.number == number)
    }
}

/// An object file for `machine` with `note`, a whole ELF note, in a section named `section`, that
/// needs the global symbol `needed`.
///
/// # Panics
/// If the length of the note is no multiple of 4: every ELF note's is.
pub fn note_object(machine: Machine, section: &str, note: &[u8], needed: &str) -> Vec<u8> {
    assert!(note.len().is_multiple_of(4), "not an ELF note");
    let mut object = Object::new(BinaryFormat::Elf, machine.architecture, Endianness::Little);
    object.flags = FileFlags::Elf {
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        e_flags: machine.flags,
    };
    let notes = object.add_section(Vec::new(), section.into(), SectionKind::Note);
    object.section_mut(notes).flags = SectionFlags::Elf {
        sh_type: elf::SHT_NOTE,
        sh_flags: elf::SHF_ALLOC,
    };
    object.set_section_data(notes, note, 4);
    // Without the section that says so, linkers take it that the object needs an executable stack.
    let stack = b".note.GNU-stack".to_vec();
    object.add_section(Vec::new(), stack, SectionKind::Other);
    object.add_symbol(Symbol {
        name: needed.into(),
        value: 0,
        size: 0,
        kind: SymbolKind::Unknown,
        scope: SymbolScope::Unknown,
        weak: false,
        section: SymbolSection::Undefined,
        flags: SymbolFlags::None,
    });
    object.write().expect("an object of one note")
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::read::elf::ElfFile64;
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

    #[test]
    fn the_object_has_the_note_and_asks_for_the_symbol() {
        let note = [7; 24];
        for machine in Machine::KNOWN {
            let bytes = note_object(machine, ".note.x", &note, "f");
            assert_eq!(Machine::of_header(&bytes), Some(machine));
            let object = ElfFile64::<LittleEndian>::parse(&*bytes).unwrap();
            let section = object.section_by_name(".note.x").unwrap();
            assert_eq!(section.data().unwrap(), note);
            let flags = section.flags();
            assert!(
                matches!(
                    flags,
                    SectionFlags::Elf {
                        sh_type: elf::SHT_NOTE,
                        sh_flags: elf::SHF_ALLOC
                    }
                ),
                "{flags:?}"
            );
            let stack = object.section_by_name(".note.GNU-stack").unwrap();
            assert!(matches!(
                stack.flags(),
                SectionFlags::Elf {
                    sh_type: elf::SHT_PROGBITS,
                    sh_flags: elf::SectionFlags(0)
                }
            ));
            let symbols: Vec<_> = object.symbols().collect();
            assert_eq!(symbols.len(), 1);
            assert_eq!(symbols[0].name(), Ok("f"));
            assert!(symbols[0].is_undefined() && symbols[0].is_global() && !symbols[0].is_weak());
        }
    }

    #[test]
    fn a_program_says_what_it_runs_on() {
        let own = Machine::of(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(own.arch, std::env::consts::ARCH);
        let header = |bytes: &[u8]| {
            let mut header = [0; 64];
            header[..bytes.len()].copy_from_slice(bytes);
            Machine::of_header(&header)
        };
        let aarch64 = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\xb7\0\x01";
        assert_eq!(header(aarch64), Some(Machine::KNOWN[1]));
        assert_eq!(header(b"#!/bin/sh\n"), None);
        // Of 32 bits; of big-endian S/390.
        assert_eq!(
            header(b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\xb7\0\x01"),
            None
        );
        assert_eq!(
            header(b"\x7fELF\x02\x02\x01\0\0\0\0\0\0\0\0\0\0\x03\0\x16\0\0\0\x01"),
            None
        );
    }
}
