//! Kernels and containers that lack something: jobs run, or a message says what is missing.

use shmem_testkit::needs::skipped;
use shmem_testkit::tools::CC;
use shmem_testkit::{Job, text};

use crate::c_library::toolchain::{scratch, sources, works};
use crate::programs::{CONFORMANCE, FILTERED, HELLO, LIVES, SHMRUN, STATICS};

/// A job of `shmrun` where the kernel lacks something, as the program `filtered` names it.
fn job(lacks: &str, options: &str, program: &[&str]) -> Job {
    let words = lacks.split(' ').chain(["--", SHMRUN]);
    let words: Vec<_> = words.chain(options.split(' ')).collect();
    Job::new(FILTERED, &words.join(" "), program)
}

/// The oldest kernel that is promised.
const OLD: &str = "linux-4.18";

#[test]
fn an_old_kernel_runs_everything() {
    for options in ["-n 4", "-n 4 --nodes 2", "-n 4 --nodes 2 --spawn exec"] {
        assert!(job(OLD, options, &[HELLO]).succeed().contains("PE 3 of 4"));
        let out = job(OLD, options, &[STATICS]).succeed();
        assert!(out.contains("static data checked on 4 PEs"), "{out}");
        job(OLD, options, &[LIVES, "3"]).succeed();
    }
    let job = job(OLD, "-n 3 --nodes 2", &[CONFORMANCE]).env("SHMEM_SYMMETRIC_SIZE", "64M");
    assert!(job.succeed().contains("checks passed on 3 PEs"));
}

#[test]
fn an_old_kernel_ends_jobs_of_which_a_pe_was_killed() {
    let script = "if [ $PMI_RANK = 1 ]; then kill -9 $$; fi; sleep 1000";
    for options in ["-n 3", "-n 3 --nodes 3"] {
        let output = job(OLD, options, &["sh", "-c", script]).run();
        let err = output.stderr;
        assert_eq!(output.status.code(), Some(137), "{options}: {err}");
        assert!(err.contains("PE 1 on node"), "{options}: {err}");
    }
}

/// System calls that a job can do without.
const SPARED: &[&str] = &[
    "clone3=ENOSYS",
    "close_range",
    "faccessat2",
    // Sealing of memory files.
    "fcntl:1033",
    "madvise",
    "membarrier",
    "pidfd_open",
    "pidfd_send_signal",
    // PR_SET_PDEATHSIG, PR_SET_DUMPABLE and PR_SET_NAME.
    "prctl:1",
    "prctl:4",
    "prctl:15",
    "process_vm_readv process_vm_writev ptrace",
    "recvmmsg",
    "rseq",
    "sched_getaffinity",
    "sched_setaffinity",
    "setsid",
    "statx",
    "timerfd_create",
];

/// System calls that a job needs, each with a part of the message.
const NEEDED: &[(&str, &str)] = &[
    ("clone3=EPERM", "cannot start the thread that "),
    ("epoll_create1", "epoll_create1: "),
    ("eventfd2", "eventfd: "),
    ("getrandom", "random bytes"),
    ("memfd_create", "cannot make the tables memory"),
    // PR_SET_CHILD_SUBREAPER.
    ("prctl:36", "prctl(PR_SET_CHILD_SUBREAPER): "),
    ("setpgid", "setpgid: "),
    ("signalfd4", "signalfd: "),
    ("socketpair", "socketpair of Unix sockets: "),
];

/// Calls that are missing, as older kernels have it, and refused, as containers have it.
fn each_way(calls: &str) -> Vec<String> {
    if calls.contains('=') {
        return vec![calls.to_owned()];
    }
    let failing = |error| calls.split(' ').map(move |call| format!("{call}={error}"));
    ["ENOSYS", "EPERM"]
        .map(|error| failing(error).collect::<Vec<_>>().join(" "))
        .into()
}

#[test]
fn jobs_run_without_system_calls_that_they_can_do_without() {
    for lacks in SPARED.iter().flat_map(|calls| each_way(calls)) {
        for options in ["-n 2", "-n 2 --nodes 2"] {
            let output = job(&lacks, options, &[STATICS]).run();
            let (ended, err) = (output.status, output.stderr);
            assert!(ended.success(), "{lacks}, {options}: {ended}: {err}");
        }
    }
}

#[test]
fn a_job_says_which_system_call_is_missing() {
    for (calls, said) in NEEDED {
        for lacks in each_way(calls) {
            let output = job(&lacks, "-n 2", &[HELLO]).run();
            let (ended, err) = (output.status, output.stderr);
            if lacks.starts_with("clone3") && ended.success() {
                // C libraries before 2.34 start threads by another call.
                continue;
            }
            assert_eq!(ended.code(), Some(125), "{lacks}: {err}");
            assert!(err.contains(said), "{lacks}: {err}");
        }
    }
}

/// What a PE leaves in a session of its own is found by its parent, however the kernel shows that, where there are no control
/// groups.
#[test]
fn nothing_is_left_where_the_kernel_lists_no_children() {
    if !works(&CC.words()) {
        return skipped("c", format!("there is no {}", CC.words()));
    }
    let library = scratch().join("libno_children.so");
    let options = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"];
    let made = CC
        .command()
        .args(options)
        .args([&library, &sources().join("programs/no_children.c")])
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let script = "setsid sleep 1000 >/dev/null 2>&1 </dev/null & sleep 0.2; exit $PMI_RANK";
    for options in ["-n 2", "-n 2 --nodes 2"] {
        let job = Job::new(SHMRUN, options, &["sh", "-c", script]);
        let output = job.env("LD_PRELOAD", &library).run();
        assert_eq!(output.status.code(), Some(1), "{options}: {output:?}");
    }
}
