//! Makes a relocatable object file that holds one ELF note, without an assembler.
//!
//! A program that is linked with `libshmem.so` has to say in its own file that `shmrun` may start it
//! from a template; the library cannot say it for it. `oshcc` therefore links this object.
//!
//! The note promises a constructor that is in the library, so the object also asks for a symbol of
//! the library: linkers would otherwise leave it out of programs that call none of its functions.

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

/// This machine's number in ELF headers.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else if cfg!(target_arch = "riscv64") {
    243
} else {
    panic!("add the ELF machine number of this architecture")
};

/// Flags of the ELF header: RISC-V objects say which floating-point registers carry arguments.
const FLAGS: u32 = if cfg!(target_arch = "riscv64") { 5 } else { 0 };

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

/// An object file for this machine with `note`, a whole ELF note, in a section named `section`, that
/// needs the global symbol `needed`.
///
/// # Panics
/// If the length of the note is no multiple of 4: every ELF note's is.
pub fn note_object(section: &str, note: &[u8], needed: &str) -> Vec<u8> {
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
    out.extend(MACHINE.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    out.extend(0_u64.to_le_bytes()); // entry point
    out.extend(0_u64.to_le_bytes()); // program headers
    out.extend((table_at as u64).to_le_bytes());
    out.extend(FLAGS.to_le_bytes());
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
        let object = note_object(".note.x", &note, "f");
        let table = u64::from_le_bytes(object[40..48].try_into().unwrap()) as usize;
        assert_eq!(object.len(), table + SECTIONS as usize * HEADER);
        // The second entry is the note's: its offset and length lead to the note.
        let entry = &object[table + HEADER..];
        let at = u64::from_le_bytes(entry[24..32].try_into().unwrap()) as usize;
        let len = u64::from_le_bytes(entry[32..40].try_into().unwrap()) as usize;
        assert_eq!(object[at..at + len], note);
    }
}
