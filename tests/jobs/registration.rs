//! Heaps registered at once and in parts: the same results, and what of them is registered.

use shmem_testkit::Job;

use crate::programs::{CONFORMANCE, HELLO, HISTOGRAM, RING, SHMRUN, STEP6_HALO, shmrun};

/// The registered memory of a PE in MiB: minimum, mean and maximum.
fn registered(choice: &str, transport: &str, options: &str, program: &[&str]) -> [f64; 3] {
    let outcome = Job::reported(SHMRUN, options, program)
        .env("SHMEM_HEAP_REGISTER", choice)
        .env("SHMEM_TRANSPORT", transport)
        .run();
    outcome.expect_success();
    let bytes = outcome.report().figure("memory of the heap registered");
    [bytes.min, bytes.mean, bytes.max].map(|bytes| bytes / f64::from(1 << 20))
}

/// A heap of 256 MiB has parts of 1, 4, 16, 64 and 171 MiB, after the runtime's own of 4 MiB that only
/// leaders of nodes use.
#[test]
fn only_what_is_allocated_is_registered() {
    let hello = [HELLO];
    let growing = [
        CONFORMANCE,
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
        for program in [RING, HISTOGRAM, STEP6_HALO] {
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
            let program = [CONFORMANCE, "first_contact_after_growth"];
            let all = registered("grow", transport, options, &program);
            assert_eq!((all[0], all[2]), (5.0, 9.0), "{options}");
        }
    }
}

#[test]
fn an_unknown_choice_is_refused() {
    let job = shmrun("-n 2 --nodes 2", &[HELLO]).env("SHMEM_HEAP_REGISTER", "some");
    let output = job.run();
    assert!(!output.status.success());
    let text = output.stderr;
    assert!(text.contains("auto, whole, grow or odp"), "{text}");
}
