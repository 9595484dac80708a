//! Compilers and their companions, named by the variables that `make` goes by.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::text;

/// A tool of whoever builds.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    variable: &'static str,
    default: &'static str,
}

/// The C compiler.
pub const CC: Tool = Tool::new("CC", "cc");
/// The C++ compiler.
pub const CXX: Tool = Tool::new("CXX", "c++");
/// What lists symbols.
pub const NM: Tool = Tool::new("NM", "nm");
/// What changes symbols.
pub const OBJCOPY: Tool = Tool::new("OBJCOPY", "objcopy");
/// What tells of ELF files.
pub const READELF: Tool = Tool::new("READELF", "readelf");

impl Tool {
    const fn new(variable: &'static str, default: &'static str) -> Self {
        Self { variable, default }
    }

    /// What its variable says, which may be several words, such as `ccache gcc`, or its usual name.
    pub fn words(self) -> String {
        let set = std::env::var(self.variable).ok();
        set.filter(|words| !words.trim().is_empty())
            .unwrap_or_else(|| self.default.to_owned())
    }

    /// Makes a file with this compiler, see [`made_by`].
    ///
    /// # Errors
    /// If the compiler is not there or fails: its messages.
    pub fn makes<A: AsRef<OsStr>>(
        self,
        file: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> Result<PathBuf, String> {
        made_by(self.command(), file, args)
    }

    /// A call of it.
    pub fn command(self) -> Command {
        command(&self.words())
    }
}

/// A command of one or several words.
pub fn command(words: &str) -> Command {
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Makes `file`, and its folder, with a compiler.
///
/// Tests that run at the same time may make the same file: each sees whole ones only, and programs that run keep theirs.
///
/// # Errors
/// If the compiler is not there or fails: its messages.
pub fn made_by<A: AsRef<OsStr>>(
    mut compiler: Command,
    file: &Path,
    args: impl IntoIterator<Item = A>,
) -> Result<PathBuf, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut fresh = file.to_owned().into_os_string();
    fresh.push(format!(".{}-{number}.new", std::process::id()));
    compiler.args(args).arg("-o").arg(&fresh);
    let words = format!("{compiler:?}");
    let failed = |e: std::io::Error| format!("{words}: {e}");
    fs::create_dir_all(file.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    let output = compiler.output().map_err(failed)?;
    if !output.status.success() {
        return Err(format!("{words}:\n{}", text(&output.stderr)));
    }
    fs::rename(&fresh, file).map_err(failed)?;
    Ok(file.to_owned())
}
