#!/usr/bin/env bash
# Everything there is: ci/test.sh, every layout, every test that is too long for each run, other launchers, machines and
# processors. As root on Debian it gets what the machine lacks, runs as an ordinary user with 1024 descriptors what such a
# user can run, and nothing may be skipped; as another user it runs what it can and reports what it skips.
# Usage: ci/nightly.sh [--list | --ci | PART...]
#   --list         prints the parts
#   --ci           what .ci/run runs: the parts of each run, and one of the others, in turn
#   PART...        only these, as the caller; soak and netns take the programs that `programs` builds
#   SHMEM_CI_SEED  with --ci: which part has its turn, and which covering array of layouts is tested (from the commit)
#   SHMEM_NIGHTLY_SEEDS, SHMEM_NIGHTLY_FUZZ   seeds of each simulation (20000), and inputs of all fuzz targets (100 million)
[[ -n ${SHMEM_CI:-} || $* != *--ci* ]] || SHMEM_CI=1 exec timeout --kill-after 60 85m "${BASH:-bash}" "$0" "$@"
source "$(dirname "$0")/common.sh"

# part NAME WHEN WHO TITLE: WHEN is `ci` (each run of CI), `turn` (CI takes turns), or `night`; WHO is `user`, `root`, or
# `caller`, who has the caller's own home and toolchain. The function part_NAME runs it.
parts=()
declare -A when=() who=() title=()
part() {
    parts+=("$1")
    when[$1]=$2 who[$1]=$3 title[$1]=$4
}

part programs ci user "jobs in release mode"
part_programs() {
    cargo build "${release[@]}" --bins --examples
    local bin=$target/release
    "$bin/shmrun" -n 4 --nodes 2 "$bin/npb-ep" A
    cargo test "${release[@]}" --test apps
    # What measures checks what it moves.
    "$bin/shmrun" -n 3 --nodes 2 "$bin/p2p" 1 >/dev/null
    "$bin/shmrun" -n 6 --nodes 3 "$bin/first_contact" --stops 1 --stop-ms 100 >/dev/null
    "$bin/shmrun" -n 2 "$bin/pages" 4 --passes 1 >/dev/null
}

part oldest ci caller "the oldest Rust"
# The oldest versions that the manifests promise.
part_oldest() {
    command -v rustup >/dev/null || { echo "ci/nightly.sh oldest: rustup is not installed" >&2; return 1; }
    local benchmarks=(npb-ports npb-kernels shmem-benches shmem-model shmem-figures shmem-tests-apps)
    local version
    check() { CARGO_TARGET_DIR=$target/oldest rustup run "$version" cargo check --quiet "$@"; }
    toolchain() {
        version=$(sed -n 's/^rust-version = "\([^"]*\)".*/\1/p' "$1")
        echo "$1 states $version"
        rustup toolchain list | grep -q "^$version" || rustup toolchain install "$version" --profile minimal --no-self-update
    }
    toolchain Cargo.toml
    check --workspace "${benchmarks[@]/#/--exclude=}" --all-targets
    # Cargo ignores the names of targets beside `--all-targets`, which leaves out tests with `test = false`.
    check -p shmem-ib --test devices
    # The NAS benchmarks, and what depends on them, state a newer version.
    [[ -z ${SHMEM_CI:-} ]] || return 0
    toolchain npb-ports/kernels/Cargo.toml
    check "${benchmarks[@]/#/--package=}" --all-targets
}

part api ci user "public interface"
part_api() { ci/api.sh; }

part pictures ci user "pictures of jobs"
part_pictures() { ci/pictures.sh; }

part slurm ci user "jobs under Slurm"
part_slurm() { ci/slurm.sh; }

part openmpi ci user "Open MPI programs under shmrun"
part_openmpi() { ci/openmpi.sh; }

part pmix ci user "jobs under launchers that speak PMIx"
part_pmix() { ci/pmix.sh; }

part soak ci root "jobs over namespaces that lose packets"
part_soak() { ci/soak.sh 5; }

part netns ci root "jobs on hosts behind ssh, one of them cut off"
part_netns() { ci/netns.sh; }

part arm_lints ci user "lints for AArch64"
part_arm_lints() { ci/aarch64.sh lints; }

part layouts turn user "every layout"
part_layouts() {
    SHMEM_LAYOUTS=all SHMEM_TEST_THOROUGH=1 cargo test -p shmem-tests --test jobs --quiet -- \
        conformance:: lives::on_all c_library::conformance::on_all
}

part ignored turn user "tests that are too long for each run"
# Explorations and benchmarks compute, in release mode: they are the two parts below.
part_ignored() {
    # Tests start them, and `--tests` does not build them.
    cargo build --workspace --examples --quiet
    cargo test --workspace --exclude npb-ports --exclude npb-kernels --exclude shmem-tests-apps --lib --bins --tests \
        --no-fail-fast --quiet -- --ignored --skip explore
}

part simulations turn user "simulations with more seeds, and explorations"
part_simulations() {
    SHMEM_SIM_SEEDS=${SHMEM_NIGHTLY_SEEDS:-20000} cargo test "${release[@]}" --test handshake --test sim -- --include-ignored
}

part benchmarks turn user "benchmarks in release mode"
# The NAS benchmarks and what measures, optimised and without checks of arithmetic, and whether they are vector code. The packages
# beside theirs ask for what the whole workspace asks of its dependencies: without them all would be built again.
part_benchmarks() {
    local theirs=(--release --quiet -p npb-kernels -p npb-ports -p shmem-benches -p shmem-model -p shmem-figures
        -p shmem-examples -p shmem-tests-apps)
    cargo test "${theirs[@]}" --lib --test program --test code -- --include-ignored
    cargo test "${theirs[@]}" --test apps -- --include-ignored
    # Once with checks of arithmetic.
    cargo test --quiet -p npb-kernels -p shmem-tests-apps --lib --test apps "${npb_optimised[@]}" \
        --config profile.dev.package.shmem-tests-apps.opt-level=1
}

part models turn user "models of what threads share"
part_models() { ci/models.sh; }

part package turn user "packages, each built"
part_package() { ci/package.sh --verify; }

part glibc turn user "an archive and a wheel for an old glibc"
part_glibc() { ci/glibc.sh; }

part fuzz turn user "decoders and servers, with random bytes"
part_fuzz() {
    cargo run --quiet --release --config profile.release.overflow-checks=true --config profile.release.debug-assertions=true \
        -p shmem-fuzz --bin campaign -- --total "${SHMEM_NIGHTLY_FUZZ:-100000000}"
}

part vm_verbs turn user "real verbs in a virtual machine"
part_vm_verbs() { ci/vm.sh conformance interop; }

part vm_jobs turn user "jobs on real verbs in virtual machines"
part_vm_jobs() { ci/vm.sh verbs run soft two_jobs marks; }

part dependencies night caller "licences and sources of dependencies, and whether all are used"
part_dependencies() {
    local tools=$target/tools manifest
    CARGO_TARGET_DIR=$tools/build cargo install --quiet --locked --root "$tools" cargo-deny@0.20.2 cargo-machete@0.9.2
    rm -rf "$tools/build"
    for manifest in Cargo.toml fuzz/libfuzzer/Cargo.toml; do
        # cargo-machete would write a lock file that is old.
        cargo metadata --quiet --locked --format-version 1 --manifest-path "$manifest" >/dev/null
        # Advisories are on a server of their own.
        "$tools/bin/cargo-deny" --locked --log-level error --config deny.toml --manifest-path "$manifest" check licenses bans sources
    done
    "$tools/bin/cargo-machete" --with-metadata
}

part sanitizers night user "a Rust program under AddressSanitizer"
# With the library that it is linked with: each routine, on one node and on several, of PEs that are forked and executed.
part_sanitizers() {
    local host dir=$target/address options
    host=$(rustc -vV | sed -n 's/^host: //p')
    cargo build --quiet -p shmem-launch --bin shmrun
    # Only compilers of the nightly channel have the option, or others that are made to take it.
    RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address \
        cargo build --quiet --target "$host" --target-dir "$dir" -p shmem-tests --bin conformance
    for options in "-n 4" "-n 4 --nodes 2" "-n 3 --nodes 3 -x SHMEM_SPAWN=exec"; do
        # shellcheck disable=SC2086 # several words
        ASAN_OPTIONS=detect_leaks=0 "$target/debug/shmrun" $options "$dir/$host/debug/conformance" >/dev/null
    done
    rm -r "$dir"
}

part docs night user "documentation of programs, too"
part_docs() { documentation; }

part vm night user "all jobs of virtual machines"
part_vm() { ci/vm.sh; }

part aarch64 night user "AArch64, emulated"
part_aarch64() { ci/aarch64.sh; }

# Parts that come in smaller pieces for CI.
in_pieces=" vm_verbs vm_jobs arm_lints "

seed=${SHMEM_CI_SEED:-}
mode=night
wanted=()
for argument in "$@"; do
    case $argument in
    --list)
        for name in "${parts[@]}"; do printf '%-12s %-6s %-5s %s\n' "$name" "${when[$name]}" "${who[$name]}" "${title[$name]}"; done
        exit
        ;;
    --ci) mode=ci ;;
    *)
        [[ -n ${title[$argument]:-} ]] || {
            echo "ci/nightly.sh: no part $argument; there are: ${parts[*]}" >&2
            exit 2
        }
        wanted+=("$argument")
        ;;
    esac
done

# As the caller: also how root starts a part as somebody else.
if [[ ${#wanted[@]} == 1 ]]; then
    part_"${wanted[0]}"
    exit
elif [[ ${#wanted[@]} != 0 ]]; then
    begin_skipped
    for name in "${wanted[@]}"; do stage "${title[$name]}" "part_$name"; done
    stages ci/nightly.sh
fi

chosen=()
if [[ $mode == ci ]]; then
    commit=$(git -c safe.directory='*' rev-parse --short=7 HEAD 2>/dev/null || echo 0)
    [[ -n $seed ]] || seed=$((16#$commit))
    [[ $seed =~ ^(0|[1-9][0-9]*)$ ]] || { echo "SHMEM_CI_SEED=$seed: not a number" >&2; exit 2; }
    turns=()
    for name in "${parts[@]}"; do
        case ${when[$name]} in
        ci) chosen+=("$name") ;;
        turn) turns+=("$name") ;;
        esac
    done
    turn=${turns[seed % ${#turns[@]}]}
    chosen+=("$turn")
    # Another covering array in each run.
    export SHMEM_LAYOUTS=${SHMEM_LAYOUTS:-$seed}
    echo "SHMEM_CI_SEED=$seed: the turn of $turn, and the covering array of layouts of that seed"
else
    for name in "${parts[@]}"; do [[ $in_pieces == *" $name "* ]] || chosen+=("$name"); done
fi

only_root() { skipped hosts "only root can run ci/nightly.sh $1"; }
# run NAME COMMAND: with the command `stage` or `beside`.
run() {
    local name=$1 command=$2
    case $(id -u),${who[$name]} in
    0,user) "$command" "${title[$name]}" as_ordinary ci/nightly.sh "$name" ;;
    0,root) "$command" "${title[$name]}" as_root ci/nightly.sh "$name" ;;
    *,root) "$command" "${title[$name]}" only_root "$name" ;;
    *) "$command" "${title[$name]}" ci/nightly.sh "$name" ;;
    esac
}
script=ci/nightly.sh
[[ $mode == night ]] || script=.ci/run
if [[ $(id -u) == 0 ]]; then
    source ci/machine.sh
    stage "packages" packages
    stage "an ordinary user" make_user
    [[ $stages_failed == 0 ]] || stages "$script"
    stage "ci/test.sh as an ordinary user" as_ordinary ci/test.sh
else
    begin_skipped
    stage "ci/test.sh" ci/test.sh
fi
for name in "${chosen[@]}"; do
    # Under emulation a processor is idle half of the time.
    if [[ $name == vm ]]; then run "$name" beside; else run "$name" stage; fi
done
[[ $(id -u) != 0 ]] || stage "what the user skipped, as root" again_as_root
stages "$script"
