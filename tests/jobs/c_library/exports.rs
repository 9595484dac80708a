//! What `libshmem` exports: the specification's functions and the extensions of the table, with their
//! twins, and nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use shmem_table::routines::{Status, functions};
use shmem_testkit::text;
use shmem_testkit::tools::NM;
use xtask::build::workspace;

use super::toolchain::toolchain;

/// The defined symbols that `nm` lists.
fn defined(library: &Path, options: &[&str]) -> BTreeSet<String> {
    let nm = NM
        .command()
        .args(options)
        .args(["--defined-only", "--extern-only"])
        .arg(library)
        .output()
        .unwrap();
    assert!(nm.status.success(), "{}", text(&nm.stderr));
    text(&nm.stdout)
        .lines()
        .filter_map(
            |line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [_, kind, name] if "TWVDBR".contains(kind) => Some(name.to_owned()),
                _ => None,
            },
        )
        .collect()
}

#[test]
fn the_library_of_pmi_exports_what_its_header_declares() {
    let Some(c) = toolchain() else { return };
    let header = workspace().join("shmem-pmi/c/include/shmem_pmi2.h");
    let header = std::fs::read_to_string(header).unwrap();
    let declared: BTreeSet<String> = header
        .lines()
        .filter_map(|line| line.strip_prefix("int ")?.split_once('('))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert!(declared.len() > 20, "{declared:?}");
    assert_eq!(defined(&c.products.pmi_shared, &["--dynamic"]), declared);
    let archive = defined(&c.products.pmi_archive, &[]);
    assert!(archive.is_superset(&declared), "{archive:?}");
}

/// The functions of the specification by its own list, the six that old programs call, and extensions.
fn demanded() -> BTreeSet<String> {
    let list = workspace().join("shmem-capi/tests/symbols-1.6.txt");
    let list = std::fs::read_to_string(list).unwrap();
    let names = list.lines().filter(|line| !line.starts_with('#'));
    let mut demanded: BTreeSet<String> = names
        .filter_map(|line| line.split_whitespace().last())
        .flat_map(|name| [name.to_owned(), format!("p{name}")])
        .collect();
    assert_eq!(demanded.len(), 2 * (1685 + 103));
    let more = [Status::Removed, Status::Extension];
    let others = functions()
        .into_iter()
        .filter(|(routine, _)| more.contains(&routine.status));
    for (_, function) in others {
        demanded.insert(function.twin());
        demanded.insert(function.proto.name);
    }
    demanded
}

#[test]
fn the_shared_library_exports_all_functions_and_nothing_else() {
    let Some(c) = toolchain() else { return };
    let (demanded, there) = (demanded(), defined(&c.products.shared, &["--dynamic"]));
    let missing: Vec<_> = demanded.difference(&there).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
    let more: Vec<_> = there.difference(&demanded).collect();
    assert!(more.is_empty(), "not in the table: {more:?}");
}

#[test]
fn the_archive_has_all_functions() {
    let Some(c) = toolchain() else { return };
    let (demanded, there) = (demanded(), defined(&c.products.archive, &[]));
    let missing: Vec<_> = demanded.difference(&there).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
    // An archive shows the symbols of all that is in it: those of Rust are not of this kind.
    let ours = |name: &&String| ["sh", "psh"].iter().any(|ours| name.starts_with(ours));
    let more: Vec<_> = there.difference(&demanded).filter(ours).collect();
    assert!(more.is_empty(), "not in the table: {more:?}");
}
