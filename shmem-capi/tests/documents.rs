//! The headers and the coverage page in the repository are those that the table gives.

use std::collections::BTreeSet;
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

/// The items that the page names exist, as far as the text of the library tells.
#[test]
fn rust_names_exist() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shmem-core/src");
    let mut files = Vec::new();
    read(&core, &mut files);
    let has = |text: &str, word: &str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|w| w == word)
    };
    let reexported = |file: &str, item: &str| {
        let text = fs::read_to_string(core.join(file)).expect("a file of the library");
        has(&text, item)
    };
    let names: BTreeSet<&str> = chapters()
        .iter()
        .flat_map(|chapter| &chapter.routines)
        .flat_map(|routine| routine.rust.split(", "))
        .filter(|name| !name.is_empty())
        .collect();
    for name in names {
        let found = match name.split("::").collect::<Vec<_>>()[..] {
            [item] => reexported("lib.rs", item),
            ["raw", item] => reexported("raw.rs", item),
            [.., ty, method] => files.iter().any(|text| {
                let of_type = text.contains("impl") && has(text, ty);
                of_type && (has(text, method) && text.contains("fn "))
            }),
            [] => false,
        };
        assert!(found, "the table names shmem::{name}, which does not exist");
    }
}

/// The texts of all Rust files below a folder.
fn read(folder: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            read(&path, files);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(fs::read_to_string(&path).expect("a text file"));
        }
    }
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
