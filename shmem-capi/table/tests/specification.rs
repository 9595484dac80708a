//! The table against the specification's list of functions.

use std::collections::BTreeSet;

use shmem_table::routines::{Status, functions};

/// The names of a kind in the specification's list.
fn listed(kind: &str) -> BTreeSet<String> {
    include_str!("../../tests/symbols-1.6.txt")
        .lines()
        .filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))
        .map(str::to_owned)
        .collect()
}

fn ours(status: Status) -> BTreeSet<String> {
    functions()
        .into_iter()
        .filter(|(routine, _)| routine.status == status)
        .map(|(_, function)| function.proto.name)
        .collect()
}

#[test]
fn no_function_is_missing_or_too_many() {
    for (kind, status) in [
        ("current", Status::Current),
        ("deprecated", Status::Deprecated),
    ] {
        let (listed, ours) = (listed(kind), ours(status));
        let missing: Vec<_> = listed.difference(&ours).collect();
        let extra: Vec<_> = ours.difference(&listed).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{kind}: missing {missing:?}, too many {extra:?}"
        );
    }
    assert_eq!(listed("current").len(), 1685);
    assert_eq!(listed("deprecated").len(), 103);
}

#[test]
fn names_of_functions_say_whose_they_are() {
    for (routine, function) in functions() {
        let name = &function.proto.name;
        let extension = name.starts_with("shmemx_");
        assert_eq!(routine.status == Status::Extension, extension, "{name}");
    }
}

#[test]
fn no_function_is_there_twice() {
    let mut seen = BTreeSet::new();
    for (_, function) in functions() {
        let name = function.proto.name;
        assert!(seen.insert(name.clone()), "{name} twice");
    }
}
