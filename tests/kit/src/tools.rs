//! Compilers and their companions, named by the variables that `make` goes by.

use std::process::Command;

/// The variables, and what they mean where they are not set.
const DEFAULTS: [(&str, &str); 5] = [
    ("CC", "cc"),
    ("CXX", "c++"),
    ("NM", "nm"),
    ("OBJCOPY", "objcopy"),
    ("READELF", "readelf"),
];

/// What a variable of these says, which may be several words, such as `ccache gcc`.
///
/// # Panics
/// If there is no such variable.
pub fn name(variable: &str) -> String {
    let default = DEFAULTS.iter().find(|(name, _)| *name == variable);
    let (_, default) = default.unwrap_or_else(|| panic!("no tool has the name {variable}"));
    let set = std::env::var(variable).ok();
    set.filter(|words| !words.trim().is_empty())
        .unwrap_or_else(|| (*default).to_owned())
}

/// The tool of a variable.
///
/// # Panics
/// If there is no such variable.
pub fn tool(variable: &str) -> Command {
    command(&name(variable))
}

/// A command of one or several words.
pub fn command(words: &str) -> Command {
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}
