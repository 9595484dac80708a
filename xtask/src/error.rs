//! Why a chore failed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use crate::glibc::{Glibc, Need};

/// Why an installation failed.
#[derive(Debug)]
pub enum Error {
    /// The prefix or the destination directory is of no use.
    Place(String),
    /// Cargo failed; it has said why.
    Build(ExitStatus),
    /// Cargo built no file of this name.
    NoProduct(String),
    /// What links for another glibc is missing.
    Zig,
    /// A file would not run with the glibc that was asked for.
    Glibc(PathBuf, Need, Glibc),
    /// A file is no ELF file, or a damaged one.
    Elf(PathBuf, object::Error),
    /// A command failed; it has said why.
    Command(PathBuf, ExitStatus),
    /// The name of a file is not UTF-8.
    Name,
    /// A file operation failed.
    Io {
        /// What was to be done.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What this file runs on is not known.
    Machine(PathBuf),
    /// The static library is not what it should be.
    Archive(PathBuf, object::Error),
    /// There is no crate of this name, only these.
    NoCrate(String, String),
    /// `tests/jobs/layouts/named.txt` has no layout of this name.
    NoLayout(String),
    /// There is no list of installed files.
    NotInstalled(PathBuf),
    /// The list of installed files names something outside the prefix.
    Manifest(PathBuf, String),
}

impl Error {
    /// A file operation that failed.
    pub fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            what,
            path: path.to_owned(),
            source,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(why) => f.write_str(why),
            Self::Build(status) => {
                write!(f, "cargo build failed ({status}); nothing else was done")
            }
            Self::Zig => f.write_str(
                "--glibc takes cargo-zigbuild and zig, which are not in PATH; get them by \
                 `pip install cargo-zigbuild ziglang`, in an environment of Python",
            ),
            Self::Glibc(path, need, wanted) => write!(
                f,
                "{} asks for glibc {}, which is newer than {wanted}: it uses {}",
                path.display(),
                need.version,
                need.symbol
            ),
            Self::Elf(path, why) => write!(f, "{} is no program: {why}", path.display()),
            Self::Command(program, status) => {
                write!(f, "{} failed ({status})", program.display())
            }
            Self::Name => f.write_str("the name of a file is not UTF-8"),
            Self::NoProduct(name) => write!(f, "cargo build made no file {name}"),
            Self::Io { what, path, source } => {
                write!(f, "cannot {what} {}: {source}", path.display())?;
                if source.kind() == io::ErrorKind::PermissionDenied {
                    f.write_str(" (choose another --prefix, or get the right to write there)")?;
                }
                Ok(())
            }
            Self::Machine(path) => write!(
                f,
                "{} is no program for x86-64, AArch64 or RISC-V of 64 bits",
                path.display()
            ),
            Self::Archive(path, why) => {
                write!(f, "{} is no archive of ELF objects: {why}", path.display())
            }
            Self::NoCrate(name, names) => write!(
                f,
                "there are no tests for a crate {name}, only for: {names} (all tests: ci/test.sh)"
            ),
            Self::NoLayout(name) => {
                write!(f, "tests/jobs/layouts/named.txt has no layout {name}")
            }
            Self::NotInstalled(path) => write!(
                f,
                "nothing is installed there: {} does not exist",
                path.display()
            ),
            Self::Manifest(path, line) => write!(
                f,
                "{} is damaged: it names {line:?}, which is not below the prefix",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {}
