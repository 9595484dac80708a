//! The programs that cargo has built for the tests, and `shmrun`.

use shmem_testkit::Job;

pub(crate) const SHMRUN: &str = env!("CARGO_BIN_EXE_shmrun-for-apps");
pub(crate) const GRAPH500: &str = env!("CARGO_BIN_EXE_graph500-under-test");
pub(crate) const HEAT2D: &str = env!("CARGO_BIN_EXE_heat2d-under-test");
pub(crate) const HELLO: &str = env!("CARGO_BIN_EXE_hello-for-apps");
pub(crate) const NPB: &str = env!("CARGO_BIN_EXE_npb");
pub(crate) const NPB_FRAME: &str = env!("CARGO_BIN_EXE_npb-frame");

/// Directory for what tests write.
pub(crate) const TMP: &str = env!("CARGO_TARGET_TMPDIR");

/// A job of `shmrun` with options such as `"-n 4 --nodes 2"`.
pub(crate) fn shmrun(options: &str, program: &[&str]) -> Job {
    Job::new(SHMRUN, options, program)
}
