//! Arrows between files go one way: no circle, and none against the order that a crate states.
//!
//! An arrow means that a file uses a name which the other defines, also through a `pub use` elsewhere. What stands in
//! the file of a module is at hand inside of the module, so the way up to it is no arrow. Tests are left out.

mod names;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use names::{Arrows, Crate};
use xtask::build::workspace;

/// Roots of all libraries and programs.
fn roots(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("a name").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        let programs = folder.ends_with("bin") || folder.ends_with("programs");
        // Models of what happens between threads are made of files of the crates.
        if path.is_dir() && !["target", ".git", "loom"].contains(&&*name) {
            roots(&path, out);
        } else if matches!(&*name, "lib.rs" | "main.rs") || (programs && name.ends_with(".rs")) {
            out.push(path);
        }
    }
}

/// A file by its path in the repository.
fn short(path: &Path) -> String {
    let path = path.strip_prefix(workspace()).unwrap_or(path);
    path.display().to_string()
}

/// Sets of files each of which reaches all of its set.
fn circles(arrows: &Arrows) -> BTreeSet<BTreeSet<usize>> {
    let reached = |from: usize| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(file) = next.pop() {
            let targets = arrows.range((file, 0)..=(file, usize::MAX));
            next.extend(
                targets
                    .map(|((_, to), _)| *to)
                    .filter(|to| seen.insert(*to)),
            );
        }
        seen
    };
    let files: BTreeSet<_> = arrows.keys().map(|(from, _)| *from).collect();
    let reach: BTreeMap<_, _> = files.iter().map(|file| (*file, reached(*file))).collect();
    let reaches = |from, to| reach.get(from).is_some_and(|reach| reach.contains(to));
    let circle = |file| {
        files
            .iter()
            .filter(|other| reaches(file, other) && reaches(other, file))
            .copied()
            .collect()
    };
    files
        .iter()
        .filter(|file| reaches(file, file))
        .map(circle)
        .collect()
}

/// All circles of a crate; the report names both sides and what one takes from the other.
fn report(found: &Crate) -> String {
    let arrows = found.arrows();
    let name = |file: usize| short(&found.files[file]);
    let mut report = String::new();
    for circle in circles(&arrows) {
        writeln!(report, "{} files use each other in a circle:", circle.len()).unwrap();
        for ((from, to), names) in &arrows {
            if circle.contains(from) && circle.contains(to) {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                writeln!(
                    report,
                    "  {} -> {}: {}",
                    name(*from),
                    name(*to),
                    names.join(", ")
                )
                .unwrap();
            }
        }
    }
    report
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let mut all = Vec::new();
    roots(workspace(), &mut all);
    assert!(all.len() > 50, "the crates were not found");
    let report: String = all.iter().map(|root| report(&Crate::read(root))).collect();
    assert!(report.is_empty(), "{report}");
}

/// The order of modules that a `lib.rs` states by groups of `mod` lines, from the bottom up.
#[test]
fn modules_use_those_of_their_group_and_of_groups_before() {
    let mut all = Vec::new();
    roots(workspace(), &mut all);
    let mut ordered = 0;
    for root in all {
        let text = fs::read_to_string(&root).expect("text");
        let Some((_, modules)) = text.split_once("// The modules in groups, from the bottom up")
        else {
            continue;
        };
        ordered += 1;
        let found = Crate::read(&root);
        let groups: Vec<Vec<&str>> = modules
            .split("\n\n")
            .map(|group| {
                group
                    .lines()
                    .filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'))
                    .collect()
            })
            .collect();
        let group = |file: usize| {
            let path = found.files[file]
                .strip_prefix(root.parent().expect("a folder"))
                .expect("a file of the crate");
            let first =
                Path::new(path.components().next().expect("a name").as_os_str()).with_extension("");
            let at = groups
                .iter()
                .position(|group| group.iter().any(|name| first == Path::new(name)));
            at.map(|at| (at, first.display().to_string()))
        };
        let mut between: BTreeMap<(String, String), String> = BTreeMap::new();
        let mut report = String::new();
        for ((from, to), names) in &found.arrows() {
            let arrow = format!(
                "{} -> {}",
                short(&found.files[*from]),
                short(&found.files[*to])
            );
            let (Some((low, from)), Some((high, to))) = (group(*from), group(*to)) else {
                continue;
            };
            if low < high {
                writeln!(report, "{arrow}: {names:?}: {from} stands before {to}").unwrap();
            } else if from != to {
                if let Some(back) = between.get(&(to.clone(), from.clone())) {
                    writeln!(report, "{arrow}: {names:?}, and {back}").unwrap();
                }
                between.insert((from, to), arrow);
            }
        }
        assert!(report.is_empty(), "{}:\n{report}", short(&root));
    }
    assert!(ordered > 0, "no crate states an order");
}

/// A circle through a name that a third file hands on.
#[test]
fn a_circle_is_found_and_both_sides_are_named() {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("circle-{}", std::process::id()));
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod one; mod two; mod three; pub use one::One;");
    write(
        "one/mod.rs",
        "mod inner; pub use inner::One; pub(crate) struct Shared;",
    );
    write(
        "one/inner.rs",
        "use super::Shared; pub struct One(Shared, crate::two::Two);",
    );
    write(
        "two.rs",
        "use crate::three::*; pub struct Two(Box<One>);\n#[cfg(test)] mod tests { use crate::one::Shared; }",
    );
    write("three.rs", "pub use crate::One;");
    let found = Crate::read(&folder.join("lib.rs"));
    let report = report(&found);
    fs::remove_dir_all(&folder).unwrap();
    let [one, two] = ["one/inner.rs", "two.rs"].map(|name| short(&folder.join(name)));
    assert_eq!(
        report,
        format!(
            "2 files use each other in a circle:\n  {one} -> {two}: Two\n  {two} -> {one}: One\n"
        )
    );
}
