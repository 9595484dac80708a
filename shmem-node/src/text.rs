//! Text that must fit into a given number of bytes, and lines that stay whole.

use std::fmt;
use std::io::{self, Write};

/// Writes a line to standard error, which several processes may share. If it cannot be written, nobody can be told.
pub fn say(line: fmt::Arguments<'_>) {
    say_to(&mut io::stderr(), line);
}

/// One write: of several, those of other processes could stand between them.
fn say_to(out: &mut impl Write, line: fmt::Arguments<'_>) {
    let _ = out.write_all(format!("{line}\n").as_bytes());
}

/// The beginning of `text`: at most `most` bytes, and no half of a character.
pub fn beginning(text: &str, most: usize) -> &str {
    // `str::floor_char_boundary` is newer than the oldest Rust that the workspace promises.
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_at_once() {
        struct Writes(Vec<String>);
        impl Write for Writes {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.push(String::from_utf8_lossy(bytes).into_owned());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut writes = Writes(Vec::new());
        let missing = io::Error::from_raw_os_error(2);
        say_to(&mut writes, format_args!("PE {}: {missing}", 7));
        assert_eq!(writes.0, [format!("PE 7: {missing}\n")]);
    }

    #[test]
    fn no_character_is_cut() {
        assert_eq!(beginning("héllo", 0), "");
        assert_eq!(beginning("héllo", 1), "h");
        assert_eq!(beginning("héllo", 2), "h");
        assert_eq!(beginning("héllo", 3), "hé");
        assert_eq!(beginning("héllo", 6), "héllo");
        assert_eq!(beginning("héllo", 60), "héllo");
        assert_eq!(beginning("", 3), "");
    }
}
