//! Values that are secret, and so are never shown: not with the settings, not in an error, not by `Debug`.

use std::fmt;

use super::value::ValueError;

/// Fewest characters of a secret.
const SECRET_MIN: usize = 16;

/// What is shown instead.
const INSTEAD: &str = "(withheld)";

/// A secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Withheld(String);

impl Withheld {
    /// What it is.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(INSTEAD)
    }
}

/// A setting's value, given by its variable's name, as it may be shown: of a secret only that there is one.
pub fn shown(name: &str, value: String) -> String {
    let is_secret = matches!(name, "SHMEM_UNIQUE_ID" | "SHMEM_UNIQUE_ID_SECRET");
    match is_secret && value != "none" {
        true => INSTEAD.to_owned(),
        false => value,
    }
}

pub(super) fn name(text: &str) -> Result<Option<String>, ValueError> {
    let text = text.trim();
    let is_none = text.is_empty() || text.eq_ignore_ascii_case("none");
    Ok((!is_none).then(|| text.to_owned()))
}

pub(super) fn text(text: &str) -> Result<Option<Withheld>, ValueError> {
    Ok(name(text)?.map(Withheld))
}

pub(super) fn secret(given: &str) -> Result<Option<Withheld>, ValueError> {
    match text(given)? {
        Some(secret) if secret.0.len() < SECRET_MIN => Err(ValueError::OutOfRange),
        secret => Ok(secret),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Given, Settings};

    #[test]
    fn secrets_are_not_shown() {
        let secret = "0123456789abcdef";
        let of = |name: &str| {
            name.starts_with("SHMEM_UNIQUE_ID")
                .then(|| secret.to_owned())
        };
        let all = |name: &str| match name {
            "SHMEM_UNIQUE_ID_PORT" => None,
            name => of(name),
        };
        let settings = Settings::parse(all).unwrap();
        assert_eq!(settings.unique_id.as_ref().unwrap().reveal(), secret);
        assert_eq!(settings.unique_id_secret.as_ref().unwrap().reveal(), secret);
        let shown = super::super::text(|name| {
            Some(Given {
                value: all(name)?,
                origin: "environment".into(),
            })
        });
        for text in [format!("{settings:?}"), shown] {
            assert!(
                !text.contains(secret) && text.contains("(withheld)"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_short_secret_is_refused_and_not_shown() {
        let set = |name: &str| (name == "SHMEM_UNIQUE_ID_SECRET").then(|| "hunter2".to_owned());
        let text = Settings::parse(set).unwrap_err().to_string();
        assert!(
            text.contains("at least 16") && !text.contains("hunter2"),
            "{text}"
        );
        let none = |name: &str| (name == "SHMEM_UNIQUE_ID_SECRET").then(String::new);
        assert_eq!(Settings::parse(none).unwrap().unique_id_secret, None);
    }
}
