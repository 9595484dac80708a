//! Makes symbols of a static library weak.
//!
//! A profiling tool defines `shmem_put` itself and calls the library's `pshmem_put`. With a shared library
//! that works as it is; in a static one both definitions would clash, so the library's has to be weak, and
//! stable Rust has no way to say so. The binding is one half byte of a symbol, which is changed here.

use std::fmt;

/// Why an archive cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged(&'static str);

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an archive of ELF objects: {}", self.0)
    }
}

const MAGIC: &[u8] = b"!<arch>\n";
/// Length of the header of a member, and where in it the length of the member is.
const MEMBER: usize = 60;
const MEMBER_LEN: std::ops::Range<usize> = 48..58;

const SHT_SYMTAB: u64 = 2;
const SYMBOL: usize = 24;
const GLOBAL: u8 = 1;
const WEAK: u8 = 2;

/// Makes the global symbols weak that `archive` defines and `chosen` chooses. Gives their number.
///
/// # Errors
/// If the bytes are not an archive, or a member is a damaged object.
pub fn weaken(archive: &mut [u8], chosen: impl Fn(&str) -> bool) -> Result<usize, Damaged> {
    if !archive.starts_with(MAGIC) {
        return Err(Damaged("its first bytes are others"));
    }
    let (mut at, mut changed) = (MAGIC.len(), 0);
    while at < archive.len() {
        let header = archive
            .get(at..at + MEMBER)
            .ok_or(Damaged("the header of a member is cut off"))?;
        let len = std::str::from_utf8(&header[MEMBER_LEN])
            .ok()
            .and_then(|text| text.trim_end().parse::<usize>().ok())
            .ok_or(Damaged("the length of a member is no number"))?;
        let start = at + MEMBER;
        let member = start
            .checked_add(len)
            .and_then(|end| archive.get_mut(start..end))
            .ok_or(Damaged("a member is cut off"))?;
        if member.starts_with(b"\x7fELF\x02\x01") {
            changed += weaken_object(member, &chosen).ok_or(Damaged("an object is damaged"))?;
        }
        at = (start + len).next_multiple_of(2);
    }
    Ok(changed)
}

/// A little-endian number of at most 8 bytes.
fn number<const LEN: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..LEN].copy_from_slice(bytes.get(at..at.checked_add(LEN)?)?);
    Some(u64::from_le_bytes(wide))
}

fn index<const LEN: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    number::<LEN>(bytes, at)?.try_into().ok()
}

fn weaken_object(elf: &mut [u8], chosen: &impl Fn(&str) -> bool) -> Option<usize> {
    let table = index::<8>(elf, 40)?;
    let entry_len = index::<2>(elf, 58)?;
    let entry = |i: usize| table.checked_add(i.checked_mul(entry_len)?);
    let mut n_sections = index::<2>(elf, 60)?;
    if n_sections == 0 && table != 0 {
        // More than the header can say: the first entry does.
        n_sections = index::<8>(elf, entry(0)? + 32)?;
    }
    let mut changed = 0;
    for i in 0..n_sections {
        let section = entry(i)?;
        if number::<4>(elf, section + 4)? != SHT_SYMTAB {
            continue;
        }
        let (start, len) = (
            index::<8>(elf, section + 24)?,
            index::<8>(elf, section + 32)?,
        );
        let names = index::<8>(elf, entry(index::<4>(elf, section + 40)?)? + 24)?;
        for symbol in (start..start.checked_add(len)?).step_by(SYMBOL) {
            let defined = number::<2>(elf, symbol + 6)? != 0;
            let name_at = names.checked_add(index::<4>(elf, symbol)?)?;
            let name = elf.get(name_at..)?.split(|&b| b == 0).next()?;
            let hit = std::str::from_utf8(name).is_ok_and(chosen);
            let info = elf.get_mut(symbol + 4)?;
            if defined && hit && *info >> 4 == GLOBAL {
                *info = WEAK << 4 | *info & 15;
                changed += 1;
            }
        }
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Machine, note_object};

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

        // The same object with the symbol in its first section: its entry ends 24 bytes on.
        let mut defining = object.clone();
        let symbols = 64 + 24 + 8; // after header, note and padding: a multiple of 8 already
        let at = (symbols..object.len())
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
        want[end + 4] = WEAK << 4;
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
