//! The directory of a node's PMIx server, where it and its processes have their files.
//!
//! Its agent holds a lock on it for as long as it lives, of which nothing has to be told: a directory without
//! that lock is nobody's, and whoever comes across it removes it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use shmem_node::sys::file_id;

/// Where it is best: the memory that processes share lies there, so it should be no disk.
const SHARED_MEMORY: &str = "/dev/shm";

/// How its name begins.
const PREFIX: &str = "shmrun-pmix-";

/// How often it is tried to make one that somebody takes for abandoned before it is locked, and how long that one may
/// take to remove it.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(5);

/// A directory that is locked.
#[derive(Debug)]
pub(super) struct ServerDir {
    path: PathBuf,
    _lock: File,
}

impl ServerDir {
    /// Makes one, which nobody else may look into; `name` tells it from all others.
    pub(super) fn make(name: &str) -> io::Result<Self> {
        remove_abandoned();
        let name = format!("{PREFIX}{name}");
        let parent = std::env::temp_dir();
        let in_memory = Self::make_in(Path::new(SHARED_MEMORY), &name);
        in_memory
            .or_else(|_| Self::make_in(&parent, &name))
            .map_err(|e| {
                let parent = parent.display();
                let what = "a directory for its PMIx server";
                let text =
                    format!("cannot make {what} in {SHARED_MEMORY} or {parent} (TMPDIR): {e}");
                io::Error::new(e.kind(), text)
            })
    }

    fn make_in(parent: &Path, name: &str) -> io::Result<Self> {
        let path = parent.join(name);
        let mut refused = io::Error::other("it is removed again and again");
        for _ in 0..ATTEMPTS {
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    if let Some(lock) = lock(&path)
                        && is_at(&lock, &path)
                    {
                        return Ok(Self { path, _lock: lock });
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => refused = e,
                Err(e) => return Err(e),
            }
            std::thread::sleep(PAUSE);
        }
        Err(refused)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it with what is in it.
    pub(super) fn remove(&self) {
        remove(&self.path);
    }
}

/// What cannot be removed stays.
pub(super) fn remove(dir: &Path) {
    let _ = std::fs::remove_dir_all(dir);
}

/// Removes the directories of this user whose agents have ended. A server that is left does the same with its own, and
/// minds nobody who was quicker.
pub(crate) fn remove_abandoned() {
    remove_abandoned_in(Path::new(SHARED_MEMORY));
    remove_abandoned_in(&std::env::temp_dir());
}

fn remove_abandoned_in(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes())
        {
            continue;
        }
        let own =
            |m: std::fs::Metadata| m.is_dir() && m.uid() == rustix::process::getuid().as_raw();
        let path = entry.path();
        // The lock stays until it is gone: nobody takes it for his own meanwhile.
        if entry.metadata().is_ok_and(own)
            && let Some(_lock) = lock(&path)
        {
            remove(&path);
        }
    }
}

/// The lock of a directory; `None` if somebody has it, or there is no such directory.
fn lock(dir: &Path) -> Option<File> {
    // Where others may write, a link can take its place.
    let how = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY)
        .clone();
    let file = how.open(dir).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// Whether that is what is there.
fn is_at(file: &File, path: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = open(path, flags, Mode::empty()).map_err(std::io::Error::from);
    let there = there.and_then(file_id);
    file_id(file).is_ok_and(|this| there.is_ok_and(|there| this == there))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_nobody_holds_is_removed() {
        let parent = std::env::temp_dir().join(format!("shmrun-dir-{}", std::process::id()));
        std::fs::create_dir(&parent).unwrap();
        let make = |name: &str| ServerDir::make_in(&parent, &format!("{PREFIX}{name}")).unwrap();
        let (held, left) = (make("held"), make("left"));
        let (kept, gone) = (held.path().to_owned(), left.path().to_owned());
        let mode = std::fs::metadata(&kept).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "of nobody else");
        std::fs::create_dir_all(gone.join("job/deeper")).unwrap();
        std::fs::write(gone.join("job/file"), "x").unwrap();
        let others = parent.join("other-dir");
        std::fs::create_dir(&others).unwrap();
        remove_abandoned_in(&parent);
        assert!(gone.is_dir() && kept.is_dir(), "both are held");
        assert!(ServerDir::make_in(&parent, &format!("{PREFIX}held")).is_err());
        drop(left);
        remove_abandoned_in(&parent);
        assert!(!gone.exists() && kept.is_dir() && others.is_dir());
        held.remove();
        assert!(!kept.exists());
        std::fs::remove_dir_all(&parent).unwrap();
    }
}
