//! Files of the repository that its code writes: tables, headers, pages.

use std::path::Path;
use std::{env, fs};

/// Compares a file with what it should be; writes it instead where `UPDATE_DOCS` is set.
///
/// # Panics
/// If it is not that, or cannot be written.
#[track_caller]
pub fn is_current(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    let there = fs::read_to_string(path).unwrap_or_default();
    if there != text && env::var_os("UPDATE_DOCS").is_some() {
        let folder = path.parent().expect("a file in a folder");
        fs::create_dir_all(folder).expect("a folder can be made");
        return fs::write(path, text).expect("a file of the repository can be written");
    }
    let shown = path.display();
    assert!(
        there == text,
        "{shown} is stale; the same test with UPDATE_DOCS=1 writes it. It should be\n{text}"
    );
}
