//! C programs with MPI and OpenSHMEM in one process, under `shmrun` and under MPI's launchers: every order of inits and
//! finalizes, with Debian's MPICH and Open MPI, with MPICH 5 and Open MPI 5 where their prefixes are told, and the orders
//! that are refused.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use shmem_testkit::Job;
use shmem_testkit::launchers::{hydra, installed};
use shmem_testkit::needs::skipped;
use shmem_testkit::tools::{self, command, made_by};

use crate::c_library::toolchain::toolchain;
use crate::launchers::{hydra_on, remote_shell};
use crate::programs::shmrun;

/// First init, first finalize: `m`PI or Open`s`HMEM.
const ORDERS: [[&str; 2]; 4] = [["ms", "ms"], ["ms", "sm"], ["sm", "ms"], ["sm", "sm"]];
const PES: usize = 4;

/// What programs of `tests/c/mpi` do.
const ORDER: &str = "hybrid.c";
const PROGRESS: &str = "progress.c";

/// Compiles a program of `tests/c/mpi` as `name`; `None` without what it needs.
fn compiled(
    source: &str,
    name: &str,
    compiler: &str,
    more: &[String],
    need: &str,
) -> Option<String> {
    let tools = toolchain()?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hybrid");
    let (include, lib) = (tools.prefix.join("include"), tools.prefix.join("lib"));
    let code = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("c/mpi")
        .join(source);
    let words = [
        "-O1".to_owned(),
        "-Wall".to_owned(),
        "-Wextra".to_owned(),
        format!("-I{}", include.display()),
        code.display().to_string(),
        format!("-L{}", lib.display()),
        "-lshmem".to_owned(),
        "-pthread".to_owned(),
        format!("-Wl,-rpath,{}", lib.display()),
    ];
    // Several sources are made for the same MPI.
    let program = folder.join(name).join(source.trim_end_matches(".c"));
    match made_by(command(compiler), &program, words.iter().chain(more)) {
        Ok(program) => Some(program.to_str().expect("text").to_owned()),
        Err(why) => {
            skipped(need, why);
            None
        }
    }
}

fn mpich(source: &str) -> Option<String> {
    compiled(source, "mpich", "mpicc.mpich", &[], "mpich")
}

/// A program for the MPI library of an installation, which `variable` names.
fn of_prefix(
    source: &str,
    variable: &str,
    (interface, library): (&str, &str),
    need: &str,
) -> Option<(PathBuf, String)> {
    let Some(prefix) = std::env::var_os(variable).map(PathBuf::from) else {
        skipped(need, format_args!("{variable} is not set"));
        return None;
    };
    let lib = prefix.join("lib");
    let more = [
        interface.to_owned(),
        format!("-I{}", prefix.join("include").display()),
        format!("-L{}", lib.display()),
        format!("-l:{library}"),
        format!("-Wl,-rpath,{}", lib.display()),
        "-Wl,--allow-shlib-undefined".to_owned(),
    ];
    let program = compiled(source, library, &tools::CC.words(), &more, need)?;
    Some((prefix, program))
}

fn mpich_5(source: &str) -> Option<(PathBuf, String)> {
    let files = ("-UMPI_ABI", "libmpi.so.12");
    of_prefix(source, "PMI_SPAWN_MPICH", files, "mpich-spawn")
}

fn open_mpi_5(source: &str) -> Option<(PathBuf, String)> {
    let files = ("-UMPI_ABI", "libmpi.so.40");
    of_prefix(source, "OPENMPI_PREFIX", files, "openmpi5")
}

/// The header is that of release 5, if there is one; what a program uses of it is the same in both.
fn open_mpi_4(source: &str) -> Option<String> {
    let Some(prefix) = std::env::var_os("OPENMPI_PREFIX").map(PathBuf::from) else {
        return compiled(source, "openmpi4", "mpicc.openmpi", &[], "openmpi-c");
    };
    let include = format!("-I{}", prefix.join("include").display());
    let more = [include, "-l:libmpi.so.40".into()];
    compiled(source, "openmpi4", &tools::CC.words(), &more, "openmpi-c")
}

/// The program with each MPI that there is, and the variables by which that finds its parts.
fn with_each_mpi(source: &str) -> Vec<(String, Vec<(&'static str, PathBuf)>)> {
    let mut all = Vec::new();
    all.extend(mpich(source).map(|program| (program, Vec::new())));
    all.extend(mpich_5(source).map(|(_, program)| (program, Vec::new())));
    all.extend(open_mpi_4(source).map(|program| (program, Vec::new())));
    all.extend(open_mpi_5(source).map(|(prefix, program)| {
        let place = ["OPAL_PREFIX", "PMIX_PREFIX"].map(|name| (name, prefix.clone()));
        (program, place.to_vec())
    }));
    all
}

/// All PEs have done their work.
fn right(job: Job, what: &str) {
    let out = job.run();
    assert!(out.status.success(), "{what}: {out:?}");
    assert_eq!(
        out.stdout.matches(", 0 wrong").count(),
        PES,
        "{what}: {out:?}"
    );
}

fn refused(job: Job, words: &str) {
    let out = job.run();
    assert!(!out.status.success(), "{out:?}");
    let said = format!("{}{}", out.stdout, out.stderr);
    assert!(said.contains(words), "{said}");
}

/// Of several ways all, or the `i`th, counted round and round.
fn ways<T>(all: bool, ways: &[T], i: usize) -> &[T] {
    match all {
        true => ways,
        false => std::slice::from_ref(&ways[i % ways.len()]),
    }
}

#[test]
fn every_order_under_shmrun() {
    orders_under_shmrun(false);
}

#[test]
#[ignore = "nightly: each run has one way for each order and MPI"]
fn every_order_under_shmrun_in_every_way() {
    orders_under_shmrun(true);
}

fn orders_under_shmrun(all: bool) {
    const WAYS: [(&str, &str); 4] = [
        ("none", "-n 4 --nodes 2"),
        ("again", "-n 4"),
        ("none", "-n 4"),
        ("again", "-n 4 --nodes 2"),
    ];
    for (mpi, (program, place)) in with_each_mpi(ORDER).into_iter().enumerate() {
        for (order, [inits, finalizes]) in ORDERS.into_iter().enumerate() {
            for (what, options) in ways(all, &WAYS, mpi + order) {
                let words = [&program[..], inits, finalizes, what];
                let job = shmrun(options, &words).envs(place.clone());
                right(job, &format!("{options} {words:?}"));
            }
        }
    }
}

#[test]
fn either_ends_a_job_of_shmrun_which_says_who() {
    for (program, place) in with_each_mpi(ORDER) {
        for (what, told) in [
            (
                "mpi-abort",
                &["PE 3 on node 1", "with status 7; ending the job"][..],
            ),
            ("global-exit", &["PE 3 called global_exit(7)"]),
            ("return", &["PE 3 on node 1"]),
        ] {
            let job = shmrun("-n 4 --nodes 2", &[&program, "ms", "sm", what]);
            let out = job.envs(place.clone()).run();
            // Peers that see its connections close before they are ended may end by themselves.
            let (ends, messages): (Vec<_>, Vec<_>) = out
                .messages()
                .into_iter()
                .partition(|message| message.contains("how all PEs ended"));
            let [message] = &messages[..] else {
                panic!("{what}: {out:?}");
            };
            // The launcher may hear of such a peer before PE 3, whose words have the longer way. Then it reports the peer as the
            // cause, and how PE 3 ended in the last line.
            let by_peer = message.contains(" on node ") && !message.contains("PE 3 ");
            if by_peer {
                assert_ne!(out.code(), 0, "{what}: {out:?}");
                assert!(
                    ends.iter().any(|ends| ends.contains("status 7: PE 3")),
                    "{out:?}"
                );
                continue;
            }
            assert_eq!(out.code(), 7, "{what}: {out:?}");
            let all = told.iter().all(|part| message.contains(part));
            assert!(all, "{what}: {message}");
        }
    }
}

/// Nobody sees what a script starts: Open MPI's processes do not find each other, and are told how they would.
#[test]
fn scripts_that_start_open_mpi_need_an_option() {
    let Some(program) = open_mpi_4(ORDER) else {
        return;
    };
    let script = ["sh", "-c", "exec \"$0\" \"$@\"", &program, "ms", "ms"];
    let alone = shmrun("-n 2", &[&script[..], &["none", "any"]].concat()).run();
    assert!(alone.stderr.contains("shmrun --pmix"), "{alone:?}");
    let job = shmrun("--pmix -n 4", &[&script[..], &["none"]].concat());
    right(job, "--pmix");
}

/// What PE 0 of the program is blocked in while another PE wants something of it in the other library.
const BLOCKED_IN: [&str; 6] = ["mpi", "shmem", "sync", "pending", "first", "again"];

/// Two PEs wait for each other, one in MPI and the other in OpenSHMEM.
#[test]
fn nobody_waits_for_ever() {
    who_waits_is_answered(false);
}

#[test]
#[ignore = "nightly: each run has each wait on one layout"]
fn nobody_waits_for_ever_on_any_layout() {
    who_waits_is_answered(true);
}

fn who_waits_is_answered(all: bool) {
    let told = |job: Job, words: &[&str]| {
        let out = job.succeed();
        assert!(out.contains("nobody waits for ever"), "{words:?}: {out}");
    };
    for (mpi, (program, place)) in with_each_mpi(PROGRESS).into_iter().enumerate() {
        for (i, blocked_in) in BLOCKED_IN.into_iter().enumerate() {
            let words = [&program[..], blocked_in];
            for options in ways(all, &["-n 2", "-n 4 --nodes 2"], mpi + i) {
                told(shmrun(options, &words).envs(place.clone()), &words);
            }
        }
    }
    let Some(program) = mpich(PROGRESS) else {
        return;
    };
    for (i, blocked_in) in BLOCKED_IN.into_iter().enumerate() {
        let words = [&program[..], blocked_in];
        for hosts in ways(all, &[1, 2], i) {
            let job = match hosts {
                1 => hydra("-n 2", &words),
                _ => hydra_on(2, "", &words),
            };
            let Some(job) = job else { return };
            told(job, &words);
        }
    }
}

/// Whoever polls answers others at once, and MPI still has its turn.
#[test]
fn who_is_asked_all_the_time_has_mpi_go_on() {
    for (program, place) in with_each_mpi(PROGRESS) {
        let job = shmrun("-n 3 --nodes 3", &[&program, "asked"]);
        job.envs(place).env("SHMEM_SPIN", "1000000").succeed();
    }
}

#[test]
fn who_cannot_do_anything_for_mpi_sleeps() {
    for (program, place) in with_each_mpi(PROGRESS) {
        for options in ["-n 2", "-n 4 --nodes 2"] {
            let job = shmrun(options, &[&program, "idle"]);
            job.envs(place.clone()).succeed();
        }
    }
}

#[test]
fn mpich_in_every_order() {
    mpich_in_orders(false);
}

#[test]
#[ignore = "nightly: each run has one way for each order"]
fn mpich_in_every_order_and_way() {
    mpich_in_orders(true);
}

fn mpich_in_orders(all: bool) {
    let Some(program) = mpich(ORDER) else {
        return;
    };
    for (i, [inits, finalizes]) in ORDERS.into_iter().enumerate() {
        for what in ways(all, &["none", "again", "multiple"], i) {
            let words = [&program[..], inits, finalizes, what];
            let jobs = [
                hydra("-n 4", &words),
                hydra("-pmi-port -n 4", &words),
                hydra_on(2, "", &words),
            ];
            for job in jobs.into_iter().flatten() {
                right(job, &words[1..].join(" "));
            }
        }
    }
}

/// On one node the PEs need no exchange.
#[test]
fn openshmem_after_mpi_is_over() {
    let Some(program) = mpich(ORDER) else { return };
    for [inits, finalizes] in ORDERS {
        let words = [&program[..], inits, finalizes, "late"];
        if let Some(job) = hydra("-n 4", &words) {
            right(job, inits);
        }
        if let Some(job) = hydra_on(2, "", &words) {
            refused(job, "initialise OpenSHMEM before MPI_Finalize");
        }
    }
    // A program that has MPI and does not use it.
    if let Some(job) = hydra_on(2, "", &[&program, "sm", "sm", "no-mpi"]) {
        right(job, "no MPI");
    }
}

#[test]
fn the_setting_is_obeyed() {
    let Some(program) = mpich(ORDER) else {
        return;
    };
    let job = |setting, order| {
        let job = hydra_on(2, "", &[&program, order, "ms"])?;
        Some(job.env("SHMEM_PMI", setting))
    };
    for (setting, order) in [("mpi", "ms"), ("1", "ms"), ("1", "sm"), ("auto", "sm")] {
        if let Some(job) = job(setting, order) {
            right(job, setting);
        }
    }
    if let Some(job) = job("mpi", "sm") {
        refused(job, "a program that has called MPI_Init before");
    }
}

/// Who may not call MPI cannot exchange over it, and needs not under `shmrun`.
#[test]
fn the_thread_matters_where_mpi_is_needed() {
    let Some(program) = mpich(ORDER) else { return };
    let words = [&program[..], "ms", "ms", "elsewhere"];
    right(shmrun("-n 4 --nodes 2", &words), "elsewhere");
    if let Some(job) = hydra("-n 4", &words) {
        refused(job, "or initialise OpenSHMEM in that thread");
    }
}

#[test]
fn either_ends_the_job() {
    let Some(program) = mpich(ORDER) else { return };
    for inits in ["ms", "sm"] {
        for what in ["mpi-abort", "global-exit", "return"] {
            let words = [&program[..], inits, "sm", what];
            for job in [hydra("-n 4", &words), hydra_on(2, "", &words)] {
                let Some(job) = job else { return };
                let out = job.run();
                assert_eq!(out.status.code(), Some(7), "{inits} {what}: {out:?}");
            }
        }
    }
}

#[test]
fn mpich_5_in_every_order() {
    for files in [
        ("-UMPI_ABI", "libmpi.so.12"),
        ("-DMPI_ABI", "libmpi_abi.so.1"),
    ] {
        let found = of_prefix(ORDER, "PMI_SPAWN_MPICH", files, "mpich-spawn");
        let Some((prefix, program)) = found else {
            return;
        };
        let mpiexec = prefix.join("bin/mpiexec.hydra");
        let shell = remote_shell();
        let shell = shell.display();
        let hosts = format!("-launcher ssh -launcher-exec {shell} -hosts n1:2,n2:2 -n 4");
        for [inits, finalizes] in ORDERS {
            for options in ["-n 4", &hosts] {
                let job = Job::new(&mpiexec, options, &[&program, inits, finalizes, "again"]);
                let job = match options == hosts {
                    true => job.env("HYDRA_LAUNCHER_AUTOFORK", "0"),
                    false => job,
                };
                let job = job.stdin(Stdio::piped());
                right(
                    job.env("SHMEM_SPIN", "0"),
                    &format!("{options} {inits} {finalizes}"),
                );
            }
        }
    }
}

const AS_ROOT: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];

#[test]
fn debians_open_mpi_in_every_order() {
    if !installed("mpirun.openmpi", "openmpi") {
        return;
    }
    let Some(program) = open_mpi_4(ORDER) else {
        return;
    };
    for [inits, finalizes] in ORDERS {
        for (what, pmi) in [("none", "auto"), ("again", "auto"), ("none", "mpi")] {
            if pmi == "mpi" && inits == "sm" {
                continue;
            }
            let words = [&program[..], inits, finalizes, what];
            let job = Job::new("mpirun.openmpi", "--oversubscribe -n 4", &words);
            let job = job.envs(AS_ROOT).env("SHMEM_PMI", pmi);
            right(job, &format!("{inits} {finalizes} {what} {pmi}"));
        }
    }
    // It has never heard of Hydra.
    if let Some(job) = hydra("-n 2", &[&program, "ms", "ms"]) {
        refused(job, "MPI says that this process is rank 0 of 1");
    }
}

#[test]
fn open_mpi_5_comes_first() {
    let found = open_mpi_5(ORDER);
    let Some((prefix, program)) = found else {
        return;
    };
    let options = format!("--prefix {} --map-by :oversubscribe -n 4", prefix.display());
    let job = |words: &[&str]| {
        let words: Vec<&str> = std::iter::once(&program[..])
            .chain(words.iter().copied())
            .collect();
        let mut job = Job::new(prefix.join("bin/prterun"), &options, &words).envs(AS_ROOT);
        for name in ["OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX"] {
            job = job.env(name, &prefix);
        }
        job
    };
    for finalizes in ["ms", "sm"] {
        right(job(&["ms", finalizes, "again"]), finalizes);
        right(job(&["ms", finalizes]).env("SHMEM_PMI", "mpi"), finalizes);
    }
    refused(
        job(&["sm", "ms"]),
        "call MPI_Init before OpenSHMEM is initialised",
    );
    let without = job(&["sm", "ms", "no-mpi"]);
    right(without.env("SHMEM_PMI", "pmix"), "no MPI");
}
