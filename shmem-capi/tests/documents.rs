//! The headers and the coverage page in the repository are those that the table gives.

use std::path::Path;

use shmem_table::routines::chapters;
use shmem_testkit::generated::is_current;

#[test]
fn headers_are_up_to_date() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for header in shmem_table::headers::headers() {
        is_current(include.join(header.name), &header.text);
    }
}

#[test]
fn coverage_page_is_up_to_date() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    is_current(
        docs.join("spec-coverage.md"),
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
