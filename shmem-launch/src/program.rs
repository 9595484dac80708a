//! Finding the program before anything is started, so that a typing mistake costs nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::exit;

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
            Self::NotFound { .. } => exit::NOT_FOUND,
            Self::NotExecutable { .. } => exit::NOT_EXECUTABLE,
        }
    }
}

/// Looks for the program as execvp(3) does: a name with a slash is a path, another is searched for
/// in `path` (the value of `PATH`).
///
/// # Errors
/// When there is none that can be executed.
pub fn find(name: &OsStr, path: Option<OsString>) -> Result<PathBuf, ProgramError> {
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
        let here = Path::new(name).exists() && !name.is_empty();
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
        assert_eq!(status("", "/bin"), 126, "joins to the directory itself");
        assert_eq!(status("/tmp", ""), 126);
        assert_eq!(status("/etc/passwd", ""), 126);
        assert_eq!(status("/dev/null", ""), 126);
        let text = find_in("/etc/passwd", "").unwrap_err().to_string();
        assert!(text.contains("chmod +x"), "{text}");
        let text = find_in("Cargo.toml", "/bin").unwrap_err().to_string();
        assert!(text.contains("./Cargo.toml"), "{text}");
    }
}
