//! Heaps registered at once and in parts: the same results, and what of them is registered.

use shmem_tests::{Job, text};

/// The registered memory of a PE in MiB: minimum, mean and maximum.
fn registered(choice: &str, transport: &str, options: &str, program: &[&str]) -> [f64; 3] {
    let name = "memory of the heap registered";
    let shmrun = env!("CARGO_BIN_EXE_shmrun-under-test");
    let report = Job::new(shmrun, &format!("{options} --report -"), program)
        .env("SHMEM_HEAP_REGISTER", choice)
        .env("SHMEM_TRANSPORT", transport)
        .succeed();
    let line = report.lines().find(|l| l.starts_with(name));
    // What is 0 everywhere is left out.
    let Some(line) = line else { return [0.0; 3] };
    let words: Vec<_> = line[name.len()..].split_whitespace().collect();
    std::array::from_fn(|i| {
        assert_eq!(words[2 * i + 1], "MiB", "{line}");
        words[2 * i].parse().expect("a number")
    })
}

/// A heap of 256 MiB has parts of 1, 4, 16, 64 and 171 MiB, after the runtime's own of 4 MiB that only
/// leaders of nodes use.
#[test]
fn only_what_is_allocated_is_registered() {
    let hello = [env!("CARGO_BIN_EXE_hello-under-test")];
    let growing = [
        env!("CARGO_BIN_EXE_conformance"),
        "growth_while_connected",
        "first_contact_after_growth",
    ];
    for transport in ["rc", "xrc"] {
        let of = |choice, program| registered(choice, transport, "-n 4 --nodes 2", program);
        assert_eq!(of("grow", &hello), [1.0, 3.0, 5.0]);
        // 1 + 5 + 17 MiB and a little reach into the fourth part of the heap.
        assert_eq!(of("grow", &growing), [85.0, 87.0, 89.0]);
        for choice in ["whole", "auto", "odp"] {
            assert_eq!(of(choice, &hello), [260.0, 260.0, 260.0]);
        }
    }
    assert_eq!(registered("grow", "rc", "-n 4", &growing), [0.0; 3]);
}

#[test]
fn examples_come_to_the_same_results_in_parts() {
    for options in ["-n 2 --nodes 2", "-n 13 --nodes 5"] {
        for program in [
            env!("CARGO_BIN_EXE_ring-under-test"),
            env!("CARGO_BIN_EXE_histogram-under-test"),
            env!("CARGO_BIN_EXE_heat2d-under-test"),
        ] {
            let all = registered("grow", "rc", options, &[program]);
            assert!(all[0] >= 1.0, "{program} {options}: {all:?}");
        }
    }
}

/// Alone in its job, the check finds nothing connected but leaders.
#[test]
fn a_first_contact_may_come_after_growth() {
    for options in ["-n 4 --nodes 2", "-n 6 --nodes 3"] {
        for transport in ["rc", "xrc"] {
            let program = [
                env!("CARGO_BIN_EXE_conformance"),
                "first_contact_after_growth",
            ];
            let all = registered("grow", transport, options, &program);
            assert_eq!((all[0], all[2]), (5.0, 9.0), "{options}");
        }
    }
}

#[test]
fn an_unknown_choice_is_refused() {
    let shmrun = env!("CARGO_BIN_EXE_shmrun-under-test");
    let hello = env!("CARGO_BIN_EXE_hello-under-test");
    let job = Job::new(shmrun, "-n 2 --nodes 2", &[hello]).env("SHMEM_HEAP_REGISTER", "some");
    let output = job.output();
    assert!(!output.status.success());
    let text = text(&output.stderr);
    assert!(text.contains("auto, whole, grow or odp"), "{text}");
}
