//! The facade over PMI in whole jobs: under `shmrun` in every way of speaking, and under MPICH's
//! launcher.
//!
//! The latter is the need `mpich` of `SHMEM_TEST_REQUIRE`.

use shmem_testkit::Job;
use shmem_testkit::launchers::hydra;

use crate::programs::{PMI_PROCESS, PMI_RING, shmrun};

const PROGRAM: &str = PMI_PROCESS;
const EXAMPLE: &str = PMI_RING;

const LAYOUTS: [&str; 4] = ["-n 1", "-n 4", "-n 5 --nodes 2", "-n 6 --nodes 4"];

/// Runs the job and checks that all its processes came to the end, with the server that was meant.
fn all_ok(job: Job, options: &str, server: &str) {
    let out = job.succeed();
    let n: usize = options.split_whitespace().nth(1).unwrap().parse().unwrap();
    for rank in 0..n {
        let line = format!("rank {rank} of {n} ok ({server})");
        assert!(out.contains(&line), "no {line:?} in: {out}");
    }
}

/// Values of `SHMEM_PMI` and the server that they lead to under `shmrun`.
const WAYS: [(&str, &str); 3] = [
    ("auto", "shmrun"),
    ("1", "PMI-1 server"),
    ("2", "PMI-2 server"),
];

fn under_shmrun(what: &str) {
    for options in LAYOUTS {
        for (way, server) in WAYS {
            let job = shmrun(options, &[PROGRAM, what]).env("SHMEM_PMI", way);
            all_ok(job, options, server);
        }
    }
}

#[test]
fn everything_under_shmrun() {
    under_shmrun("all");
}

#[test]
fn threads_under_shmrun() {
    under_shmrun("threads");
}

#[test]
fn direct_exchange_under_shmrun() {
    under_shmrun("direct");
}

#[test]
fn different_lengths_fail_everywhere() {
    under_shmrun("unequal");
}

#[test]
fn spawned_jobs_live_and_talk() {
    for options in ["-n 1", "-n 3 --nodes 2"] {
        for (way, server) in WAYS {
            let job = shmrun(options, &[PROGRAM, "spawn"]).env("SHMEM_PMI", way);
            all_ok(job, options, server);
        }
    }
    if let Some(job) = hydra("-n 2", &[PROGRAM, "spawn"]) {
        all_ok(job, "-n 2", "PMI-1 server");
    }
}

#[test]
fn a_process_is_one_once() {
    under_shmrun("twice");
}

#[test]
fn a_process_that_is_started_again_goes_on_with_the_next_operation() {
    for options in ["-n 3 --respawn 2", "-n 5 --nodes 2 --respawn 2"] {
        for (way, server) in WAYS {
            let job = shmrun(options, &[PROGRAM, "lives"]).env("SHMEM_PMI", way);
            all_ok(job, options, server);
        }
    }
}

/// PMI-1, PMI-2 and PMI-1 over TCP at a server that is not ours.
#[test]
fn everything_under_hydra() {
    for what in ["all", "threads", "direct", "unequal", "twice"] {
        for (options, way, server) in [
            ("-n 1", "auto", "PMI-1 server"),
            ("-n 4", "auto", "PMI-1 server"),
            ("-n 4", "2", "PMI-2 server"),
            ("-n 3 -pmi-port", "auto", "PMI-1 server at PMI_PORT"),
        ] {
            let Some(job) = hydra(options, &[PROGRAM, what]) else {
                return;
            };
            all_ok(job.env("SHMEM_PMI", way), options, server);
        }
    }
}

#[test]
fn abort_ends_the_job_with_its_code() {
    for options in ["-n 1", "-n 4", "-n 4 --nodes 2"] {
        for (way, _) in WAYS {
            let job = shmrun(options, &[PROGRAM, "abort"]).env("SHMEM_PMI", way);
            let output = job.run();
            let err = output.stderr;
            assert_eq!(output.status.code(), Some(7), "{options} {way}: {err}");
            assert!(err.contains("as the test wants it"), "{err}");
        }
    }
    for options in ["-n 3", "-n 3 -pmi-port"] {
        let Some(job) = hydra(options, &[PROGRAM, "abort"]) else {
            return;
        };
        let output = job.run();
        assert_eq!(
            output.status.code(),
            Some(7),
            "{options}: {}",
            output.stderr
        );
    }
}

#[test]
fn a_process_alone_is_a_job() {
    for what in ["all", "threads", "direct", "unequal", "twice"] {
        let out = Job::new(PROGRAM, what, &[]).succeed();
        assert_eq!(out, "rank 0 of 1 ok (no PMI server)\n");
    }
}

#[test]
fn a_launcher_that_is_gone_is_named() {
    let run = |name: &str, value: &str, id: &str| {
        let job = Job::new(PROGRAM, "all", &[]).env(name, value);
        let outcome = job.envs([("PMI_ID", id), ("PMI_SIZE", "4")]).run();
        assert_eq!(outcome.code(), 3);
        outcome.stderr
    };
    let closed = run("PMI_FD", "77", "2");
    for part in ["PE 2: ", "PMI init", "descriptor 77", "not the one"] {
        assert!(closed.contains(part), "{closed}");
    }
    let refused = run("PMI_PORT", "127.0.0.1:1", "0");
    for part in ["PMI init", "127.0.0.1:1", "refused"] {
        assert!(refused.contains(part), "{refused}");
    }
    let wrong = run("PMI_FD", "seven", "0");
    assert!(wrong.contains("PMI_FD=seven"), "{wrong}");
}

#[test]
fn the_example() {
    for options in LAYOUTS {
        assert!(shmrun(options, &[EXAMPLE]).succeed().contains("(shmrun)"));
    }
    if let Some(job) = hydra("-n 4", &[EXAMPLE]) {
        assert!(
            job.succeed()
                .contains("4 processes found each other (PMI-1 server)")
        );
    }
}
