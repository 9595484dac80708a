//! What the tests start: the programs that cargo has built for them, and two launchers.

use std::process::Stdio;

use shmem_testkit::Job;
use shmem_testkit::needs::skipped;

macro_rules! programs {
    ($($constant:ident = $name:literal;)*) => { $(
        pub(crate) const $constant: &str = env!(concat!("CARGO_BIN_EXE_", $name));
    )* };
}

programs! {
    SHMRUN = "shmrun-under-test";
    BLOCK_ARRAY = "block-array";
    BUSY = "busy";
    BY_ID = "by-id";
    CONFORMANCE = "conformance";
    COSTS = "costs";
    CRASH = "crash";
    DIFFER = "differ";
    GRAPH500 = "graph500-under-test";
    HANGS = "hangs";
    HASH_MAP = "hash-map";
    HEAT2D = "heat2d";
    HELLO = "hello";
    HISTOGRAM = "histogram";
    LIVES = "lives";
    LOCK = "lock";
    MANY = "many-under-test";
    MISHAPS = "mishaps";
    NPB = "npb";
    NPB_FRAME = "npb-frame";
    OWN_TYPE = "own-type";
    PLACES = "places";
    PMI_CLIENT = "pmi-client";
    PMI_NLA = "pmi-nla";
    PMI_PROCESS = "pmi-process";
    PMI_RING = "pmi-ring";
    PMI_STORE = "pmi-store";
    RING = "ring";
    SEEN = "seen";
    STATICS = "statics";
    STEP1_HELLO = "step1-hello";
    STEP2_PUT = "step2-put";
    STEP3_VALUES = "step3-values";
    STEP4_ATOMICS = "step4-atomics";
    STEP5_SIGNALS = "step5-signals";
    STEP6_HALO = "step6-halo";
    TEAMS = "teams";
    THREADS = "threads";
    WAITING = "waiting-under-test";
    WORK_QUEUE = "work-queue";
}

/// A job of `shmrun` with options such as `"-n 4 --nodes 2"`.
pub(crate) fn shmrun(options: &str, program: &[&str]) -> Job {
    Job::new(SHMRUN, options, program)
}

/// Whether a launcher is installed, which is the need `need`.
pub(crate) fn installed(launcher: &str, need: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(launcher).exists());
    if !found {
        skipped(need, format_args!("{launcher} is not installed"));
    }
    found
}

/// A job of MPICH's launcher; none if that is not installed. Its `mpiexec` tells the first process's proxy when
/// its input ends, and dies of SIGPIPE if that has gone by then, so the input does not end.
pub(crate) fn hydra(options: &str, program: &[&str]) -> Option<Job> {
    let job = || Job::new("mpiexec.hydra", options, program).stdin(Stdio::piped());
    installed("mpiexec.hydra", "mpich").then(job)
}

/// A test for each layout: its name, options of `shmrun`, and settings.
macro_rules! layouts {
    ($run:path; $($name:ident: $options:literal $(, $env:literal = $value:literal)*;)*) => { $(
        #[test]
        fn $name() {
            $run($options, &[$(($env, $value)),*]);
        }
    )* };
}
pub(crate) use layouts;
