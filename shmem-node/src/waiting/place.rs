//! A place in the source of a program, as a few words that another process can read.
//!
//! What the compiler knows of a caller ([`Location`]) is a pointer, which means nothing to others.

use std::fmt;
use std::io::Write as _;
use std::panic::Location;

/// Words that a place takes.
pub(super) const WORDS: usize = 8;

const BYTES: usize = 8 * WORDS;

/// What a colon and any number of a line take.
const LINE: usize = 11;

/// Stands for the beginning of a path that is too long.
const CUT: &str = "...";

/// File and line, or nowhere. Of a long path the end is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place([u8; BYTES]);

impl Place {
    /// That of who has none, as a program in another language.
    pub const NOWHERE: Self = Self([0; BYTES]);

    /// That of a caller.
    #[must_use]
    pub fn of(at: &Location<'_>) -> Self {
        Self::new(at.file(), at.line())
    }

    fn new(file: &str, line: u32) -> Self {
        let mut text = [0; BYTES];
        let (cut, end) = match file.len() <= BYTES - LINE {
            true => ("", file),
            false => (CUT, end_of(file, BYTES - LINE - CUT.len())),
        };
        // It fits.
        let _ = write!(&mut text[..], "{cut}{end}:{line}");
        Self(text)
    }

    /// Whether it is none.
    #[must_use]
    pub fn is_nowhere(&self) -> bool {
        self.0[0] == 0
    }

    pub(super) fn words(&self) -> [u64; WORDS] {
        let (words, _) = self.0.as_chunks::<8>();
        std::array::from_fn(|i| u64::from_le_bytes(words[i]))
    }

    pub(super) fn of_words(words: [u64; WORDS]) -> Self {
        let mut text = [0; BYTES];
        let (parts, _) = text.as_chunks_mut::<8>();
        for (part, word) in parts.iter_mut().zip(words) {
            *part = word.to_le_bytes();
        }
        Self(text)
    }
}

/// The last bytes of a path, `most` at most: whole names, if the last one is short enough.
fn end_of(file: &str, most: usize) -> &str {
    let mut from = file.len().saturating_sub(most);
    while !file.is_char_boundary(from) {
        from += 1;
    }
    let end = &file[from..];
    end.find('/').map_or(end, |at| &end[at..])
}

/// The text; nothing for nowhere. Whatever somebody has written there is shown as one line.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.iter().position(|&byte| byte == 0);
        let text = String::from_utf8_lossy(&self.0[..len.unwrap_or(BYTES)]);
        let shown = |c: char| if c.is_control() { '?' } else { c };
        f.pad(&text.chars().map(shown).collect::<String>())
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_caller_is_shown_with_its_line() {
        let here = Place::of(Location::caller());
        let text = here.to_string();
        assert!(text.contains("waiting/place.rs:"), "{text}");
        assert!(!here.is_nowhere());
        assert_eq!(Place::NOWHERE.to_string(), "");
        assert_eq!(Place::new("src/sort.rs", 14).to_string(), "src/sort.rs:14");
    }

    #[test]
    fn of_a_long_path_the_end_is_kept() {
        let long = format!("/{}/one/src/sort.rs", "directory/".repeat(9));
        let text = Place::new(&long, u32::MAX).to_string();
        assert!(text.starts_with(".../directory/"), "{text}");
        assert!(text.ends_with("/one/src/sort.rs:4294967295"), "{text}");
        let name = "ä".repeat(60);
        let text = Place::new(&name, 7).to_string();
        assert!(text.starts_with("...ä") && text.ends_with("ä:7"), "{text}");
    }

    proptest! {
        #[test]
        fn places_survive_their_words(file: String, line: u32) {
            let place = Place::new(&file, line);
            prop_assert_eq!(Place::of_words(place.words()), place);
        }

        /// Whatever a PE has written over its block.
        #[test]
        fn any_words_are_one_line(words: [u64; WORDS]) {
            let text = Place::of_words(words).to_string();
            prop_assert!(!text.contains(char::is_control));
        }
    }
}
