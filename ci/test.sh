#!/usr/bin/env bash
# What must hold before a change lands: tests, whole jobs, format, lints, documentation of libraries.
# Needs cargo and a C linker. What else would be of use and is missing is skipped, and reported at the end (see
# ci/common.sh: SHMEM_TEST_REQUIRE=all fails instead). A stage that fails does not keep the next from running.
# With cargo-nextest, all programs of tests share the processors; without it, one runs after the other.
# ci/nightly.sh runs what takes longer, among it the tests of the NAS benchmarks and of tests/apps.
source "$(dirname "$0")/common.sh"
begin_skipped

build() { run_tests --no-run; }

stage "format" format
stage "build of the tests" build
stage "tests" run_tests
# Those of shmem-macros are tested by shmem-test.
stage "programs in the documentation" cargo test --workspace --exclude shmem-macros --doc --quiet
stage "benchmarks, each once" cargo test -p shmem-benches --benches --quiet -- --test
stage "lints" lints
# The workspace turns the feature `test` on. A name that collides with `#[test]` without it is an error of the compiler.
stage "tests without the feature test" cargo check -p shmem-core --lib --profile test --quiet
stage "documentation" documentation --lib
stages ci/test.sh
