# Sourced by all scripts of ci/, which it takes to the repository's root: stages with what they took, packages, and
# what must not be skipped.
#   SHMEM_TEST_REQUIRE   `all`, or names of tests/kit/needs with commas between: these fail where they
#                        would otherwise be skipped
#   SHMEM_TEST_SKIPPED   the file that says what was skipped; tests and scripts append to it
# shellcheck shell=bash

set -euo pipefail
# shellcheck disable=SC2034 # of those who source this
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

# How cargo builds in release mode here: once for all that is run so.
# shellcheck disable=SC2034 # of those who source this
release=(--release --quiet --workspace)

# at_exit COMMAND: runs it when the script ends, however it does, after what was given before.
exit_commands=()
at_exit() {
    exit_commands+=("$1")
    trap 'for command in "${exit_commands[@]}"; do eval "$command"; done' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# skipped NEED WHY: says that the calling script cannot do something, and keeps it. It fails where the need must
# not be missing.
skipped() {
    local need=$1 why=$2 what
    what=$(sed -n "s/^$need  *//p" tests/kit/needs)
    [[ -n $what ]] || { echo "tests/kit/needs has no $need" >&2; exit 2; }
    required_names_are_known
    case ",${SHMEM_TEST_REQUIRE:-}," in
    *,all,* | *",$need,"*)
        echo "SHMEM_TEST_REQUIRE=$SHMEM_TEST_REQUIRE, but $why (it takes $what)" >&2
        exit 1
        ;;
    esac
    echo "skipped: $0: $why (it takes $what)" >&2
    [[ -z ${SHMEM_TEST_SKIPPED:-} ]] ||
        printf '%s\t%s\t%s\t%s\n' "$need" "$0" "$0" "$(tr -s '[:space:]' ' ' <<<"$why")" >>"$SHMEM_TEST_SKIPPED"
}

# Begins the list of what is skipped, unless a script that called this one has begun it.
begin_skipped() {
    [[ -z ${SHMEM_SKIPPED_BEGUN:-} ]] || return 0
    export SHMEM_SKIPPED_BEGUN=yes SHMEM_TEST_SKIPPED=${SHMEM_TEST_SKIPPED:-$target/skipped}
    mkdir -p "$(dirname "$SHMEM_TEST_SKIPPED")"
    : >"$SHMEM_TEST_SKIPPED"
}

# A typing mistake must not make a test pass.
required_names_are_known() {
    local name names=${SHMEM_TEST_REQUIRE:-}
    for name in ${names//,/ }; do
        [[ $name == all ]] || grep -q "^$name " tests/kit/needs || {
            echo "SHMEM_TEST_REQUIRE=$SHMEM_TEST_REQUIRE: there is no need $name in tests/kit/needs" >&2
            exit 2
        }
    done
}

# The calling script cannot run, for lack of a need, and ends, with success where it may be missing.
cannot() {
    skipped "$@"
    exit 0
}

# need PACKAGE WHAT...: a package, by Debian's name, is missing if one of these commands or files (patterns) is.
missing=()
need() {
    local package=$1 what
    shift
    for what in "$@"; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$what" >/dev/null || compgen -G "$what" >/dev/null ||
            { missing+=("$package"); return; }
    done
}
nothing_is_missing() { [[ ${#missing[@]} == 0 ]] || cannot "$1" "these packages are missing (Debian's names): ${missing[*]}"; }

# interruptible COMMAND...: without what a shell does to commands in the background, which is that they ignore SIGINT: jobs of
# tests would ignore it, too.
interruptible() {
    if env --default-signal=INT,QUIT true 2>/dev/null; then env --default-signal=INT,QUIT "$@"; else "$@"; fi
}

# run_tests [--no-run]: all tests but those of documentation, by cargo-nextest where it is installed. Its settings are in
# .config/nextest.toml. Tests wait more than they compute, so there are two for each processor. The NAS benchmarks
# and the jobs of tests/apps compute: ci/nightly.sh runs their tests, in release mode.
run_tests() {
    local tests=(--workspace --exclude npb-ports --exclude npb-kernels --exclude shmem-tests-apps)
    if cargo nextest --version >/dev/null 2>&1; then
        [[ $* == --no-run ]] || set -- --test-threads $((2 * $(nproc)))
        interruptible cargo nextest run --cargo-quiet "${tests[@]}" "$@"
    else
        # With `--examples`, `cargo test` would make the tests in them, of which there are none, and not them.
        cargo build "${tests[@]}" --examples --quiet
        interruptible cargo test "${tests[@]}" --lib --bins --tests --no-fail-fast --quiet "$@"
    fi
}
format() {
    if cargo fmt --version >/dev/null 2>&1; then cargo fmt --all --check; else skipped format "there is no cargo fmt"; fi
}
lints() {
    if cargo clippy --version >/dev/null 2>&1; then
        cargo clippy --workspace --all-targets --quiet -- -D warnings
        # `--all-targets` leaves out tests with `test = false`.
        cargo clippy --workspace --test devices --test apps --quiet -- -D warnings
    else
        skipped lints "there is no cargo clippy"
    fi
}

# documentation [--lib]: of libraries and programs, or of libraries only. With --lib cargo would document the
# libraries for C, too, one of which is also called `shmem`.
documentation() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude shmem-capi --exclude shmem-pmi-c --no-deps \
        --document-private-items --quiet "$@"
}

# The NAS benchmarks in dev mode, where they run: without optimisation they take minutes.
# shellcheck disable=SC2034 # of those who source this
npb_optimised=(--config profile.dev.package.npb-kernels.opt-level=1 --config profile.dev.package.npb-ports.opt-level=1)

# The programs of the NAS benchmarks.
npb_programs() { basename -s .rs npb-ports/src/bin/*.rs; }

# stage NAME COMMAND...: runs a function or a command. One that fails does not keep the next ones from
# running; `stages` tells in the end.
stage_rows=()
stages_failed=0
stages_kept=
beside_group=
stage() {
    local name=$1 rows_before
    shift
    echo "== $name"
    rows_before=$(skipped_rows)
    keep_stages
    # Not in a condition, where `set -e` would be without effect inside of functions.
    set +e
    (measured "$@")
    set -e
    stage_ended "$name" stage $(($(skipped_rows) - rows_before))
}

# beside NAME COMMAND...: begins a stage that goes on beside the next ones, because alone it leaves processors idle.
# `stages` waits for it, and shows what it wrote. There can be one.
beside() {
    beside_name=$1
    shift
    echo "== $beside_name: begins, and goes on beside what follows"
    keep_stages
    # Whoever runs it, which may be another user, says there what it skipped.
    : >"$stages_kept/skipped"
    chmod 666 "$stages_kept/skipped"
    # In a process group of its own, which can be ended as a whole.
    set -m
    (
        [[ -z ${SHMEM_TEST_SKIPPED:-} ]] || export SHMEM_TEST_SKIPPED=$stages_kept/skipped
        measured "$@" >"$stages_kept/beside.said" 2>&1
    ) </dev/null &
    beside_group=$!
    set +m
}
beside_ended() {
    wait "$beside_group" || true
    beside_group=
    echo "== $beside_name"
    cat "$stages_kept/beside.said"
    [[ -z ${SHMEM_TEST_SKIPPED:-} ]] || cat "$stages_kept/skipped" >>"$SHMEM_TEST_SKIPPED"
    stage_ended "$beside_name" beside "$(wc -l <"$stages_kept/skipped")"
}

# In a subshell of its own: what it has to say of a stage is its status, seconds, and seconds of CPU.
measured() {
    local began=$SECONDS status pid=$BASHPID to=$stages_kept/stage
    [[ ${FUNCNAME[1]} != beside ]] || to=$stages_kept/beside
    # Those of the script are not a stage's to run.
    exit_commands=()
    set +e
    (
        set -e
        "$@"
    )
    status=$?
    echo "$status $((SECONDS - began)) $(processor_seconds "$pid")" >"$to"
}
stage_ended() {
    local name=$1 from=$stages_kept/$2 rows=$3 status=killed seconds=0 busy=0 result=ok
    [[ ! -s $from ]] || read -r status seconds busy <"$from"
    rm -f "$from"
    [[ $rows == 0 ]] || result="ok, $rows skipped"
    if [[ $status != 0 ]]; then
        result="FAILED ($status)"
        stages_failed=1
        echo "== $name: FAILED ($status)"
    fi
    stage_rows+=("$seconds"$'\t'"$busy"$'\t'"$name"$'\t'"$result")
}
keep_stages() {
    [[ -z $stages_kept ]] || return 0
    stages_kept=$(mktemp -d)
    chmod 711 "$stages_kept"
    at_exit leave_stages
}
leave_stages() {
    if [[ -n $beside_group ]]; then
        kill -- "-$beside_group" 2>/dev/null || true
        echo "== $beside_name: not waited for"
        cat "$stages_kept/beside.said"
    fi
    rm -rf "$stages_kept"
}

# processor_seconds [PID]: of all that this script, or the process, has started and waited for.
processor_seconds() {
    local fields
    read -ra fields <"/proc/${1:-$$}/stat"
    echo $(((fields[15] + fields[16]) / $(getconf CLK_TCK)))
}
skipped_rows() { if [[ -s ${SHMEM_TEST_SKIPPED:-} ]]; then wc -l <"$SHMEM_TEST_SKIPPED"; else echo 0; fi; }

# What was skipped, how long everything took, and which stages have grown; ends with the status of the whole.
stages() {
    local row need tests why name result seconds busy all
    [[ -z $beside_group ]] || beside_ended
    echo
    if [[ $(skipped_rows) != 0 ]]; then
        printf '%-12s %5s  %s\n' "skipped for" tests "because, for one; what it takes"
        while IFS=$'\t' read -r need tests why; do
            printf '%-12s %5d  %s\n%20s%s\n' "$need" "$tests" "${why:0:160}" "" "$(sed -n "s/^$need  *//p" tests/kit/needs)"
        done < <(sort -u -t $'\t' -k 1,3 "$SHMEM_TEST_SKIPPED" | awk -F '\t' '
            { tests[$1]++; why[$1] = $4 }
            END { for (need in tests) print need "\t" tests[need] "\t" why[need] }' | sort)
        echo "all of these tests: $SHMEM_TEST_SKIPPED"
    elif [[ -n ${SHMEM_TEST_SKIPPED:-} ]]; then
        echo "nothing was skipped"
    fi
    echo
    all=$(processor_seconds)
    printf '%7s %7s  %s\n' seconds "of CPU" stage
    for row in "${stage_rows[@]}"; do
        IFS=$'\t' read -r seconds busy name result <<<"$row"
        printf '%7d %7d  %-60s %s\n' "$seconds" "$busy" "$name" "$result"
    done
    printf '%7d %7d  %s\n' "$SECONDS" "$all" "all of $1"
    for row in "${stage_rows[@]}"; do
        IFS=$'\t' read -r _ busy name result <<<"$row"
        within_budget "$1" "$name" "$busy"
    done
    within_budget "$1" all "$all"
    exit "$stages_failed"
}

# within_budget SCRIPT STAGE SECONDS: warns if a stage took over a quarter more seconds of CPU than ci/budget has for it.
within_budget() {
    local budget
    budget=$(awk -F '\t' -v script="$1" -v stage="$2" '$1 == script && $2 == stage { print $3 }' ci/budget)
    [[ -n $budget ]] || return 0
    # A few seconds are noise in a short stage.
    if (($3 * 4 > budget * 5 && $3 > budget + 5)); then
        echo "warning: $1: $2: $3 seconds of CPU, over a quarter more than the $budget in ci/budget. If that is meant, change the figure there."
    fi
}
