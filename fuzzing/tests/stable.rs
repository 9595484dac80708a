//! Every fuzz target without a fuzzer: its seeds, its corpus, and random mutations of both.
//!
//! `SHMEM_FUZZ_RUNS=100000` runs more mutations per target, `SHMEM_SIM_SEED=n` other ones.

use std::panic::catch_unwind;
use std::path::Path;

use shmem_fuzzing::{TARGETS, Target};
use shmem_ib::rng::Rng;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let mut inputs = (target.seeds)();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    if let Ok(entries) = std::fs::read_dir(directory) {
        let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
        paths.sort();
        inputs.extend(paths.iter().map(|path| std::fs::read(path).unwrap()));
    }
    inputs
}

/// A few changes such as a fuzzer makes.
fn mutate(rng: &mut Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
    let pick = |rng: &mut Rng| inputs[rng.below(inputs.len() as u64) as usize].clone();
    let mut bytes = pick(rng);
    for _ in 0..=rng.below(6) {
        let len = bytes.len() as u64;
        let at = rng.below(len.max(1)) as usize;
        match rng.below(8) {
            0..3 if len > 0 => bytes[at] = rng.next_u32() as u8,
            3 if len > 0 => bytes[at] ^= 1 << rng.below(8),
            4 => bytes.truncate(at),
            5 if len > 0 => {
                bytes.remove(at);
            }
            6 => bytes.insert(at.min(bytes.len()), rng.next_u32() as u8),
            _ => {
                let other = pick(rng);
                let from = rng.below(other.len().max(1) as u64) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from.min(other.len())..]);
            }
        }
    }
    bytes
}

fn run(name: &str) {
    let target = TARGETS.iter().find(|t| t.name == name).unwrap();
    let inputs = inputs(target);
    assert!(!inputs.is_empty());
    let seed = number("SHMEM_SIM_SEED").unwrap_or(1);
    let runs = number("SHMEM_FUZZ_RUNS").unwrap_or(1500);
    let mut rng = Rng::new(seed);
    let mutations = (0..runs).map(|_| mutate(&mut rng, &inputs));
    for input in inputs.clone().into_iter().chain(mutations) {
        let body = target.body;
        if catch_unwind(|| body(&input)).is_err() {
            panic!("target {name}, SHMEM_SIM_SEED={seed}, input {input:02x?}");
        }
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
    packet connection_message ud_address owner_message pmi2 pmi_tree process_mapping launch_frame
    settings verbs
}
