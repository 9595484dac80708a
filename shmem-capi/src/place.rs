//! What lies at an address that should be symmetric and is not: part of a message.
#![forbid(unsafe_code)]

use std::fmt::{self, Display};
use std::fs;

/// What lies at an address, as the kernel tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Null,
    Stack,
    Malloc,
    File(String),
    Other,
    Nothing,
}

impl Place {
    pub(crate) fn of(at: usize) -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Self::within(&maps, at)
    }

    /// `at` in the text of a `/proc/self/maps`.
    fn within(maps: &str, at: usize) -> Self {
        if at == 0 {
            return Self::Null;
        }
        // Zeroed variables of a library have memory of no file, directly behind its writable data.
        let mut before = (0, "");
        let path = maps.lines().find_map(|line| {
            let mut fields = line.splitn(6, ' ');
            let (from, to) = fields.next()?.split_once('-')?;
            let from = usize::from_str_radix(from, 16).ok()?;
            let to = usize::from_str_radix(to, 16).ok()?;
            let writable = fields.next()? == "rw-p";
            let path = fields.nth(3).unwrap_or_default().trim();
            let behind = path.is_empty() && before.0 == from && before.1.starts_with('/');
            let belongs_to = if behind { before.1 } else { path };
            before = (to, if writable { path } else { "" });
            (from..to).contains(&at).then_some(belongs_to)
        });
        match path {
            None => Self::Nothing,
            Some("[stack]") => Self::Stack,
            Some("[heap]") => Self::Malloc,
            Some(path) if path.starts_with('/') => Self::File(path.to_owned()),
            Some(_) => Self::Other,
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("is null"),
            Self::Stack => f.write_str("is on the stack"),
            Self::Malloc => f.write_str("is in memory of malloc"),
            Self::File(path) => write!(f, "belongs to {path}"),
            Self::Other => f.write_str("is in private memory"),
            Self::Nothing => f.write_str("points to no memory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55e0c0000000-55e0c0001000 rw-p 00003000 08:01 1311 /usr/lib/a library.so
55e0c0001000-55e0c0003000 rw-p 00000000 00:00 0 
55e0c0003000-55e0c0004000 rw-p 00000000 00:00 0 
55e0c0005000-55e0c0006000 r--p 00000000 08:01 1312 /usr/share/data
55e0c0006000-55e0c0007000 rw-p 00000000 00:00 0 
55e0c1000000-55e0c1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn addresses_are_told_apart() {
        let at = |at| Place::within(MAPS, at);
        assert_eq!(at(0), Place::Null);
        let library = Place::File("/usr/lib/a library.so".to_owned());
        assert_eq!(at(0x55e0_c000_0010), library);
        // Of the same library, at the end of what is zero at first.
        assert_eq!(at(0x55e0_c000_2ff0), library);
        // What happens to lie behind that, and behind a file that is only read.
        assert_eq!(at(0x55e0_c000_3000), Place::Other);
        assert_eq!(at(0x55e0_c000_6000), Place::Other);
        assert_eq!(at(0x55e0_c100_0000), Place::Malloc);
        assert_eq!(at(0x7f00_0000_0000), Place::Other);
        assert_eq!(at(0x7ffd_0002_0fff), Place::Stack);
        assert_eq!(at(0x7ffd_0002_1000), Place::Nothing);
    }

    #[test]
    fn this_threads_stack_is_found() {
        // A test runs in a thread, whose stack is private memory like any other.
        let here = 0u8;
        assert_eq!(Place::of(&raw const here as usize), Place::Other);
    }
}
