//! The settings; their one table is in `table.rs`.
//!
//! From it come the parsing of the environment, `shmrun --settings`, `docs/env.md` and the typed
//! [`Settings`] that the rest of the runtime uses. Nobody else reads a `SHMEM_*` variable.

mod choices;
mod hca;
mod pages;
mod soft;
mod table;
mod value;
mod withheld;

pub use choices::{
    AllocationChoice, Atomics, Batch, Connect, CoreFile, CtxQps, HeapCommit, HeapPages,
    HeapRegister, LauncherChoice, Pmi, PmiCache, STORE_MAX, Spawn, Spin, StaticsSize, StoreKind,
    Transport,
};
pub use hca::{HcaChoice, HcaPort};
pub use pages::{Given, markdown, text};
pub use soft::{Faults, StreamChoice};
pub use table::{Settings, TABLE};
pub use value::ValueError;
pub use withheld::{Withheld, shown};

use crate::contract;
use crate::sys;
use std::hash::{DefaultHasher, Hasher};
use std::sync::OnceLock;

/// Who has a use for a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Whoever runs a program.
    Usual,
    /// Whoever tunes what PEs of different nodes talk over.
    Network,
    /// Whoever looks after a cluster, or starts jobs by other means than `shmrun`.
    Site,
    /// Whoever looks for a mistake.
    Diagnosis,
    /// Tests of this project, and comparisons with what papers describe.
    Tests,
}

impl Group {
    /// All groups, in the order of the documentation.
    pub const ALL: [Self; 5] = [
        Self::Usual,
        Self::Network,
        Self::Site,
        Self::Diagnosis,
        Self::Tests,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Usual => "Usual",
            Self::Network => "Network",
            Self::Site => "Clusters and launchers",
            Self::Diagnosis => "Diagnosis",
            Self::Tests => "Tests and comparisons",
        }
    }
}

/// Settings that there were once, and what to do instead.
const DROPPED: [(&str, &str); 3] = [
    (
        "SHMEM_LINGER",
        "a PE that leaves waits 500 ms for silent peers; unset it",
    ),
    (
        "SHMEM_RNR_RETRY",
        "messages that find no receive are sent again without end; unset it",
    ),
    (
        "SHMEM_RNR_TIMEOUT",
        "peers wait 160 us before they send such a message again; unset it",
    ),
];

/// One row of the table, for help and documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Who has a use for it.
    pub group: Group,
    /// Environment variable.
    pub name: &'static str,
    /// Older name that is still read when `name` is absent.
    pub alias: Option<&'static str>,
    /// Value when neither is set, as a user would write it.
    pub default: &'static str,
    /// What a value looks like.
    pub form: &'static str,
    /// What it does.
    pub help: &'static str,
}

impl Setting {
    /// The value that `lookup` has for this setting, or the default.
    fn value<T>(
        &self,
        parse: fn(&str) -> Result<T, ValueError>,
        lookup: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Result<T, SettingsError> {
        let (name, text) = self.text(lookup);
        parse(&text).map_err(|reason| self.rejects(name, text, reason))
    }

    /// The name that is set, and its text; without any, the default.
    fn text(&self, lookup: &mut dyn FnMut(&str) -> Option<String>) -> (&'static str, String) {
        let mut names = [Some(self.name), self.alias].into_iter().flatten();
        names
            .find_map(|name| Some((name, lookup(name)?)))
            .unwrap_or_else(|| (self.name, self.default.to_owned()))
    }

    fn rejects(&self, name: &'static str, text: String, reason: ValueError) -> SettingsError {
        SettingsError {
            name,
            value: shown(name, text),
            reason,
            form: self.form,
            default: self.default,
        }
    }
}

/// A variable whose value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value}: {reason}{}", self.expected())]
pub struct SettingsError {
    /// The variable.
    pub name: &'static str,
    /// What it was set to.
    pub value: String,
    /// Why that does not do.
    pub reason: ValueError,
    /// What would.
    pub form: &'static str,
    /// The value without it.
    pub default: &'static str,
}

impl SettingsError {
    /// What would do, if any value would.
    fn expected(&self) -> String {
        match self.reason {
            ValueError::Dropped(_) => String::new(),
            _ => format!("; expected {} (default {})", self.form, self.default),
        }
    }
}

impl Settings {
    /// Reads the settings through `lookup`, which gives a variable's value.
    ///
    /// # Errors
    /// The first variable whose value cannot be parsed, one that does not go with another, or one that there was once.
    pub fn parse(mut lookup: impl FnMut(&str) -> Option<String>) -> Result<Self, SettingsError> {
        for (name, instead) in DROPPED {
            if let Some(value) = lookup(name) {
                return Err(SettingsError {
                    name,
                    value,
                    reason: ValueError::Dropped(instead),
                    form: "",
                    default: "",
                });
            }
        }
        let settings = Self::read(&mut lookup)?;
        settings.check()?;
        Ok(settings)
    }

    /// Whether the values go together.
    fn check(&self) -> Result<(), SettingsError> {
        if self.atomics == Atomics::Owner && self.transport == Transport::Xrc {
            let name = "SHMEM_ATOMICS";
            let row = TABLE.iter().find(|row| row.name == name);
            let row = row.expect("it is in the table");
            return Err(SettingsError {
                name,
                value: "owner".to_owned(),
                reason: ValueError::Conflict(
                    "SHMEM_TRANSPORT=xrc, whose messages do not reach every PE",
                ),
                form: row.form,
                default: row.default,
            });
        }
        Ok(())
    }

    /// Reads the process environment.
    ///
    /// # Errors
    /// The first variable whose value cannot be parsed.
    pub fn from_env() -> Result<Self, SettingsError> {
        match REMEMBERED.get() {
            Some((mark, settings)) if *mark == environment_mark() => Ok(settings.clone()),
            _ => Self::read_env(),
        }
    }

    fn read_env() -> Result<Self, SettingsError> {
        Self::parse(|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }

    /// Reads the environment now, so that [`from_env`](Self::from_env) need not while it stays as it is:
    /// for a template, whose PEs all find the same.
    pub fn remember_env() {
        if let Ok(settings) = Self::read_env() {
            let _ = REMEMBERED.set((environment_mark(), settings));
        }
    }
}

/// What the environment of [`environment_mark`] sets.
static REMEMBERED: OnceLock<(u64, Settings)> = OnceLock::new();

/// How the names of all settings begin.
const PREFIXES: [&[u8]; 2] = [b"SHMEM_", b"SMA_"];

/// A number that differs, for all that can be expected, if any setting of the environment does.
fn environment_mark() -> u64 {
    let mut mark = DefaultHasher::new();
    sys::each_variable(|variable| {
        let is_setting = PREFIXES.iter().any(|p| variable.starts_with(p));
        let name = variable.split(|&b| b == b'=').next().unwrap_or_default();
        if is_setting && !contract::is_place(name) {
            mark.write(variable);
            mark.write_u8(0);
        }
    });
    mark.finish()
}

impl Default for Settings {
    fn default() -> Self {
        Self::parse(|_| None).expect("defaults parse")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn with(name: &'static str, value: &'static str) -> Result<Settings, SettingsError> {
        Settings::parse(|n| (n == name).then(|| value.to_owned()))
    }

    #[test]
    fn what_stands_for_the_environment_sees_every_setting() {
        for row in TABLE {
            for name in [Some(row.name), row.alias].into_iter().flatten() {
                let seen = PREFIXES.iter().any(|p| name.as_bytes().starts_with(p));
                assert!(seen && !contract::is_place(name.as_bytes()), "{name}");
            }
        }
    }

    #[test]
    fn defaults_parse() {
        let s = Settings::default();
        assert_eq!(s.symmetric_size, 256 << 20);
        assert_eq!(s.connect, Connect::OnDemand);
        assert_eq!(s.grace, Duration::from_millis(250));
    }

    #[test]
    fn the_alias_counts_only_without_the_name() {
        assert_eq!(
            with("SMA_SYMMETRIC_SIZE", "1g").unwrap().symmetric_size,
            1 << 30
        );
        let both = Settings::parse(|n| match n {
            "SHMEM_SYMMETRIC_SIZE" => Some("2m".into()),
            "SMA_SYMMETRIC_SIZE" => Some("1g".into()),
            _ => None,
        });
        assert_eq!(both.unwrap().symmetric_size, 2 << 20);
        let text = with("SMA_SYMMETRIC_SIZE", "big").unwrap_err().to_string();
        assert!(text.starts_with("SMA_SYMMETRIC_SIZE=big"), "{text}");
    }

    #[test]
    fn a_bad_value_names_variable_value_and_form() {
        let text = with("SHMEM_CONNECT", "maybe").unwrap_err().to_string();
        for part in ["SHMEM_CONNECT=maybe", "ondemand or static"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn contexts_with_their_own_queue_pairs_are_few() {
        let most = |text: &str| {
            let given = |name: &str| (name == "SHMEM_CTX_QPS").then(|| text.to_owned());
            Settings::parse(given).map(|settings| settings.ctx_qps)
        };
        assert_eq!(most(" Auto"), Ok(CtxQps::Auto));
        assert_eq!(
            (most("0"), most("64")),
            (Ok(CtxQps::Most(0)), Ok(CtxQps::Most(64)))
        );
        assert_eq!(most("65").unwrap_err().reason, ValueError::OutOfRange);
        for bad in ["-1", "", "all"] {
            assert_eq!(most(bad).unwrap_err().reason, ValueError::NotANumber);
        }
    }

    #[test]
    fn values_that_exclude_each_other_are_refused() {
        let both = |atomics: &'static str| {
            Settings::parse(|n| match n {
                "SHMEM_TRANSPORT" => Some("xrc".into()),
                "SHMEM_ATOMICS" => Some(atomics.into()),
                _ => None,
            })
        };
        assert!(both("auto").is_ok() && both("hca").is_ok());
        let text = both("owner").unwrap_err().to_string();
        for part in ["SHMEM_ATOMICS=owner", "SHMEM_TRANSPORT=xrc"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_setting_of_former_times_is_refused_with_what_to_do() {
        for (name, _) in DROPPED {
            assert!(TABLE.iter().all(|row| row.name != name));
        }
        let text = with("SHMEM_LINGER", "1s").unwrap_err().to_string();
        assert_eq!(
            text,
            "SHMEM_LINGER=1s: there is no such setting any more: a PE that leaves waits 500 ms for silent peers; unset it"
        );
    }

    #[test]
    fn the_table_is_in_the_order_of_the_groups() {
        let mut groups: Vec<_> = TABLE.iter().map(|row| row.group).collect();
        groups.dedup();
        assert_eq!(groups, Group::ALL);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = TABLE
            .iter()
            .flat_map(|r| r.alias.into_iter().chain([r.name]))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(
            names.len(),
            TABLE.len() + TABLE.iter().filter(|r| r.alias.is_some()).count()
        );
    }

    #[test]
    fn the_settings_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/env.md");
        shmem_testkit::generated::is_current(path, &markdown());
    }

    #[test]
    fn settings_show_their_values() {
        let given = |value: &str| Given {
            value: value.into(),
            origin: "environment".into(),
        };
        let text = text(|n| match n {
            "SHMEM_CONNECT" => Some(given("static")),
            "SMA_INFO" => Some(given("1")),
            _ => None,
        });
        for part in [
            "SHMEM_CONNECT=static  (environment)",
            "SHMEM_INFO=1  (environment, as SMA_INFO)",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            text.contains("SHMEM_SYMMETRIC_SIZE=256M  (default)"),
            "{text}"
        );
    }
}
