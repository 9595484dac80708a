#!/usr/bin/env bash
# The protocols between threads and between PEs of a node, in every interleaving that loom finds.
# LOOM_MAX_PREEMPTIONS=3 looks deeper than the default, and takes much longer.
source "$(dirname "$0")/common.sh"
# Of its own, because the flag rebuilds everything.
export CARGO_TARGET_DIR=$target/loom
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
cargo test --release --quiet -p shmem-ib --test loom
cargo test --release --quiet -p shmem-node --test loom
cargo test --release --quiet -p shmem-core --test loom
