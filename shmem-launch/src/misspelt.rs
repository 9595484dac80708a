//! Variables whose names are nearly those of settings. A misspelt setting changes nothing, and nobody would notice.

use shmem_node::contract;
use shmem_node::settings::TABLE;

/// Most letters that are missing, too many, wrong or exchanged.
const MOST_MISTAKES: usize = 2;

/// What to tell a user who has set these variables.
pub(crate) fn notes<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut meant: Vec<_> = names
        .into_iter()
        .filter_map(|name| Some((name, nearest(name)?)))
        .collect();
    meant.sort_unstable();
    meant.dedup();
    let note = |(name, setting)| {
        format!(
            "{name} is no setting and changes nothing; did you mean {setting}? (shmrun --settings lists them)"
        )
    };
    meant.into_iter().map(note).collect()
}

/// The setting with nearly this name, unless the name is known.
fn nearest(name: &str) -> Option<&'static str> {
    let settings = || TABLE.iter().flat_map(|s| [Some(s.name), s.alias]).flatten();
    let ours = name.starts_with("SHMEM_") || name.starts_with("SMA_");
    if !ours || contract::is_place(name.as_bytes()) || settings().any(|setting| setting == name) {
        return None;
    }
    let mistakes = |setting| strsim::osa_distance(name, setting);
    settings()
        .map(|setting| (mistakes(setting), setting))
        .filter(|&(mistakes, _)| mistakes <= MOST_MISTAKES)
        .min()
        .map(|(_, setting)| setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_settings_are_told_from_nearly_such_ones() {
        let names = [
            "SHMEM_SYMETRIC_SIZE",
            "SHMEM_SYMMETRIC_SIZE",
            "SHMEM_CONENCT",
            "SMA_SYMMETRIC_SIZ",
            "SHMEM_OF_MY_PROGRAM",
            "SYMMETRIC_SIZE",
            "SHMEM_LOCAL_RANK",
        ];
        let notes = notes(names);
        assert_eq!(notes.len(), 3, "{notes:#?}");
        assert!(notes[0].starts_with("SHMEM_CONENCT is no setting"));
        assert!(notes[0].contains("did you mean SHMEM_CONNECT?"));
        assert!(notes[1].contains("did you mean SHMEM_SYMMETRIC_SIZE?"));
        assert!(notes[2].contains("did you mean SMA_SYMMETRIC_SIZE?"));
    }

    #[test]
    fn settings_are_not_near_each_other_in_vain() {
        for setting in TABLE {
            assert_eq!(nearest(setting.name), None);
        }
    }
}
