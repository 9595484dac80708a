//! Programs for systems with an older C library than that of the machine that builds them.
//!
//! The symbols of glibc have versions. A linker takes the newest of the glibc that it finds, and the program then runs with no older one.
//! `zig` has the lists of symbols of all versions of glibc, and `cargo-zigbuild` has cargo link with it.

use std::fmt;
use std::process::{Command, Stdio};
use std::str::FromStr;

use object::LittleEndian;
use object::elf::{FileHeader64, SHT_DYNSYM};
use object::read::elf::{FileHeader, Sym};

/// A version of glibc, such as 2.28.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glibc {
    /// The number in front of the dot.
    pub major: u32,
    /// The number behind the dot.
    pub minor: u32,
}

impl FromStr for Glibc {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text
            .split_once('.')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let (major, minor) = numbers.ok_or("a version is expected, such as 2.28")?;
        Ok(Self { major, minor })
    }
}

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A version of glibc that a file asks for, and a symbol of that version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The version.
    pub version: Glibc,
    /// One of its symbols.
    pub symbol: String,
}

/// The newest version of glibc that an ELF file asks for.
///
/// # Errors
/// If the file is damaged.
pub fn newest(file: &[u8]) -> Result<Option<Need>, object::Error> {
    let endian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(file)?;
    let sections = header.sections(endian, file)?;
    let symbols = sections.symbols(endian, file, SHT_DYNSYM)?;
    let Some(versions) = sections.versions(endian, file)? else {
        return Ok(None);
    };
    let mut newest = None;
    for (index, symbol) in symbols.enumerate() {
        let of = versions.version_index(endian, index).index();
        let version = versions.version(of)?.and_then(|v| version(v.name()));
        let Some(version) = version.filter(|_| symbol.is_undefined(endian)) else {
            continue;
        };
        let symbol = symbols.symbol_name(endian, symbol)?;
        let symbol = String::from_utf8_lossy(symbol).into_owned();
        newest = newest.max(Some(Need { version, symbol }));
    }
    Ok(newest)
}

/// The version of glibc that a version of a symbol names.
fn version(name: &[u8]) -> Option<Glibc> {
    let version = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
    // Some versions have three parts.
    let mut parts = version.splitn(3, '.');
    let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Glibc { major, minor })
}

/// Whether cargo can link for a chosen glibc: `cargo-zigbuild` and `zig` are there.
pub(crate) fn can_link() -> bool {
    let mut ask = Command::new(PROGRAM);
    ask.args(["zig", "cc", "--", "--version"])
        .stdin(Stdio::null());
    ask.output().is_ok_and(|said| said.status.success())
}

/// The program that stands in for cargo.
pub(crate) const PROGRAM: &str = "cargo-zigbuild";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let of = |text: &str| text.parse::<Glibc>();
        assert!(of("2.9").unwrap() < of("2.28").unwrap());
        assert_eq!(of("2.28").unwrap().to_string(), "2.28");
        assert!(of("2").is_err() && of("2.x").is_err());
        let two = |minor| Some(Glibc { major: 2, minor });
        assert_eq!(version(b"GLIBC_2.2.5"), two(2));
        assert_eq!(version(b"GLIBC_2.34"), two(34));
        assert_eq!(version(b"GLIBC_PRIVATE"), None);
        assert_eq!(version(b"GCC_3.0"), None);
    }

    #[test]
    fn a_program_asks_for_a_glibc() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let need = newest(&program).unwrap().unwrap();
        let promised: Glibc = "2.28".parse().unwrap();
        assert!(need.version >= promised, "{need:?}: std uses statx");
        assert!(!need.symbol.is_empty());
        assert!(newest(b"no program").is_err());
    }
}
