//! Variables whose names are nearly those of settings. A misspelt setting has no effect, and nobody would notice.

use shmem_node::contract;
use shmem_node::settings::TABLE;

/// Names that users may guess, or know from other libraries, and the settings here.
const ELSEWHERE: [(&str, &str); 3] = [
    ("SHMEM_HEAP", "SHMEM_SYMMETRIC_SIZE"),
    ("SHMEM_HEAP_SIZE", "SHMEM_SYMMETRIC_SIZE"),
    ("SHMEM_SYMMETRIC_HEAP_SIZE", "SHMEM_SYMMETRIC_SIZE"),
];

/// Most letters that are missing, too many, wrong or exchanged in a name of this length, without its beginning.
fn most_mistakes(len: usize) -> usize {
    match len {
        0..=4 => 0,
        5..=8 => 1,
        _ => 2,
    }
}

/// What follows `SHMEM_` or `SMA_`.
fn stem(name: &str) -> Option<&str> {
    name.strip_prefix("SHMEM_")
        .or_else(|| name.strip_prefix("SMA_"))
}

/// The notes for a user who has set these variables.
pub(crate) fn notes<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut meant: Vec<_> = names
        .into_iter()
        .filter_map(|name| Some((name, nearest(name)?)))
        .collect();
    meant.sort_unstable();
    meant.dedup();
    let note = |(name, setting)| {
        format!(
            "{name} is no setting of this library; did you mean {setting}? (shmrun --settings lists them)"
        )
    };
    meant.into_iter().map(note).collect()
}

/// The setting with nearly this name, unless the name is known. People seldom mistake the first letter.
fn nearest(name: &str) -> Option<&'static str> {
    let settings = || TABLE.iter().flat_map(|s| [Some(s.name), s.alias]).flatten();
    let typed = stem(name)?;
    if contract::is_place(name.as_bytes()) || settings().any(|setting| setting == name) {
        return None;
    }
    let elsewhere = ELSEWHERE.iter().find(|(other, _)| *other == name);
    let near = settings()
        .filter(|setting| stem(setting).is_some_and(|it| it.chars().next() == typed.chars().next()))
        .map(|setting| (strsim::osa_distance(name, setting), setting))
        .filter(|&(mistakes, _)| mistakes <= most_mistakes(typed.len()))
        .min()
        .map(|(_, setting)| setting);
    near.or(elsewhere.map(|&(_, setting)| setting))
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
            // Of programs and of other libraries.
            "SHMEM_HOME",
            "SHMEM_PORT",
            "SHMEM_CC",
            "SHMEM_TRACE",
            "SHMEM_MPI",
            "SHMEM_HEAP_SIZE",
        ];
        let notes = notes(names);
        assert_eq!(notes.len(), 4, "{notes:#?}");
        assert!(notes[0].starts_with("SHMEM_CONENCT is no setting of this library"));
        assert!(notes[0].contains("did you mean SHMEM_CONNECT?"));
        assert!(notes[1].starts_with("SHMEM_HEAP_SIZE"));
        assert!(notes[1].contains("did you mean SHMEM_SYMMETRIC_SIZE?"));
        assert!(notes[2].contains("did you mean SHMEM_SYMMETRIC_SIZE?"));
        assert!(notes[3].contains("did you mean SMA_SYMMETRIC_SIZE?"));
    }
}
