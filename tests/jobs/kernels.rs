//! Kernels and containers that lack something: jobs run, or a message says what is missing.

use std::process::Command;

use shmem_testkit::needs::skipped;
use shmem_testkit::tools::CC;
use shmem_testkit::{Job, text};

use crate::c_library::toolchain::{scratch, sources, toolchain, works};
use crate::conformance::{self, SOME_OF_EACH};
use crate::programs::{FILTERED, HELLO, LIVES, SHMRUN, STATICS};

/// A job of `shmrun` where the kernel lacks something, as the program `filtered` names it.
fn job(lacks: &str, options: &str, program: &[&str]) -> Job {
    let words = lacks.split(' ').chain(["--", SHMRUN]);
    let words: Vec<_> = words.chain(options.split(' ')).collect();
    Job::new(FILTERED, &words.join(" "), program)
}

/// The oldest kernel that is promised.
const OLD: &str = "linux-4.18";

/// Whether this kernel, or the container that this is in, lets nobody filter system calls; the test is skipped then.
fn no_filters() -> bool {
    let tried = Command::new(FILTERED).args([OLD, "--", "true"]).output();
    let tried = tried.expect("the program is built with the tests");
    let lacks = !tried.status.success();
    if lacks {
        skipped("seccomp", text(&tried.stderr));
    }
    lacks
}

#[test]
fn an_old_kernel_runs_everything() {
    if no_filters() {
        return;
    }
    for options in [
        "-n 4",
        "-n 4 --nodes 2",
        "-n 4 --nodes 2 -x SHMEM_SPAWN=exec",
    ] {
        assert!(job(OLD, options, &[HELLO]).succeed().contains("PE 3 of 4"));
        let out = job(OLD, options, &[STATICS]).succeed();
        assert!(out.contains("static data checked on 4 PEs"), "{out}");
        job(OLD, options, &[LIVES, "3"]).succeed();
    }
    checks_pass(SOME_OF_EACH);
}

#[test]
#[ignore = "nightly: each run has some checks"]
fn an_old_kernel_passes_all_checks() {
    if !no_filters() {
        checks_pass(&[]);
    }
}

fn checks_pass(checks: &[&'static str]) {
    let job =
        job(OLD, "-n 3 --nodes 2", &conformance::with(checks)).env("SHMEM_SYMMETRIC_SIZE", "64M");
    assert!(job.succeed().contains("checks passed on 3 PEs"));
}

#[test]
fn an_old_kernel_runs_programs_in_c() {
    if no_filters() {
        return;
    }
    let Some(c) = toolchain() else { return };
    for (name, flags) in [
        ("conformance", &[][..]),
        ("conformance-archive", &["-static-libshmem"]),
    ] {
        let program = c.make(name, c.conformance_objects(), flags);
        let program = program.to_str().expect("a path in UTF-8");
        for options in [
            "-n 2",
            "-n 3 --nodes 2",
            "-n 2 --nodes 2 -x SHMEM_SPAWN=exec",
        ] {
            let out = job(OLD, options, &[program, "linking"]).succeed();
            assert!(out.contains(" checks, 0 failed on "), "{out}");
        }
    }
}

#[test]
fn an_old_kernel_ends_jobs_of_which_a_pe_was_killed() {
    if no_filters() {
        return;
    }
    let script = "if [ $PMI_RANK = 1 ]; then kill -9 $$; fi; sleep 1000";
    for options in ["-n 3", "-n 3 --nodes 3"] {
        let output = job(OLD, options, &["sh", "-c", script]).run();
        let err = output.stderr;
        assert_eq!(output.status.code(), Some(137), "{options}: {err}");
        assert!(err.contains("PE 1 on node"), "{options}: {err}");
    }
}

/// System calls that a job can do without. Some are the C library's or Rust's, which have another way.
const SPARED: &[&str] = &[
    "clone3=ENOSYS",
    "close_range",
    "copy_file_range splice sendfile",
    "faccessat2",
    "fallocate",
    // Sealing of memory files.
    "fcntl:1033",
    "getpriority setpriority",
    "io_uring_setup",
    "ioctl",
    "madvise",
    "mbind set_mempolicy",
    "membarrier",
    "mremap",
    "mlock mlock2",
    "openat2",
    "pidfd_open",
    "pidfd_send_signal",
    // PR_SET_PDEATHSIG, PR_SET_DUMPABLE and PR_SET_NAME.
    "prctl:1",
    "prctl:4",
    "prctl:15",
    "prlimit64",
    "process_vm_readv process_vm_writev ptrace",
    "recvmmsg",
    "rseq",
    "sched_getaffinity",
    "sched_setaffinity",
    "sched_yield",
    "setsid",
    "sigaltstack",
    "statx",
    "timerfd_create",
    "userfaultfd",
];

/// System calls that a job needs, each with a part of the message.
const NEEDED: &[(&str, &str, &str)] = &[
    ("clone3=EPERM", "-n 2", "cannot start the thread that "),
    ("epoll_create1", "-n 2", "epoll_create1: "),
    ("epoll_ctl", "-n 2", "epoll_ctl: "),
    ("epoll_wait", "-n 2", "epoll_wait: "),
    ("eventfd2", "-n 2", "eventfd: "),
    ("getrandom", "-n 2", "random bytes"),
    ("memfd_create", "-n 2", "cannot make the tables memory"),
    // PR_SET_CHILD_SUBREAPER.
    ("prctl:36", "-n 2", "prctl(PR_SET_CHILD_SUBREAPER): "),
    (
        "sched_setaffinity",
        "-n 2 --bind-to core",
        "bind to its processors",
    ),
    ("setpgid", "-n 2", "setpgid: "),
    ("signalfd4", "-n 2", "signalfd: "),
    ("socketpair", "-n 2", "socketpair of Unix sockets: "),
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
    // Two PEs of a node share memory, and the third is on another.
    jobs_run_without_spared_calls("-n 3 --nodes 2");
}

#[test]
#[ignore = "nightly: each run has two nodes"]
fn jobs_of_one_node_run_without_them() {
    jobs_run_without_spared_calls("-n 2");
}

fn jobs_run_without_spared_calls(options: &str) {
    if no_filters() {
        return;
    }
    let mut failed = Vec::new();
    for lacks in SPARED.iter().flat_map(|calls| each_way(calls)) {
        let output = job(&lacks, options, &[STATICS]).run();
        let (ended, err) = (output.status, output.stderr);
        println!("{lacks:70} {ended}");
        if !ended.success() {
            failed.push(format!("{lacks}: {ended}: {err}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_job_says_which_system_call_is_missing() {
    if no_filters() {
        return;
    }
    let mut failed = Vec::new();
    for (calls, options, said) in NEEDED {
        for lacks in each_way(calls) {
            let output = job(&lacks, options, &[HELLO]).run();
            let (ended, err) = (output.status, output.stderr);
            println!("{lacks:28} {options:20} {ended}: {}", err.trim());
            if lacks.starts_with("clone3") && ended.success() {
                // C libraries before 2.34 start threads by another call.
                continue;
            }
            // A PE that is a fork of a template ends by itself where it cannot be bound.
            if !matches!(ended.code(), Some(1 | 125)) || !err.contains(said) {
                failed.push(format!("{lacks}, {options}: {ended}: {err}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// What a PE leaves in a session of its own is found by its parent, however the kernel shows that, where there are no control
/// groups.
#[test]
fn nothing_is_left_where_the_kernel_lists_no_children() {
    if !works(&CC.words()) {
        return skipped("c", format!("there is no {}", CC.words()));
    }
    let source = sources().join("programs/no_children.c");
    let source = source.to_str().unwrap();
    let words = [
        "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", source, "-ldl",
    ];
    let library = CC
        .makes(&scratch().join("libno_children.so"), words)
        .unwrap();
    let hidden = scratch().join("children-were-hidden");
    let leads = scratch().join("leads-a-session");
    let script = format!(
        "setsid sh -c ': >{leads}.$PMI_RANK; exec sleep 1000' >/dev/null 2>&1 </dev/null & \
         until [ -e {leads}.$PMI_RANK ]; do sleep 0.01; done; exit $PMI_RANK",
        leads = leads.display()
    );
    for options in ["-n 2", "-n 2 --nodes 2"] {
        for mark in [
            &hidden,
            &leads.with_extension("0"),
            &leads.with_extension("1"),
        ] {
            let _ = std::fs::remove_file(mark);
        }
        let job = Job::new(SHMRUN, options, &["sh", "-c", &script]);
        let job = job.env("LD_PRELOAD", &library).env("HIDDEN", &hidden);
        let output = job.run();
        assert_eq!(output.status.code(), Some(1), "{options}: {output:?}");
        assert!(hidden.exists(), "{options}: nobody has asked for children");
    }
}
