//! What a core file of a PE holds: not the heaps of others, and never the job's key.

use std::path::{Path, PathBuf};

use shmem_node::contract::unhex;
use shmem_testkit::Job;
use shmem_testkit::needs::skipped;

use crate::programs::{CRASH, SHMRUN};

const HEAP: u64 = 8 << 20;

/// What PE 1 said before it crashed, and its core file if the system has written one here.
struct Crash {
    said: String,
    core: Option<Vec<u8>>,
}

/// Where the job of a test runs.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn crash(setting: &str) -> Crash {
    let name = format!("shmem-core-{}-{setting}", std::process::id());
    let place = Place(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&place.0).unwrap();
    // Where no core files are allowed, the rest can be told all the same.
    let script = format!(
        "ulimit -c unlimited; cd {} && exec \"$@\"",
        place.0.display()
    );
    let words = [&script, "sh", SHMRUN, "-n", "6", "--nodes", "2", CRASH];
    let output = Job::new("/bin/sh", "-c", &words)
        .env("SHMEM_CORE", setting)
        .env("SHMEM_SYMMETRIC_SIZE", HEAP.to_string())
        .run();
    let said = output.stdout;
    assert_eq!(output.status.code(), Some(134), "{said}{}", output.stderr);
    let cores = cores(&place.0);
    assert!(cores.len() <= 1, "{cores:?}");
    Crash {
        said,
        core: cores.first().map(|path| std::fs::read(path).unwrap()),
    }
}

fn cores(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|e| e.unwrap().path()).collect()
}

impl Crash {
    fn number(&self, what: &str) -> u64 {
        let mut lines = self.said.lines();
        let value = lines.find_map(|l| l.strip_prefix(what)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {what} in {}", self.said))
    }

    /// Bytes of the mappings of a memory file that a core file holds.
    fn dumped(&self, name: &str) -> u64 {
        let sizes = self.said.lines().filter_map(|line| {
            let mut words = line.strip_prefix("mapping ")?.split(' ');
            let found = words.next()?.starts_with(name);
            let bytes: u64 = words.next()?.parse().ok()?;
            (found && words.next()? == "true").then_some(bytes)
        });
        sizes.sum()
    }

    fn key(&self) -> Vec<u8> {
        let digits = self.said.lines().find_map(|l| l.strip_prefix("key "));
        let turned = unhex(digits.expect("it tells the key").as_bytes()).unwrap();
        turned.iter().map(|byte| !byte).collect()
    }

    /// The core file holds neither half of the key, as far as there is one.
    fn keeps_the_key(&self) {
        let key = self.key();
        assert_eq!(key.len(), 32);
        for half in key.chunks(16) {
            let found = |core: &Vec<u8>| core.windows(16).any(|w| w == half);
            assert!(
                !self.core.as_ref().is_some_and(found),
                "the key is in the core file"
            );
        }
    }

    fn size(&self) -> Option<u64> {
        let size = self.core.as_ref().map(|core| core.len() as u64);
        if size.is_none() {
            skipped(
                "core",
                "only the mappings were looked at: no core file was written",
            );
        }
        size
    }
}

#[test]
fn a_core_file_holds_the_own_segment() {
    let crash = crash("own");
    let segment = crash.number("segment ");
    assert!(segment > HEAP);
    assert_eq!(
        crash.dumped("/memfd:shmem-heap"),
        segment.next_multiple_of(shmem_node::sys::page_size() as u64)
    );
    assert_eq!(crash.dumped("/memfd:shmem-tables"), 0);
    crash.keeps_the_key();
    assert!(
        crash
            .size()
            .is_none_or(|s| (segment..2 * segment).contains(&s))
    );
}

#[test]
fn or_nothing_of_the_node() {
    let crash = crash("none");
    assert_eq!(crash.dumped("/memfd:"), 0);
    crash.keeps_the_key();
    assert!(crash.size().is_none_or(|s| s < crash.number("segment ")));
}

#[test]
fn or_all_of_it_but_the_key() {
    let crash = crash("all");
    let segment = crash.number("segment ");
    assert!(crash.dumped("/memfd:shmem-heap") >= 3 * segment);
    assert!(crash.dumped("/memfd:shmem-tables") > 0);
    crash.keeps_the_key();
    assert!(crash.size().is_none_or(|s| s >= 3 * segment));
}
