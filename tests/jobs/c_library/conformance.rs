//! Every routine with every type, from C and from C++, on several layouts; a selection of them linked in every way.

use std::fs;
use std::path::{Path, PathBuf};

use shmem_table::routines::functions;
use shmem_testkit::needs::skipped;
use shmem_testkit::tools::OBJCOPY;
use shmem_testkit::{Job, text};

use crate::layouts::{self, Layout};

use super::toolchain::{Toolchain, sources, toolchain, works};

/// A selection, for programs that are linked in another way.
const LINKING: &[&str] = &["linking"];

/// Linked in the usual way, or with more options.
fn program(c: &Toolchain, name: &str, flags: &[&str]) -> PathBuf {
    c.make(name, c.conformance_objects(), flags)
}

fn all_pass(job: Job) {
    let out = job.succeed();
    assert!(out.contains(" checks, 0 failed on "), "{out}");
}

fn passes(layout: &Layout) {
    let Some(c) = toolchain() else { return };
    let job = c.job(layout.options(), &program(c, "conformance", &[]), &[]);
    all_pass(layout.settings(job));
}

// Below these routines is what Rust's have been tested with on many more layouts; what C adds, variables that are symmetric
// above all, depends on how memory is shared and registered.
#[test]
fn on_all_layouts() {
    (0..layouts::PARTS).for_each(|part| layouts::each("c", part, passes));
}

/// Programs find their static variables wherever the linker and the kernel put them.
#[test]
fn linked_in_every_way() {
    let Some(c) = toolchain() else { return };
    let ways: [(&str, &[&str]); 5] = [
        ("conformance-pie", &["-pie", "-Wl,-z,now"]),
        ("conformance-no-pie", &["-no-pie"]),
        ("conformance-no-relro", &["-Wl,-z,norelro"]),
        ("conformance-archive", &["-static-libshmem"]),
        (
            "conformance-archive-no-pie",
            &["-static-libshmem", "-no-pie"],
        ),
    ];
    for (name, flags) in ways {
        let program = program(c, name, flags);
        for options in ["-np 2", "-np 3 --nodes 2"] {
            all_pass(c.job(options, &program, LINKING));
        }
    }
}

/// No dynamic linker at all: everything is in the program.
#[test]
fn linked_statically() {
    let Some(c) = toolchain() else { return };
    for (name, flags) in [
        ("conformance-static", ["-static", "-no-pie"]),
        ("conformance-static-pie", ["-static-pie", "-Wl,-z,now"]),
    ] {
        let program = program(c, name, &flags);
        all_pass(c.job("-np 3 --nodes 2", &program, LINKING));
    }
}

/// The whole test again, calling every routine by its other name.
#[test]
fn by_profiling_names() {
    profiling_names_pass("-np 2");
}

#[test]
#[ignore = "nightly: each run has one node"]
fn by_profiling_names_between_nodes() {
    profiling_names_pass("-np 3 --nodes 2");
}

fn profiling_names_pass(options: &str) {
    let Some(c) = toolchain() else { return };
    if !works("objcopy") {
        return skipped("c", "there is no objcopy");
    }
    let dir = c.conformance_objects()[0]
        .parent()
        .unwrap()
        .join("profiling");
    fs::create_dir_all(&dir).unwrap();
    let names: String = functions()
        .iter()
        .map(|(_, f)| format!("{} {}\n", f.proto.name, f.twin()))
        .collect();
    let list = dir.join("names");
    fs::write(&list, names).unwrap();
    let renamed = |object: &PathBuf| {
        let to = dir.join(object.file_name().unwrap());
        let mut objcopy = OBJCOPY.command();
        objcopy
            .arg("--redefine-syms")
            .arg(&list)
            .arg(object)
            .arg(&to);
        let output = objcopy.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        to
    };
    let objects: Vec<_> = c.conformance_objects().iter().map(renamed).collect();
    let program = c.make("conformance-profiling", &objects, &[]);
    all_pass(c.job(options, &program, &[]));
}

#[test]
fn in_cxx() {
    let Some(c) = toolchain() else { return };
    let source: &Path = &sources().join("cxx.cpp");
    let program = c.make("conformance-cxx", &[source.to_owned()], &[]);
    for options in ["-np 1", "-np 4 --nodes 2"] {
        all_pass(c.job(options, &program, &[]));
    }
}
