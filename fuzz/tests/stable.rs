//! Every fuzz target without a fuzzer: its seeds, its corpus, and random mutations of both.
//!
//! `SHMEM_FUZZ_RUNS=100000` runs more mutations per target, `SHMEM_SIM_SEED=n` other ones.

use std::panic::catch_unwind;
use std::path::Path;

use shmem_fuzz::TARGETS;
use shmem_fuzz::mutation::{inputs, mutate};
use shmem_ib::rng::Rng;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(name: &str) {
    let target = TARGETS.iter().find(|t| t.name == name).unwrap();
    let inputs = inputs(target);
    assert!(!inputs.is_empty());
    let seed = number("SHMEM_SIM_SEED").unwrap_or(1);
    let runs = number("SHMEM_FUZZ_RUNS").unwrap_or(1500);
    let mut rng = Rng::new(seed);
    let mutations = (0..runs).map(|_| {
        let mut bytes = Vec::new();
        mutate(&mut rng, &inputs, &mut bytes);
        bytes
    });
    for input in inputs.clone().into_iter().chain(mutations) {
        let body = target.body;
        if catch_unwind(|| body(&input)).is_err() {
            panic!("target {name}, SHMEM_SIM_SEED={seed}, input {input:02x?}");
        }
    }
}

/// Names in a text: what stands between `before` and `after` in a line.
fn named<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| Some(line.strip_prefix(before)?.split_once(after)?.0))
        .collect()
}

/// Each has a program for libFuzzer, and a row in the page that says how to run it.
#[test]
fn every_list_of_targets_has_all() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let targets: Vec<_> = TARGETS.iter().map(|t| t.name).collect();
    let page = read(&fuzz.join("README.md"));
    let manifest = read(&fuzz.join("libfuzzer/Cargo.toml"));
    for (place, names) in [
        ("README.md", named(&page, "| `", "`")),
        (
            "libfuzzer/Cargo.toml",
            named(&manifest, "path = \"fuzz_targets/", ".rs\""),
        ),
    ] {
        assert_eq!(names, targets, "fuzz/{place}");
    }
    let sources = std::fs::read_dir(fuzz.join("libfuzzer/fuzz_targets")).unwrap();
    let mut programs = Vec::new();
    for source in sources.map(|entry| entry.unwrap().path()) {
        let name = source.file_stem().unwrap().to_str().unwrap().to_owned();
        let calls = format!("::{name}(data));");
        assert!(read(&source).contains(&calls), "{}", source.display());
        programs.push(name);
    }
    programs.sort();
    let mut sorted = targets;
    sorted.sort_unstable();
    assert_eq!(programs, sorted, "fuzz/libfuzzer/fuzz_targets");
}

macro_rules! targets {
    ($($name:ident)*) => {
        $( #[test] fn $name() { run(stringify!($name)); } )*

        #[test]
        fn all_targets_are_here() {
            let names = [$(stringify!($name)),*];
            assert!(TARGETS.iter().map(|t| t.name).eq(names));
        }
    };
}

targets! {
    packet connection_message ud_address owner_message hca_stream pmi1 pmi2 pmi_tree pmi_question pmix_message
    pmix_server pmi_server process_mapping launch_frame settings verbs
}
