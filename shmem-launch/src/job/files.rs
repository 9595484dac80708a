//! What the files of a job's programs say: whether they can be templates, and what memory they need.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use shmem_node::settings::{HeapCommit, HeapPages, HeapRegister, Settings, Spawn, StaticsSize};
use shmem_node::template::marker::{self, Marker, StaticsRoom};

use super::JobError;
use crate::frame::{Command, SpawnMode};

/// What the files of a job's programs say, each with its path.
pub(crate) struct Files(Vec<(PathBuf, std::io::Result<marker::Program>)>);

impl Files {
    pub(crate) fn of(commands: &[Command]) -> Self {
        let mut all: Vec<(PathBuf, _)> = Vec::new();
        for command in commands {
            let path = Path::new(OsStr::from_bytes(&command.program));
            if all.iter().all(|(known, _)| known != path) {
                all.push((path.into(), marker::read(path)));
            }
        }
        Self(all)
    }

    /// The room for static data that the settings or the files ask for: that of the program with most. If several
    /// programs need any, each may take it; then PEs compare their layouts.
    pub(super) fn statics(&self, settings: &Settings) -> StaticsRoom {
        let unreadable = marker::Program {
            marker: Marker::Absent,
            statics: None,
        };
        // What is not linked with `shmem` may start a program that is: a script, `env`, `numactl`, `perf`.
        let unused_is_free = settings.heap_commit == HeapCommit::Lazy
            && settings.heap_pages != HeapPages::Huge
            && settings.heap_register != HeapRegister::Whole;
        let guess = settings.statics_size == StaticsSize::Auto && unused_is_free;
        let rooms = self.0.iter().map(|(_, file)| {
            let file = file.as_ref().unwrap_or(&unreadable);
            match file.marker {
                Marker::Absent if guess => StaticsRoom::UNKNOWN,
                _ => StaticsRoom::of(settings.statics_size, file),
            }
        });
        let of_both = |one: StaticsRoom, other: StaticsRoom| StaticsRoom {
            bytes: one.bytes.max(other.bytes),
            layout: if one.layout == other.layout {
                one.layout
            } else {
                0
            },
        };
        let needed = rooms.filter(|room| room.bytes > 0);
        needed.reduce(of_both).unwrap_or_default()
    }

    /// Bytes of a heap for which a machine must have memory: none where the programs are known not to be
    /// linked with `shmem`, since its heaps are never touched.
    pub(crate) fn heap_need(&self, settings: &Settings) -> u64 {
        // Only of an ELF program it is known; a script may execute anything.
        let foreign = |file: &std::io::Result<marker::Program>| {
            let file = file.as_ref();
            file.is_ok_and(|f| f.marker == Marker::Absent && f.statics.is_some())
        };
        match settings.heap_commit {
            HeapCommit::Lazy if self.0.iter().all(|(_, file)| foreign(file)) => 0,
            _ => settings.symmetric_size,
        }
    }

    /// How PEs are started, if nothing else asks for `exec`: those of several programs are executed.
    pub(super) fn spawn_mode(&self, name: &OsStr, choice: Spawn) -> Result<SpawnMode, JobError> {
        match &self.0[..] {
            [(_, file)] => spawn_mode(name, file, choice),
            _ => Ok(SpawnMode::Exec),
        }
    }

    /// A program that is linked with `shmem`.
    pub(super) fn linked(&self) -> Option<String> {
        let linked = |file: &&(_, std::io::Result<marker::Program>)| {
            file.1.as_ref().is_ok_and(|f| f.marker != Marker::Absent)
        };
        let found = self.0.iter().find(linked);
        found.map(|(path, _): &(PathBuf, _)| path.display().to_string())
    }
}

/// How the PEs of a program are started.
fn spawn_mode(
    name: &OsStr,
    file: &std::io::Result<marker::Program>,
    choice: Spawn,
) -> Result<SpawnMode, JobError> {
    if choice == Spawn::Exec {
        return Ok(SpawnMode::Exec);
    }
    let refuse = |why: String| {
        Err(JobError::NoTemplate {
            name: name.display().to_string(),
            why,
        })
    };
    match (file.as_ref().map(|f| &f.marker), choice) {
        (Ok(Marker::Current), _) => Ok(SpawnMode::Template {
            may_execute: choice == Spawn::Auto,
        }),
        (Ok(Marker::Other(version)), _) => refuse(format!(
            "was built with a version of shmem that shares memory in another way ({version}, this \
             shmrun has {}); use the shmrun that belongs to it",
            shmem_node::contract::NODE_CONTRACT
        )),
        (_, Spawn::Auto) => Ok(SpawnMode::Exec),
        (Ok(_), _) => refuse(
            "cannot be a template because it is not linked with shmem; use SHMEM_SPAWN=auto or exec"
                .into(),
        ),
        (Err(e), _) => refuse(format!(
            "cannot be read to see if it can be a template: {e}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::NOT_EXECUTABLE;

    #[test]
    fn scripts_are_executed_and_cannot_be_templates() {
        let file = marker::read(Path::new("/bin/sh"));
        let spawn_mode = |choice| spawn_mode(OsStr::new("sh"), &file, choice);
        assert_eq!(spawn_mode(Spawn::Auto).unwrap(), SpawnMode::Exec);
        assert_eq!(spawn_mode(Spawn::Exec).unwrap(), SpawnMode::Exec);
        let e = spawn_mode(Spawn::Template).unwrap_err();
        assert_eq!(e.status(), NOT_EXECUTABLE);
        assert!(e.to_string().contains("SHMEM_SPAWN=auto"), "{e}");
    }
}
