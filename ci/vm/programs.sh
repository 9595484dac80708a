#!/usr/bin/env bash
# Builds what runs inside the guests, and lays it without symbols into one
# directory: programs and tests by their names. For another architecture it takes what ci/aarch64.sh has built last.
# Usage: ci/vm/programs.sh DIRECTORY
source "$(dirname "$0")/../common.sh"
rm -rf "$1" && mkdir -p "$1"
if [[ ${VM_ARCH:-x86_64} == aarch64 ]]; then
    echo "programs as ci/aarch64.sh has built them last"
    for program in shmrun shmem-info npb-ep conformance examples/{ring,histogram} c/conformance; do
        to=$1/${program##*/}
        [[ $program != c/* ]] || to=$1/c-${program##*/}
        aarch64-linux-gnu-strip -o "$to" "$target/aarch64-unknown-linux-gnu/debug/$program"
    done
    exit
fi
cargo build "${release[@]}" --bins --examples
# shellcheck disable=SC2046 # a word for each
for program in shmrun shmem-info $(npb_programs) footprint p2p conformance heat2d examples/{hello,ring,histogram}; do
    strip -o "$1/$(basename "$program")" "$target/release/$program"
done
# Cargo alone knows the names of test binaries; it tells them as `"executable":"PATH"`.
cargo test "${release[@]}" --no-run --test devices --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | while read -r path; do
    strip -o "$1/devices" "$path"
done
[[ -x $1/devices ]] || { echo "no test binary devices" >&2; exit 1; }
