//! Which device a job uses, and waits on devices that do not report what peers write. The suites run on such devices, too:
//! `silent` among the layouts.

use std::path::Path;
use std::process::Command;

use shmem_testkit::{Job, text};

use crate::programs::{HELLO, RING, shmrun};

/// A job whose software HCAs are as taciturn as an RDMA device. Whoever waits for a bell there
/// waits until something else happens by chance, or for the doorbell's safeguard of seconds.
fn silent(options: &str, program: &str) -> Job {
    shmrun(options, &[program]).env("SHMEM_SOFT_FAULTS", "silent")
}

/// A ring of waits, each for a word that a PE on another node writes. If nobody looked again, each
/// would take the two seconds of the doorbell's safeguard: the job would take minutes.
#[test]
fn a_ring_of_waits_goes_round_without_bells() {
    let job = silent("-n 24 --nodes 24", RING).env("SHMEM_SPIN", "0");
    let out = job.succeed();
    assert!(out.contains("came back right"), "{out}");
}

#[test]
fn soft_and_auto_run_on_any_machine() {
    for hca in ["auto", "soft"] {
        let job = shmrun("-n 4 --nodes 2", &[RING]).env("SHMEM_HCA", hca);
        assert!(job.succeed().contains("came back right"));
    }
}

/// No test machine has a device of that name, whatever else it has.
#[test]
fn a_device_that_is_not_there_is_an_error_that_says_so() {
    let job = shmrun("-n 2 --nodes 2", &[HELLO]).env("SHMEM_HCA", "no_such_device:1");
    let output = job.run();
    assert!(!output.status.success());
    let err = output.stderr;
    for part in ["SHMEM_HCA=no_such_device", "SHMEM_HCA=soft", "shmem-info"] {
        assert!(err.contains(part), "{part} in {err}");
    }
}

/// What a job does on devices is tested on machines that have some.
#[test]
fn a_device_where_there_is_none_is_an_error_that_says_what_to_do() {
    let devices = Path::new("/sys/class/infiniband").read_dir();
    if devices.is_ok_and(|mut devices| devices.next().is_some()) {
        return;
    }
    let output = shmrun("-n 2 --nodes 2", &[HELLO])
        .env("SHMEM_HCA", "verbs")
        .run();
    assert!(!output.status.success());
    let err = output.stderr;
    for part in [
        "SHMEM_HCA=verbs cannot be had",
        "SHMEM_HCA=soft",
        "shmem-info",
    ] {
        assert!(err.contains(part), "{part} in {err}");
    }
}

/// With this variable the dynamic linker lists the libraries that a program needs, and does not start the program.
#[test]
fn a_program_needs_no_libibverbs_to_start() {
    let output = Command::new(HELLO)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output()
        .expect("the dynamic linker");
    let list = text(&output.stdout);
    assert!(list.contains("libc.so"), "{list}");
    assert!(!list.contains("ibverbs"), "{list}");
}

/// Each node is told another one, as where a cluster's nodes are set up differently.
#[test]
fn pes_in_different_partitions_are_told_so() {
    let script = format!("export SHMEM_PKEY=$((PMI_RANK + 0x8001)); exec {RING}");
    let output = shmrun("-n 2 --nodes 2", &["sh", "-c", &script]).run();
    assert!(!output.status.success());
    let err = output.stderr;
    for part in ["0x8001 (full member)", "0x8002 (full member)", "SHMEM_PKEY"] {
        assert!(err.contains(part), "{part} in {err}");
    }
}

#[test]
fn packets_may_be_marked_and_times_and_counts_be_others() {
    for (ack, retries) in [("100ms", "7"), ("8s", "3")] {
        let job = shmrun("-n 4 --nodes 4", &[RING])
            .env("SHMEM_PKEY", "0x12")
            .env("SHMEM_TRAFFIC_CLASS", "106")
            .env("SHMEM_SL", "3")
            .env("SHMEM_ACK_TIMEOUT", ack)
            .env("SHMEM_RETRY_COUNT", retries)
            .env("SHMEM_ATOMICS", "owner");
        assert!(job.succeed().contains("came back right"));
    }
}

/// A PE that fails in `init` closes its connection to the launch agent and ends, and is reaped at
/// once: what it said must not be lost on the way. Both PEs fail, but only the one named must have
/// been heard, since the other may have been killed.
#[test]
fn whoever_fails_is_heard() {
    for _ in 0..60 {
        let job = shmrun("-n 2 --nodes 2", &[HELLO]).env("SHMEM_HCA", "no_such_device");
        let err = job.run().stderr;
        assert!(err.contains("cannot open the network endpoint"), "{err}");
    }
}

#[test]
fn a_job_on_one_node_needs_no_device() {
    let job = shmrun("-n 2", &[HELLO]).env("SHMEM_HCA", "no_such_device");
    job.succeed();
}

#[test]
fn what_names_no_device_is_refused_before_anything_starts() {
    let job = shmrun("-n 2 --nodes 2", &[HELLO]).env("SHMEM_HCA", "soft,mlx5_0");
    let output = job.run();
    assert!(!output.status.success());
    let err = output.stderr;
    assert!(
        err.contains("SHMEM_HCA=soft,mlx5_0: not one of the choices"),
        "{err}"
    );
}
