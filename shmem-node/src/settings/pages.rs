//! The table as text: for `shmrun --settings` and the like, and for `docs/env.md`.

use std::fmt::Write as _;

use super::{TABLE, shown};

/// A value in force, and where it comes from, as a user would say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The value.
    pub value: String,
    /// Where it comes from.
    pub origin: String,
}

impl Given {
    /// What the environment of this process has.
    pub fn by_environment(name: &str) -> Option<Self> {
        Some(Self {
            value: std::env::var_os(name)?.to_string_lossy().into_owned(),
            origin: "environment".to_owned(),
        })
    }
}

/// The table with the values in force, which `lookup` gives, and where they come from: for `shmrun --settings`,
/// `shmem-info --settings` and `SHMEM_INFO`.
pub fn text(lookup: impl Fn(&str) -> Option<Given>) -> String {
    let mut out = String::new();
    let mut group = None;
    for row in TABLE {
        if group.replace(row.group) != Some(row.group) {
            let between = if out.is_empty() { "" } else { "\n" };
            let _ = writeln!(out, "{between}{}:", row.group.title());
        }
        let by_alias = || {
            let alias = row.alias?;
            let given = lookup(alias)?;
            let origin = format!("{}, as {alias}", given.origin);
            Some(Given { origin, ..given })
        };
        let mut given = lookup(row.name).or_else(by_alias).unwrap_or_else(|| Given {
            value: row.default.to_owned(),
            origin: "default".to_owned(),
        });
        given.value = shown(row.name, given.value);
        let _ = writeln!(
            out,
            "{}={}  ({})\n    {}\n    Value: {}.",
            row.name, given.value, given.origin, row.help, row.form
        );
    }
    out
}

/// The table as Markdown: the body of `docs/env.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Settings\n\nEnvironment variables that `shmrun` and every PE read. \
         `shmrun --settings` prints the values in force.\n",
    );
    let mut group = None;
    for row in TABLE {
        if group.replace(row.group) != Some(row.group) {
            let _ = writeln!(
                out,
                "\n## {}\n\n| variable | default | value | meaning |\n|---|---|---|---|",
                row.group.title()
            );
        }
        let alias = row
            .alias
            .map(|a| format!(" (or `{a}`)"))
            .unwrap_or_default();
        let _ = writeln!(
            out,
            "| `{}`{alias} | `{}` | {} | {} |",
            row.name, row.default, row.form, row.help
        );
    }
    out
}
