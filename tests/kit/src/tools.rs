//! Compilers and their companions, named by the variables that `make` goes by.

use std::process::Command;

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
