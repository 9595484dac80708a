//! What the tests start: the programs that cargo has built for them, and `shmrun`.

use shmem_testkit::Job;

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
    FILTERED = "filtered";
    HANGS = "hangs";
    HASH_MAP = "hash-map";
    HELLO = "hello";
    HISTOGRAM = "histogram";
    LIVES = "lives";
    LOCK = "lock";
    MANY = "many-under-test";
    MISHAPS = "mishaps";
    NPB_EP = "npb-ep-plain";
    NPB_IS = "npb-is-plain";
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
    STRANGERS = "strangers";
    TEAMS = "teams";
    THREADS = "threads";
    WAITING = "waiting-under-test";
    WORK_QUEUE = "work-queue";
}

/// A job of `shmrun` with options such as `"-n 4 --nodes 2"`.
pub(crate) fn shmrun(options: &str, program: &[&str]) -> Job {
    Job::new(SHMRUN, options, program)
}
