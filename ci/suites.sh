#!/usr/bin/env bash
# Foreign OpenSHMEM test suites, unmodified, through our compiler wrappers and launcher.
#
#   ci/suites.sh [--suite NAME]... [--prefix DIR] [--layouts LIST] [--only PROGRAM] DIR
#
# DIR gets the sources (cloned from GitHub unless they are there: tests-sos, specification,
# tests-uh, tests-mellanox; shmem4py from PyPI) and the programs; it lies outside of the repository. Without --prefix the library is
# built and installed below DIR first. A layout is PESxNODES. Suites: sos-unit, sos-old, sos-spec,
# spec-examples, uh, mellanox-mpi, shmem4py.
#
# Each run gives a line `RESULT suite program layout verdict seconds`, with a verdict of pass, fail,
# timeout, build (does not compile) or skip; a table follows. A failure that the specification
# explains is listed with its reason in ci/suites.exceptions and counts as `known`. The script fails
# if anything else than pass, skip and known is left.
#
# OSHCC, OSHCXX and OSHRUN take the place of ours, for comparing other libraries. MPICC is the compiler for programs
# that use MPI, too (mpicc.mpich or mpicc, if it is there; else they are skipped).
source "$(dirname "$0")/common.sh"

suites=() prefix='' layouts='2x1 4x1 2x2 4x2 4x4' only=''
while [ $# -gt 1 ]; do
    case $1 in
        --suite) suites+=("$2") ;;
        --prefix) prefix=$2 ;;
        --layouts) layouts=${2//,/ } ;;
        --only) only=$2 ;;
        *) echo "suites.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done
[ $# = 1 ] || { echo "usage: ci/suites.sh [--suite NAME]... [--prefix DIR] DIR" >&2; exit 2; }
dir=$(cd "$called_from" && realpath -m "$1")
mkdir -p "$dir"
case $dir/ in "$PWD"/*) echo "suites.sh: $dir is inside the repository" >&2; exit 2 ;; esac
[ ${#suites[@]} -gt 0 ] || suites=(sos-unit sos-old sos-spec spec-examples uh mellanox-mpi shmem4py)
limit=${SUITE_TIMEOUT:-120}

if [ -z "${OSHCC:-}" ] && [ -z "$prefix" ]; then
    prefix=$dir/prefix
    cargo xtask install --prefix "$prefix"
fi
: "${MPICC:=$(command -v mpicc.mpich || command -v mpicc || true)}"
: "${OSHCC:=$prefix/bin/oshcc}" "${OSHCXX:=$prefix/bin/oshc++}" "${OSHRUN:=$prefix/bin/oshrun}"

source_of() { # repository
    [ -d "$dir/$1" ] || git clone --quiet --depth 1 "https://github.com/openshmem-org/$1" "$dir/$1"
}

results=$dir/results.txt
: >"$results"
say() { echo "RESULT $*" | tee -a "$results"; }

known() { # suite program layout: is this failure explained?
    local suite program layouts
    while read -r suite program layouts _; do
        # shellcheck disable=SC2053 # the layouts are a pattern
        if [[ $suite = "$1" && $program = "$2" && $3 = $layouts ]]; then return 0; fi
    done <ci/suites.exceptions
    return 1
}

# Runs a program on all layouts. The rest of the arguments: status that it must have, and a word that
# its output must have and one that it must not have ('' for none).
run() { # suite program binary status wanted unwanted
    local suite=$1 program=$2 binary=$3 status=$4 wanted=$5 unwanted=$6
    local layout pes nodes log begin got verdict
    for layout in $layouts; do
        pes=${layout%x*} nodes=${layout#*x}
        log=$binary.$layout.log
        local command=($OSHRUN -np "$pes")
        [ "$nodes" = 1 ] || command+=(--nodes "$nodes")
        begin=$(date +%s.%N) got=0
        (cd "$(dirname "$binary")" && timeout "$limit" "${command[@]}" "$binary") >"$log" 2>&1 </dev/null || got=$?
        verdict=pass
        if [ $got = 124 ]; then verdict=timeout
        elif [ $got != "$status" ]; then verdict=fail; echo "[exit status $got, not $status]" >>"$log"
        elif [ -n "$wanted" ] && ! grep -q "$wanted" "$log"; then verdict=fail
        elif [ -n "$unwanted" ] && grep -q "$unwanted" "$log"; then verdict=fail
        fi
        if [ $verdict != pass ] && known "$suite" "$program" "$layout"; then verdict=known; fi
        say "$suite" "$program" "$layout" $verdict "$(echo "$(date +%s.%N) $begin" | awk '{printf "%.2f", $1 - $2}')"
    done
}

# Compiles a program with the command that follows the words for `run`, and runs it if that worked.
build_and_run() { # suite program status wanted unwanted command...
    local suite=$1 program=$2 status=$3 wanted=$4 unwanted=$5
    shift 5
    [ -z "$only" ] || [ "$only" = "$program" ] || return 0
    local binary=$dir/bin/$suite/$program
    mkdir -p "$dir/bin/$suite"
    if ! "$@" -o "$binary" >"$binary.build.log" 2>&1; then
        if known "$suite" "$program" build; then say "$suite" "$program" build known 0
        else say "$suite" "$program" build build 0; fi
    elif [ "$status" = none ]; then
        say "$suite" "$program" build pass 0 # a part of a program
    else
        run "$suite" "$program" "$binary" "$status" "$wanted" "$unwanted"
    fi
}

# A program that uses MPI, too: as build_and_run, with what is behind the compiler.
build_and_run_with_mpi() { # suite program status wanted unwanted arguments...
    local suite=$1 program=$2 words=("${@:1:5}") library
    shift 5
    [ -n "$MPICC" ] || { say "$suite" "$program" - skip 0; return; }
    library=$(dirname "$MPICC")/../lib
    OSHCC_CC=$MPICC build_and_run "${words[@]}" "$OSHCC" "$@" -Wl,-rpath,"$(realpath "$library")"
}

# The C and C++ programs that a Makefile.am of tests-sos lists.
listed() {
    awk '/^check_PROGRAMS/ { on = 1 } on { print } on && !/\\$/ { on = 0 }' "$1" |
        sed 's/check_PROGRAMS *+*= *//; s/\\//' | tr -s ' \t' '\n\n' | grep -Ev '^$|_f$'
}

sos() { # suite directory option
    local suite=$1 from=$dir/tests-sos/test/$2 program
    source_of tests-sos
    local flags=(-O1 -g -w $3 -I"$dir/tests-sos/test/include")
    for program in $(listed "$from/Makefile.am"); do
        local sources=("$from/$program.c") compile=("$OSHCC" -std=gnu11 "${flags[@]}") extra=(-lm)
        case $program in
            hybrid_mpi*)
                build_and_run_with_mpi "$suite" "$program" 0 "PE 1" '' -std=gnu11 "${flags[@]}" "${sources[@]}"
                continue
                ;;
            rma_coverage_pshmem) sources=("$from/rma_coverage.c") extra+=(-DTEST_PSHMEM) ;;
            query_thread_funneled) sources=("$from/query_thread.c") extra+=(-DENABLE_THREADS) ;;
            mt_lock_test) sources+=("$from/mt_lock.c") extra+=(-pthread) ;;
            mt_* | threading | web | thread_wait) extra+=(-pthread) ;;
            shmem_ctx) extra+=(-fopenmp) ;;
        esac
        if [ -f "$from/$program.cpp" ]; then
            sources=("$from/$program.cpp") compile=("$OSHCXX" "${flags[@]}")
        fi
        if [ -n "$3" ] && ! grep -q "${3#-D}" "${sources[@]}"; then continue; fi
        build_and_run "$suite" "$program" 0 '' '' "${compile[@]}" "${sources[@]}" "${extra[@]}"
    done
}

spec_examples() {
    local from=$dir/specification/example_code file program
    source_of specification
    for file in "$from"/*.c; do
        program=$(basename "$file" .c)
        local compile=("$OSHCC" -O1 -g -w "$file" -lm) status=0 wanted=''
        case $program in
            hybrid_mpi*) build_and_run_with_mpi spec-examples "$program" 0 "PE 1" '' -O1 -g -w "$file"; continue ;;
            pshmem_* | shmem_scan_example) compile+=(-c) status=none ;; # parts of programs
            shmem_ctx | shmem_ctx_invalid) compile+=(-fopenmp) ;;
            shmem_global_exit_example) status=1 ;; # the file that it asks for is not there
        esac
        build_and_run spec-examples "$program" $status "$wanted" '' "${compile[@]}"
    done
}

uh() {
    local from=$dir/tests-uh/feature_tests/C file program
    source_of tests-uh
    for file in "$from"/*.c; do
        program=$(basename "$file" .c)
        local status=0 wanted=Passed
        # The suite's own list says what each must give.
        case $(grep "^$program.x" "$from/test_parameters.conf") in
            *ExitCode99*) status=99 wanted='' ;;
        esac
        build_and_run uh "$program" $status "$wanted" 'Failed' "$OSHCC" -g -O0 -w "$file" -lm
    done
}

# The part of the suite that uses MPI besides. It leaves MPI_Init to start_pes, as only a library that is one with
# MPI does; so a main of ours calls it first.
mellanox_mpi() {
    local from=$dir/tests-mellanox/verifier made=$dir/mellanox-mpi case
    source_of tests-mellanox
    mkdir -p "$made"
    printf '#define %s 1\n' HAVE_UNISTD_H ENABLE_MPI >"$made/config.h"
    printf '#define PACKAGE_%s "unmodified"\n' NAME VERSION STRING >>"$made/config.h"
    echo '#define VERSION PACKAGE_VERSION' >>"$made/config.h"
    printf '%s\n' '#include <mpi.h>' '#undef main' 'int suite(int, char **);' 'int main(int argc, char **argv) {' \
        'static char exec[] = "exec", plain[] = "--no-colour", task[] = "--task=mx:" CASE;' \
        'char *words[] = {argv[0], exec, plain, task, 0};' \
        'MPI_Init(&argc, &argv); return suite(4, words) || MPI_Finalize(); }' >"$made/first.c"
    local sources=()
    mapfile -t sources < <(find "$from" -name '*.c' ! -name '*template*')
    for case in tc1 tc2 tc3; do
        build_and_run_with_mpi mellanox-mpi "$case" 0 PASS FAIL -w -fcommon -Dmain=suite -DCASE="\"$case\"" -I"$made" \
            -I"$from" -I"$from/cmn" "$made/first.c" "${sources[@]}" -lm -lpthread
    done
}

# The binding for Python: built as its users build it, in an environment of its own.
shmem4py() {
    local env=$dir/shmem4py-env sources=$dir/shmem4py-1.0.0 file program
    [ -d "$sources" ] || {
        pip3 download --quiet --no-deps --no-binary :all: --dest "$dir" shmem4py==1.0.0
        tar -xf "$sources.tar.gz" -C "$dir"
    }
    [ -x "$env/bin/python" ] || {
        python3 -m venv "$env"
        "$env/bin/pip" install --quiet 'numpy<1.24' cffi setuptools wheel
    }
    PATH=$(dirname "$(command -v "$OSHCC")"):$PATH CFLAGS=-DPySHMEM_VENDOR_Sandia=1 "$env/bin/pip" install --quiet --no-build-isolation \
        --force-reinstall --no-deps --no-cache-dir "$sources.tar.gz"
    for file in "$sources"/test/test_*.py; do
        program=$(basename "$file" .py)
        printf '#!/bin/sh\ncd %q && exec %q -m unittest -q %q\n' \
            "$sources/test" "$env/bin/python" "$program" >"$dir/$program"
        chmod +x "$dir/$program"
        run shmem4py "$program" "$dir/$program" 0 OK FAILED
    done
}

for suite in "${suites[@]}"; do
    case $suite in
        shmem4py) shmem4py ;;
        mellanox-mpi) mellanox_mpi ;;
        sos-unit) sos sos-unit unit '' ;;
        sos-old) sos sos-old unit -DENABLE_DEPRECATED_TESTS ;;
        sos-spec) sos sos-spec spec-example '' ;;
        spec-examples) spec_examples ;;
        uh) uh ;;
        *) echo "suites.sh: no suite $suite" >&2; exit 2 ;;
    esac
done

echo
awk '
    { key = $2 " " $4; keys[key]; n[key " " $5]++; verdicts[$5]; total[key]++ }
    END {
        printf "%-14s %-7s %6s %6s %6s %6s %8s %6s %6s\n", "suite", "layout", "runs", "pass", "known", "fail", "timeout", "build", "skip"
        for (key in keys) {
            split(key, k, " ")
            printf "%-14s %-7s %6d %6d %6d %6d %8d %6d %6d\n", k[1], k[2], total[key], n[key " pass"], n[key " known"], \
                n[key " fail"], n[key " timeout"], n[key " build"], n[key " skip"] | "sort"
        }
    }' "$results"
! grep -Eq ' (fail|timeout|build) [0-9.]+$' "$results"
