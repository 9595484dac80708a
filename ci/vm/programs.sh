#!/usr/bin/env bash
# Builds what runs inside the guests, with the feature `verbs`, and lays it without symbols into one
# directory: programs by their names, test binaries by the names of the tests.
# Usage: ci/vm/programs.sh DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/../.."
rm -rf "$1" && mkdir -p "$1"
target=${CARGO_TARGET_DIR:-target}
cargo build --release --quiet --features shmem-core/verbs --bins --examples \
    -p shmem-launch -p shmem-examples -p npb-ports -p shmem-benches
for program in shmrun ep footprint examples/{hello,ring,histogram,heat2d}; do
    strip -o "$1/$(basename "$program")" "$target/release/$program"
done
