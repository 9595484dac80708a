//! Makes symbols of a static library weak.
//!
//! A profiling tool defines `shmem_put` itself and calls the library's `pshmem_put`. With a shared library
//! that works as it is; in a static one both definitions would clash, so the library's has to be weak, and
//! stable Rust has no way to say so. The binding is one half byte of a symbol, which is changed here.

use object::LittleEndian;
use object::elf::{FileHeader64, SHT_SYMTAB, STB_GLOBAL, STB_WEAK, Sym64};
use object::read::archive::ArchiveFile;
use object::read::elf::{FileHeader, SectionHeader, Sym};

type Elf = FileHeader64<LittleEndian>;

/// Where a symbol has its binding, in the upper half of a byte.
const BINDING: usize = 4;

/// Makes the global symbols weak that `archive` defines and `chosen` chooses. Gives their number.
///
/// # Errors
/// If the bytes are not an archive, or a member is a damaged object.
pub fn weaken(archive: &mut [u8], chosen: impl Fn(&str) -> bool) -> Result<usize, object::Error> {
    let mut places = Vec::new();
    for member in ArchiveFile::parse(&*archive)?.members() {
        let member = member?;
        let object = member.data(&*archive)?;
        if !object.starts_with(b"\x7fELF\x02\x01") {
            continue;
        }
        let (start, _) = member.file_range();
        of_object(object, &chosen, |at| places.push(start as usize + at))?;
    }
    for &at in &places {
        archive[at] = STB_WEAK.0 << 4 | archive[at] & 15;
    }
    Ok(places.len())
}

/// Where the global symbols that `object` defines and `chosen` chooses have their binding.
fn of_object(
    object: &[u8],
    chosen: &impl Fn(&str) -> bool,
    mut found: impl FnMut(usize),
) -> Result<(), object::Error> {
    let endian = LittleEndian;
    let sections = Elf::parse(object)?.sections(endian, object)?;
    let symbols = sections.symbols(endian, object, SHT_SYMTAB)?;
    if symbols.is_empty() {
        return Ok(());
    }
    let table = sections.section(symbols.section())?.sh_offset(endian) as usize;
    for (index, symbol) in symbols.enumerate() {
        let name = std::str::from_utf8(symbols.symbol_name(endian, symbol)?);
        let global = symbol.st_bind() == STB_GLOBAL && !symbol.is_undefined(endian);
        if global && name.is_ok_and(chosen) {
            found(table + index.0 * size_of::<Sym64<LittleEndian>>() + BINDING);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Machine, note_object};

    const MAGIC: &[u8] = b"!<arch>\n";

    /// An archive of an odd member that is no object, and of `object`.
    fn archive(object: &[u8]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for (name, content) in [("//", &b"odd"[..]), ("x.o/", object)] {
            let (owner, len) = ("0", content.len());
            out.extend(
                format!("{name:<16}{owner:<12}{owner:<6}{owner:<6}{owner:<8}{len:<10}`\n").bytes(),
            );
            out.extend(content);
            out.resize(out.len().next_multiple_of(2), b'\n');
        }
        out
    }

    #[test]
    fn defined_symbols_become_weak_and_undefined_ones_stay() {
        let object = note_object(Machine::KNOWN[0], ".note.x", &[0; 24], "f");
        let mut undefined = archive(&object);
        let before = undefined.clone();
        assert_eq!(weaken(&mut undefined, |name| name == "f"), Ok(0));
        assert_eq!(undefined, before);

        // The same object with the symbol in its first section.
        let mut defining = object.clone();
        let at = (0..object.len())
            .step_by(8)
            .find(|&at| object[at..at + 8] == [1, 0, 0, 0, 16, 0, 0, 0])
            .expect("the global symbol");
        defining[at + 6] = 1;
        let mut defined = archive(&defining);
        let mut want = defined.clone();
        assert_eq!(weaken(&mut defined, |name| name == "g"), Ok(0));
        assert_eq!(defined, want);
        assert_eq!(weaken(&mut defined, |name| name == "f"), Ok(1));
        let end = want.len() - (object.len() - at).next_multiple_of(2);
        want[end + BINDING] = STB_WEAK.0 << 4;
        assert_eq!(defined, want);
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let whole = archive(&note_object(Machine::KNOWN[0], ".note.x", &[0; 24], "f"));
        assert!(weaken(&mut b"!<arch>".to_vec(), |_| true).is_err());
        for len in MAGIC.len() + 1..whole.len() - 1 {
            let mut cut = whole[..len].to_vec();
            let _ = weaken(&mut cut, |_| true); // some cuts fall between members; none panics
        }
        assert!(weaken(&mut whole[..whole.len() - 8].to_vec(), |_| true).is_err());
    }
}
