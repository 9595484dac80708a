//! Nothing is missed: the routines that the C tests call are those that there are.

use std::collections::BTreeSet;

use shmem_table::routines::functions;
use shmem_testkit::text;
use shmem_testkit::tools::NM;

use super::toolchain::{sources, toolchain};

/// What an object file calls of others.
fn undefined(object: &std::path::Path) -> BTreeSet<String> {
    let output = NM.command().arg("-u").arg(object).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect()
}

#[test]
fn every_routine_is_called() {
    let Some(c) = toolchain() else { return };
    let mut called = BTreeSet::new();
    for object in c.conformance_objects() {
        called.extend(undefined(object));
    }
    // These are called by programs that begin or end in their own way.
    for name in ["exits", "start_pes", "again", "by_id"] {
        let source = sources().join("programs").join(format!("{name}.c"));
        called.extend(undefined(&c.make(&format!("{name}.o"), &[source], &["-c"])));
    }
    let missed: Vec<String> = functions()
        .into_iter()
        .map(|(_, function)| function.proto.name)
        .filter(|name| !called.contains(name))
        .collect();
    assert!(missed.is_empty(), "no C test calls {missed:?}");
}
