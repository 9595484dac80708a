//! Lines of `/proc/.../status`, read without allocating.
//!
//! The file has no bound: a line lists all groups of the user. So lines are taken from the file piece by piece.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};

/// Bytes of a line that are kept: enough for a name and one number.
const KEPT: usize = 32;

/// The beginning of a line.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    bytes: [u8; KEPT],
    len: usize,
}

impl Line {
    fn push(&mut self, byte: u8) {
        if let Some(room) = self.bytes.get_mut(self.len) {
            *room = byte;
            self.len += 1;
        }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Values of the lines with these names.
#[derive(Debug)]
pub struct Status<const N: usize> {
    names: [&'static str; N],
    found: [Option<Line>; N],
    current: Line,
}

impl<const N: usize> Status<N> {
    fn new(names: [&'static str; N]) -> Self {
        Self {
            names,
            found: [None; N],
            current: Line::default(),
        }
    }

    /// Reads the file up to the last of the lines.
    ///
    /// # Errors
    /// Of the system calls.
    pub fn read(path: &CStr, names: [&'static str; N]) -> Result<Self, Errno> {
        let mut status = Self::new(names);
        let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut room = [MaybeUninit::uninit(); 1024];
        loop {
            let (piece, _) = read(&file, &mut room)?;
            if piece.is_empty() || status.take(piece) {
                return Ok(status);
            }
        }
    }

    /// As [`Self::read`], of a text.
    #[cfg(test)]
    pub fn of(text: &[u8], names: [&'static str; N]) -> Self {
        let mut status = Self::new(names);
        status.take(text);
        status
    }

    /// Takes the next piece of the file. Returns whether all lines are found.
    fn take(&mut self, piece: &[u8]) -> bool {
        for &byte in piece {
            if byte != b'\n' {
                self.current.push(byte);
                continue;
            }
            let line = std::mem::take(&mut self.current);
            let named = |name: &&str| line.text().starts_with(name.as_bytes());
            if let Some(at) = self.names.iter().position(named) {
                self.found[at].get_or_insert(line);
            }
        }
        self.found.iter().all(Option::is_some)
    }

    /// The value in the line of the name with this index. `None` if the file has no such line.
    pub fn value(&self, index: usize) -> Option<&str> {
        let line = self.found[index].as_ref()?.text();
        let value = line.get(self.names[index].len()..)?;
        Some(std::str::from_utf8(value).ok()?.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["SigBlk:", "State:", "Nothing:"];

    #[test]
    fn lines_behind_many_groups_are_found() {
        let groups = "4294967294 ".repeat(65536);
        let text = format!(
            "Name:\tState: R\nState:\tS (sleeping)\nGroups:\t{groups}SigBlk:\t1\nSigBlk:\tff\nSigIgn:\t2\n"
        );
        for piece in [1, 7, 1024, text.len()] {
            let mut status = Status::new(NAMES);
            for piece in text.as_bytes().chunks(piece) {
                assert!(!status.take(piece));
            }
            assert_eq!(status.value(0), Some("ff"), "{piece}");
            assert_eq!(status.value(1), Some("S (sleeping)"), "{piece}");
            assert_eq!(status.value(2), None, "{piece}");
        }
    }

    #[test]
    fn this_process_has_a_status() {
        let status = Status::read(c"/proc/self/status", ["State:", "Threads:"]).unwrap();
        assert!(status.value(0).is_some());
        assert!(status.value(1).is_some_and(|n| n.parse::<u32>().is_ok()));
        assert_eq!(
            Status::read(c"/proc/self/no status", NAMES).unwrap_err(),
            Errno::NOENT
        );
    }
}
