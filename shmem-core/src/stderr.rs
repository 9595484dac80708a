//! The last way to tell the user something: a line on standard error.

use std::io::Write;

/// Writes a line on standard error, in one write: others may write there, too.
pub(crate) fn write(text: &str) {
    let line = format!("shmem: {}\n", text.trim_end());
    // There is nobody to tell that it cannot be told.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
