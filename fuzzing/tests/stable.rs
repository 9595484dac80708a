//! Every fuzz target without a fuzzer: its seeds, its corpus, and random mutations of both.
//!
//! `SHMEM_FUZZ_RUNS=100000` runs more mutations per target, `SHMEM_SIM_SEED=n` other ones.

use std::panic::catch_unwind;
use std::path::Path;

use shmem_fuzzing::TARGETS;
use shmem_fuzzing::mutation::{inputs, mutate};
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

/// Each has a program for libFuzzer, and a row in the page that says how to run it.
#[test]
fn all_targets_are_under_libfuzzer() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let page = std::fs::read_to_string(fuzz.join("README.md")).unwrap();
    let rows: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let names: Vec<_> = TARGETS.iter().map(|t| t.name).collect();
    assert_eq!(rows, names);
    for name in names {
        let source = fuzz.join("fuzz_targets").join(name).with_extension("rs");
        let source = std::fs::read_to_string(&source).unwrap_or_default();
        assert!(source.contains(&format!("{name}(")), "{name}: {source}");
    }
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
    packet connection_message ud_address owner_message pmi1 pmi2 pmi_tree pmi_question pmi_server
    process_mapping launch_frame settings verbs
}
