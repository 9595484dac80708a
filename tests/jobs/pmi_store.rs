//! The node's key-value stores in whole jobs: PMI's semantics are the same with each of them, under
//! every cache, and when they are full.

use shmem_testkit::Job;

use crate::programs::{PMI_STORE, shmrun};

const PROGRAM: &str = PMI_STORE;

fn job(options: &str, store: &str, args: &[&str]) -> Job {
    let program: Vec<&str> = [PROGRAM].iter().chain(args).copied().collect();
    shmrun(options, &program).env("SHMEM_PMI_STORE", store)
}

/// Runs the job; gives what it said on standard error.
fn all_ok(job: Job, n: usize) -> String {
    let output = job.run();
    let (out, err) = (output.stdout, output.stderr);
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    for rank in 0..n {
        let line = format!("rank {rank} ok");
        assert!(out.contains(&line), "no {line:?} in: {out}\n{err}");
    }
    err.to_string()
}

#[test]
fn gets_from_memory_wait_for_nobody() {
    for store in ["shared", "rwlock", "2n"] {
        for (options, n) in [("-n 4", 4), ("-n 6 --nodes 3", 6)] {
            let err = all_ok(job(options, store, &["20", "reads"]), n);
            assert_eq!(err, "", "{store}");
        }
    }
}

#[test]
fn gets_as_messages() {
    all_ok(job("-n 4 --nodes 2", "message", &["20"]), 4);
}

#[test]
fn every_cache_with_the_shared_store() {
    for cache in ["hcs", "hcma", "hcmab", "hcmab-lru"] {
        let job = job("-n 6 --nodes 3", "shared", &["10"]);
        all_ok(job.env("SHMEM_PMI_CACHE", cache), 6);
    }
}

/// What does not fit is served all the same, and the user learns of it once per node.
#[test]
fn a_store_that_is_full() {
    for store in ["shared", "rwlock", "2n"] {
        let job = job("-n 4 --nodes 2", store, &["60"]);
        let err = all_ok(job.env("SHMEM_PMI_STORE_SIZE", "8k"), 4);
        assert_eq!(err.matches("SHMEM_PMI_STORE_SIZE").count(), 2, "{err}");
    }
}

#[test]
fn unknown_stores_are_refused() {
    let output = job("-n 1", "best", &["1"]).run();
    assert!(!output.status.success());
    let err = output.stderr;
    for part in ["SHMEM_PMI_STORE=best", "shared, rwlock, 2n or message"] {
        assert!(err.contains(part), "{err}");
    }
}
