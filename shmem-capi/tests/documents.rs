//! The headers and the coverage page in the repository are those that the table gives.

use std::path::Path;
use std::{env, fs};

use shmem_table::routines::chapters;

/// Compares a file with what it should be, or writes it if asked to.
fn check(path: &Path, text: &str) {
    let there = fs::read_to_string(path).unwrap_or_default();
    if there != text && env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().expect("a file in a folder"))
            .expect("a folder can be made");
        fs::write(path, text).expect("a file of the repository can be written");
        return;
    }
    assert!(
        there == text,
        "{} is stale: run UPDATE_DOCS=1 cargo test -p shmem-capi",
        path.display()
    );
}

#[test]
fn headers_are_up_to_date() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for header in shmem_table::headers::headers() {
        check(&include.join(header.name), &header.text);
    }
}

#[test]
fn coverage_page_is_up_to_date() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    check(
        &docs.join("spec-coverage.md"),
        &shmem_table::coverage::page(),
    );
}

// `names` uses the items of crate `shmem` that the page names. One that does not exist does not compile:
// then the line of the table has to say which does the same (`.rust`).
include!(concat!(env!("OUT_DIR"), "/rust_names.rs"));

#[test]
fn rust_names_exist() {
    names();
}

#[test]
fn tests_that_the_page_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for chapter in chapters() {
        assert!(!chapter.tests.is_empty(), "{} is not tested", chapter.title);
        for test in chapter.tests {
            assert!(root.join(test).is_file(), "{test} does not exist");
        }
    }
}
