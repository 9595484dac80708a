//! Finding the program before anything is started, so that a typing mistake costs nothing; and explaining why the
//! kernel does not execute one that is there. Only the kernel knows what it executes (`binfmt_misc` adds kinds of
//! programs), so files are not looked into before.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use shmem_node::elf::{self, PT_INTERP, PT_LOAD};

use crate::exit::{self, Cause};
use crate::sys::NotExecuted;

/// A program that cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// It is not there.
    #[error("{name}: not found{hint}")]
    NotFound {
        /// As typed.
        name: String,
        /// Where it was looked for.
        hint: String,
    },
    /// It is there, but what is to run it is not.
    #[error("{path}: {reason}")]
    Lacks {
        /// What was found.
        path: String,
        /// What is missing.
        reason: String,
    },
    /// It is there but cannot be executed.
    #[error("{path}: {reason}")]
    NotExecutable {
        /// What was found.
        path: String,
        /// Why that does not do.
        reason: String,
    },
}

impl ProgramError {
    /// The exit status of `shmrun`, as shells have it.
    pub fn status(&self) -> u8 {
        match self {
            Self::NotFound { .. } | Self::Lacks { .. } => exit::NOT_FOUND,
            Self::NotExecutable { .. } => exit::NOT_EXECUTABLE,
        }
    }
}

impl From<ProgramError> for Cause {
    fn from(e: ProgramError) -> Self {
        Self::Program {
            what: e.to_string(),
            status: e.status(),
        }
    }
}

/// Looks for the program as execvp(3) does: a name with a slash is a path, another is searched for
/// in `path` (the value of `PATH`).
///
/// # Errors
/// When there is none that can be executed.
pub fn find(name: &OsStr, path: Option<OsString>) -> Result<PathBuf, ProgramError> {
    if name.is_empty() {
        return Err(ProgramError::NotFound {
            name: "\"\"".into(),
            hint: ": the name of the program is empty".into(),
        });
    }
    if name.as_bytes().contains(&b'/') {
        return find_at(Path::new(name)).map(|()| name.into());
    }
    // What execvp searches when there is no PATH.
    let path = path.unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut refused = None;
    for dir in std::env::split_paths(&path) {
        let dir = if dir.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            dir
        };
        let candidate = dir.join(name);
        // A directory that may not be searched has nothing for this user.
        if std::fs::metadata(&candidate).is_err() {
            continue;
        }
        match check(&candidate) {
            Some(Ok(())) => return Ok(candidate),
            Some(Err(e)) => refused = refused.or(Some(e)),
            None => {}
        }
    }
    Err(refused.unwrap_or_else(|| {
        let here = Path::new(name).exists();
        ProgramError::NotFound {
            name: name.display().to_string(),
            hint: match here {
                true => format!(
                    " in PATH; for the one in this directory, type ./{}",
                    name.display()
                ),
                false => " in PATH".into(),
            },
        }
    }))
}

/// Whether there is a program at `path`.
///
/// # Errors
/// When there is none that can be executed.
pub fn find_at(path: &Path) -> Result<(), ProgramError> {
    check(path).unwrap_or_else(|| {
        Err(ProgramError::NotFound {
            name: path.display().to_string(),
            hint: String::new(),
        })
    })
}

/// `None` if there is nothing at `path`.
fn check(path: &Path) -> Option<Result<(), ProgramError>> {
    let refuse = |reason: String| {
        Some(Err(ProgramError::NotExecutable {
            path: path.display().to_string(),
            reason,
        }))
    };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return refuse(e.to_string()),
        Err(_) => return None,
    };
    if meta.is_dir() {
        return refuse("is a directory, not a program".into());
    }
    if !meta.is_file() {
        return refuse("is not a regular file".into());
    }
    if meta.permissions().mode() & 0o111 == 0 {
        return refuse(format!(
            "is not executable; chmod +x {} may help",
            path.display()
        ));
    }
    Some(Ok(()))
}

/// Why the kernel refuses to execute `path` with this error. `None` if that says nothing of the program: there is
/// no memory, or no process may be started.
pub fn refused(path: &Path, errno: i32) -> Option<ProgramError> {
    let text = io::Error::from_raw_os_error(errno);
    let shown = path.display().to_string();
    let lacks = |reason| ProgramError::Lacks {
        path: shown.clone(),
        reason,
    };
    let cannot = |reason| ProgramError::NotExecutable {
        path: shown.clone(),
        reason,
    };
    let head = head(path);
    let runner = runner(&head);
    Some(match errno {
        libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE => return None,
        libc::ENOENT | libc::ENOTDIR => match runner {
            _ if !path.exists() => ProgramError::NotFound {
                name: shown,
                hint: String::new(),
            },
            Some(Runner { kind, name, hint }) => {
                lacks(format!("{kind} {} does not exist{hint}", shown_bytes(name)))
            }
            None => lacks(text.to_string()),
        },
        libc::EACCES if is_mounted_noexec(path) => {
            cannot("lies in a file system that is mounted with noexec".into())
        }
        libc::ETXTBSY => cannot(format!("{text}: a process has it open for writing")),
        libc::ENOEXEC => cannot(flaw(path, &head).unwrap_or_else(|| text.to_string())),
        _ => cannot(match runner {
            Some(Runner { kind, name, .. }) => {
                format!("{text} (its {kind} is {})", shown_bytes(name))
            }
            None => text.to_string(),
        }),
    })
}

/// Why a program that a child was to execute does not run.
pub(crate) fn not_started(path: &Path, e: NotExecuted) -> io::Error {
    let refused = e.before.is_none().then(|| refused(path, e.errno));
    refused.flatten().map_or_else(|| e.into(), io::Error::other)
}

/// Why a program that the kernel began to execute has ended at once, if its file says so.
pub(crate) fn is_cut(path: &Path) -> Option<ProgramError> {
    let reason = cut(path, &head(path))?;
    Some(ProgramError::NotExecutable {
        path: path.display().to_string(),
        reason,
    })
}

/// The beginning of a file; nothing if it cannot be read.
fn head(path: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(HEAD_MAX).read_to_end(&mut head);
    }
    head
}

/// Bytes of a file that hold its headers.
const HEAD_MAX: u64 = 4096;

/// What the kernel executes instead of a program.
struct Runner<'a> {
    kind: &'static str,
    name: &'a [u8],
    hint: &'static str,
}

/// The interpreter of a script, or the loader of an ELF program.
fn runner(head: &[u8]) -> Option<Runner<'_>> {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&b| b == b'\n').next()?.trim_ascii_start();
        let end = line.iter().position(|b| b" \t\0".contains(b));
        let name = &line[..end.unwrap_or(line.len())];
        let hint = match name.last() {
            Some(b'\r') => {
                ": the line ends with a carriage return, as in files from Windows; remove these with: \
                 sed -i 's/\\r$//' FILE"
            }
            _ => "",
        };
        let kind = "its interpreter";
        return Some(Runner { kind, name, hint });
    }
    let header = elf::program_headers(head)
        .into_iter()
        .find(|h| h.kind == PT_INTERP)?;
    let at = usize::try_from(header.offset).ok()?;
    let name = head.get(at..)?.split(|&b| b == 0).next()?;
    Some(Runner {
        kind: "its loader",
        name,
        hint: ": the program was built for another system or C library",
    })
}

/// A name in a message.
fn shown_bytes(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

/// Why the kernel knows no way to execute a file.
fn flaw(path: &Path, head: &[u8]) -> Option<String> {
    if head.is_empty() {
        return std::fs::metadata(path)
            .is_ok_and(|meta| meta.len() == 0)
            .then(|| "is an empty file, not a program".into());
    }
    let of = elf::machine(head)?;
    if Some(of) != own_machine() {
        return Some(format!("is a program for another machine ({of})"));
    }
    cut(path, head)
}

fn own_machine() -> Option<elf::Machine> {
    elf::machine(&head(Path::new("/proc/self/exe")))
}

/// How much of an ELF program is missing, if its end is.
fn cut(path: &Path, head: &[u8]) -> Option<String> {
    let have = std::fs::metadata(path).ok()?.len();
    let loaded = elf::program_headers(head).into_iter();
    let loaded = loaded.filter(|h| h.kind == PT_LOAD);
    let need = loaded.map(|h| h.offset.saturating_add(h.file_len)).max()?;
    (need > have).then(|| format!("is not complete: {have} bytes of at least {need}"))
}

fn is_mounted_noexec(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(name: &str, path: &str) -> Result<PathBuf, ProgramError> {
        find(name.as_ref(), Some(path.into()))
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert_eq!(
            find_in("sh", "/nowhere:/bin").unwrap(),
            Path::new("/bin/sh")
        );
        assert_eq!(find_in("/bin/sh", "").unwrap(), Path::new("/bin/sh"));
        assert_eq!(find("sh".as_ref(), None).unwrap(), Path::new("/bin/sh"));
    }

    #[test]
    fn failures_have_the_statuses_of_a_shell() {
        let status = |name, path| find_in(name, path).unwrap_err().status();
        assert_eq!(status("no-such-program", "/bin"), 127);
        assert_eq!(status("/no/such/program", "/bin"), 127);
        assert_eq!(status("", "/bin"), 127);
        assert_eq!(status("/tmp", ""), 126);
        assert_eq!(status("/etc/passwd", ""), 126);
        assert_eq!(status("/dev/null", ""), 126);
        let text = find_in("/etc/passwd", "").unwrap_err().to_string();
        assert!(text.contains("chmod +x"), "{text}");
        let text = find_in("Cargo.toml", "/bin").unwrap_err().to_string();
        assert!(text.contains("./Cargo.toml"), "{text}");
    }
}
