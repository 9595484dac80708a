#!/usr/bin/env bash
# Everything that must hold before a change lands: format, lints, documentation, tests.
# The tests run in release mode too where they run whole jobs, because that is what users run.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "== format"
cargo fmt --all --check
echo "== lints"
cargo clippy --workspace --all-targets --quiet -- -D warnings
echo "== documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet
echo "== tests"
cargo test --workspace --quiet
echo "== the explorations that are too long without release mode"
cargo test --release -p shmem-ib --test handshake_sim --quiet
echo "== models of what threads share"
ci/models.sh
echo "== the main job"
cargo build --release --workspace --examples --bins --quiet
target/release/shmrun -n 4 --nodes 2 target/release/npb-ep A
echo "== feature verbs"
ci/verbs.sh
echo "== benchmarks check what they moved"
target/release/shmrun -n 3 --nodes 2 target/release/p2p 1 >/dev/null
target/release/shmrun -n 6 --nodes 3 target/release/first_contact --stops 1 --stop-ms 100 >/dev/null
target/release/shmrun -n 2 target/release/pages 4 --passes 1 >/dev/null
