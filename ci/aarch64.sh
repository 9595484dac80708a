#!/usr/bin/env bash
# Builds for AArch64 on x86-64, with lints, and runs what is built under QEMU's emulation of that processor's instructions: unit
# tests, jobs of Rust and C programs, and jobs whose launcher is of one architecture and whose PEs are of the other;
# beside these, in a virtual machine, jobs on a kernel with pages of 16 KiB.
# In what order that processor's stores are seen, an emulation on x86-64 does not show.
# Usage: ci/aarch64.sh [--sources | --packages | lints | unit]
#   --sources          as root, on Debian 12: lets apt know its backports, whose QEMU is new enough
#   --packages         prints the Debian packages that are missing
#   lints              nothing but the lints, which check that it compiles
#   unit               nothing but the unit tests
#   SHMEM_TEST_REQUIRE=aarch64   fail, where it would otherwise say why it cannot run and pass
source "$(dirname "$0")/common.sh"
arm=aarch64-unknown-linux-gnu
debian=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release 2>/dev/null || true)

if [[ ${1:-} == --sources ]]; then
    [[ $debian == bookworm ]] || exit 0
    cat >"/etc/apt/sources.list.d/$debian-backports.sources" <<END
Types: deb
URIs: http://deb.debian.org/debian
Suites: $debian-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    apt-get update -qq
    exit
fi

need gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
need g++-aarch64-linux-gnu aarch64-linux-gnu-g++
need libc6-dev-arm64-cross /usr/aarch64-linux-gnu/include/stdio.h
# Release 7 refuses the system call by which an agent adopts what its PEs leave behind.
qemu=$(qemu-aarch64 --version 2>/dev/null | sed -n 's/.* version \([0-9]*\).*/\1/p' || true)
[[ ${qemu:-0} -ge 8 ]] || missing+=("qemu-user$([[ $debian != bookworm ]] || echo "/$debian-backports")")
# shellcheck disable=SC2207 # words become elements
missing+=($(VM_ARCH=aarch64 ci/vm.sh --packages))
[[ ${1:-} != --packages ]] || { echo "${missing[@]}"; exit; }
nothing_is_missing aarch64
[[ $(uname -m) == x86_64 ]] || cannot aarch64 "this machine is no x86-64 (on AArch64 ci/test.sh is what to run)"
[[ -d $(rustc --print target-libdir --target "$arm") ]] ||
    cannot aarch64 "rustc has no standard library for it (rustup target add $arm)"

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64
# The cross compiler's C library.
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
# What more seeds find does not depend on the processor.
export SHMEM_SIM_SEEDS=${SHMEM_SIM_SEEDS:-3} PROPTEST_CASES=${PROPTEST_CASES:-16}
native=$target/debug
programs=$target/$arm/debug
dir=$(mktemp -d /tmp/aarch64.XXXXXX)
at_exit 'rm -rf "$dir"'

build() {
    cargo build --quiet --workspace --bin shmrun --bin conformance --bin xtask --example ring
    cargo build --quiet "${npb_optimised[@]}" --target "$arm" -p shmem-core -p shmem-launch -p npb-ports -p shmem-tests -p shmem-examples \
        --bin shmem-info --bin shmrun --bin 'npb-*' --bin conformance --example ring --example histogram
    c_programs
}

# With the library as users install it for another machine.
c_programs() {
    local file
    "$native/xtask" install --target "$arm" --profile dev --prefix "$dir/c"
    for file in bin/shmrun bin/shmem-info lib/libshmem.so lib/libshmem_pmi2.so lib/shmem/note.o; do
        readelf -h "$dir/c/$file" | grep -q 'Machine: *AArch64' || { echo "$file is not for AArch64" >&2; return 1; }
    done
    qemu-aarch64 "$dir/c/bin/shmem-info" | grep 'software HCA: always there'
    export OSHCC_CC=aarch64-linux-gnu-gcc OSHCXX_CXX=aarch64-linux-gnu-g++
    mkdir "$dir/objects"
    for file in tests/c/*.c; do echo "$file" "$dir/objects/$(basename "$file" .c).o"; done |
        xargs -P "$(nproc)" -L 1 sh -c '"$0" -std=gnu11 -O1 -Wall -Wextra -Werror -c "$1" -o "$2"' "$dir/c/bin/oshcc"
    "$dir/c/bin/oshcc" "$dir"/objects/*.o -o "$dir/conformance"
    "$dir/c/bin/oshc++" -std=gnu++11 -O1 -Wall -Wextra -Werror tests/c/cxx.cpp -o "$dir/cxx"
    "$dir/c/bin/oshcc" -static-libshmem examples/c/ring.c -o "$dir/ring"
    # For the virtual machine, with the library in it.
    mkdir -p "$programs/c"
    "$dir/c/bin/oshcc" -static-libshmem "$dir"/objects/*.o -o "$programs/c/conformance"
}

# Of what is written for this processor alone. Elsewhere they are those of this machine.
lints() {
    cargo clippy --version >/dev/null 2>&1 || { skipped lints "there is no cargo clippy"; return 0; }
    cargo clippy --quiet --target "$arm" -p shmem-core -p shmem-capi -p shmem-node -p shmem-launch -p npb-kernels -p npb-ports \
        -- -D warnings
}

unit() {
    local tested=(-p shmem-core -p shmem-node -p shmem-pmi -p shmem-launch -p shmem-verbs -p shmem-soft -p shmem-connect -p shmem-ib
        -p shmem-capi --lib)
    # Root runs again what tests report as skipped, and cannot run programs of another processor.
    unset SHMEM_TEST_SKIPPED
    # Not those that execute their own program again (also in a user namespace), which the kernel of this machine cannot, or ask
    # the loader's list of libraries, which is that of this machine, or read in /proc which threads there are and which
    # signals they block: there are those of the emulator.
    local status=0
    cargo test --quiet --no-fail-fast --target "$arm" "${tested[@]}" -- --skip the_peer_may_be_in_another_pid_namespace \
        --skip libraries_of_a_program_are_found_with_theirs --skip sys::stop::tests --skip template::lost::tests \
        --skip a_peer_that_may_be_anybody_is_not_taken_for_the_own_user || status=1
    cargo test --quiet --target "$arm" -p shmem-ib --test soft -- conformance:: endpoint:: || status=1
    return "$status"
}

# Launchers: of AArch64, and of this machine. PEs begin as programs of this machine, which emulate.
emulated() { timeout 1200 qemu-aarch64 "$programs/shmrun" "$@"; }
mixed() { timeout 1200 "$native/shmrun" "$@"; }
# job OPTIONS PROGRAM...: of AArch64, under both.
job() {
    local options=$1 shmrun
    shift
    for shmrun in emulated mixed; do
        echo "-- $shmrun $options ${*##*/}"
        # shellcheck disable=SC2086 # words
        $shmrun $options qemu-aarch64 "$@"
    done
}

rust() {
    local options kernel
    for options in "-n 4" "-n 4 --nodes 2"; do job "$options" "$programs/conformance"; done
    job "-n 16 --nodes 2" "$programs/examples/ring"
    job "-n 4 --nodes 2" "$programs/npb-ep" --class S
    # Each has vectors of its own, and FT's are instructions of this processor by name.
    for kernel in $(npb_programs); do
        echo "-- $kernel"
        mixed -n 4 --nodes 2 qemu-aarch64 "$programs/$kernel" --class S | grep -i 'verification *= *successful'
    done
    echo "-- PEs of this machine under an emulated launcher"
    emulated -n 4 --nodes 2 "$native/conformance"
}

c() {
    local file options
    for options in "-n 3" "-n 4 --nodes 2"; do
        for file in conformance cxx ring; do job "$options" "$dir/$file"; done
    done
}

# What is given to others: its programs and libraries are for AArch64, and run.
archive() {
    local name file elf=0
    "$native/xtask" dist --target "$arm" --profile dev --out "$dir/packages"
    name=$(basename "$dir"/packages/shmem-*-aarch64-linux-gnu.tar.gz .tar.gz)
    tar -xf "$dir/packages/$name.tar.gz" -C "$dir"
    for file in "$dir/$name"/bin/* "$dir/$name"/lib/*.so.?.*; do
        # Others are scripts.
        readelf -h "$file" >"$dir/header" 2>/dev/null || continue
        echo "${file#"$dir/"}: $(sed -n 's/ *Machine: *//p' "$dir/header")"
        grep -q 'Machine: *AArch64' "$dir/header" || return 1
        elf=$((elf + 1))
    done
    # shmrun, shmem-info, and two libraries.
    [[ $elf -ge 4 ]] || return 1
    timeout 1200 qemu-aarch64 "$dir/$name/bin/shmrun" -n 2 qemu-aarch64 "$dir/$name/bin/shmem-info" >/dev/null
}

[[ ${1:-} != @(lints|unit) ]] || { "$1"; exit; }
stage "build" build
[[ $stages_failed == 0 ]] || stages ci/aarch64.sh
beside "pages of 16 KiB" env VM_ARCH=aarch64 ci/vm.sh
stage "lints" lints
stage "unit tests" unit
stage "jobs of Rust programs" rust
stage "jobs of C and C++ programs" c
stage "an archive for others" archive
stages ci/aarch64.sh
