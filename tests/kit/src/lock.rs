//! Turns between processes: those of one run of tests, and those of other runs in the same target directory.
//!
//! Under `cargo test` the tests of a program are threads of one process, under cargo-nextest each is a process of
//! its own. What tests make once and share is made under such a lock, in both cases.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The turn of the caller, until this is dropped. If its process dies, its turn ends.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "it holds the lock")] File);

/// Waits for the turn to make `what`, a file or folder. The lock is a file beside it, which stays.
///
/// # Panics
/// If the file cannot be made.
#[track_caller]
pub fn turn_at(what: &Path) -> Turn {
    let mut name = what.file_name().expect("a name").to_owned();
    name.push(".lock");
    let path: PathBuf = what.with_file_name(name);
    let shown = path.display();
    let made = std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")));
    // Each turn has a description of the open file of its own, so threads, too, take turns.
    let file = made.and_then(|()| File::options().append(true).create(true).open(&path));
    let file = file.unwrap_or_else(|e| panic!("{shown}: {e}"));
    flock(&file, FlockOperation::LockExclusive).unwrap_or_else(|e| panic!("{shown}: {e}"));
    Turn(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_the_turn() {
        let name = format!("shmem-lock-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let what = dir.join("counter");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _turn = turn_at(&what);
                        let count = std::fs::read_to_string(&what).unwrap_or_default();
                        let count: u32 = count.parse().unwrap_or(0);
                        std::thread::yield_now();
                        std::fs::write(&what, (count + 1).to_string()).unwrap();
                    }
                });
            }
        });
        assert_eq!(std::fs::read_to_string(&what).unwrap(), "200");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
