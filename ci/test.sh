#!/usr/bin/env bash
# Everything that must hold before a change lands: tests, whole jobs, models, format, lints, documentation.
# Takes cargo and a C linker; what else would be of use and is missing is skipped, and told in the end (see
# ci/common.sh: SHMEM_TEST_REQUIRE=all fails instead). A stage that fails does not keep the next from
# running.
source "$(dirname "$0")/common.sh"
export SHMEM_TEST_SKIPPED=${SHMEM_TEST_SKIPPED:-$target/skipped}
mkdir -p "$(dirname "$SHMEM_TEST_SKIPPED")"
: >"$SHMEM_TEST_SKIPPED"

# Whole jobs in release mode.
release_mode() {
    cargo build "${release[@]}" --bins --examples
    local bin=$target/release
    "$bin/shmrun" -n 4 --nodes 2 "$bin/npb-ep" A
    # The benchmarks check what they move.
    "$bin/shmrun" -n 3 --nodes 2 "$bin/p2p" 1 >/dev/null
    "$bin/shmrun" -n 6 --nodes 3 "$bin/first_contact" --stops 1 --stop-ms 100 >/dev/null
    "$bin/shmrun" -n 2 "$bin/pages" 4 --passes 1 >/dev/null
}
# Those that are ignored elsewhere among them.
explorations() { cargo test "${release[@]}" --test handshake_sim --test xrc_sim -- --include-ignored; }
# The NAS benchmarks and what measures, optimised and without checks of arithmetic, and whether they are vector code. (Jobs have
# them with checks.) The packages beside theirs ask for what the whole workspace asks of its dependencies: without them
# all would be built again.
benchmarks() {
    local theirs=(--release --quiet -p npb-ports -p shmem-benches -p shmem-examples -p shmem-tests)
    cargo test "${theirs[@]}" --lib --test program --test code -- --include-ignored
    cargo test "${theirs[@]}" --doc
}
format() {
    if cargo fmt --version >/dev/null 2>&1; then cargo fmt --all --check; else skipped format "there is no cargo fmt"; fi
}
lints() {
    if cargo clippy --version >/dev/null 2>&1; then
        cargo clippy --workspace --all-targets --quiet -- -D warnings
    else
        skipped lints "there is no cargo clippy"
    fi
}
documentation() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet
}

stage "tests" cargo test --workspace --exclude npb-ports --no-fail-fast --quiet
stage "jobs in release mode" release_mode
# A processor is enough for these, and for most of what comes next.
beside "models of what threads share" ci/models.sh
stage "explorations that take release mode" explorations
stage "benchmarks in release mode" benchmarks
stage "format" format
stage "lints" lints
stage "documentation" documentation
stage "pictures of jobs" ci/pictures.sh
stage "public interface" ci/api.sh
stage "packages" ci/package.sh
stages ci/test.sh
