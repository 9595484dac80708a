# Sourced by the scripts of ci/, from the repository's root: stages with their seconds, and what must not
# be skipped.
#   SHMEM_TEST_REQUIRE   `all`, or names of tests/require/needs with commas between: these fail where they
#                        would otherwise be skipped
#   SHMEM_TEST_SKIPPED   the file that says what was skipped; tests and scripts append to it
# shellcheck shell=bash

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

# skipped NEED WHY: says that the calling script cannot run, and keeps it; its caller ends then, with
# success. It fails where the need must not be missing.
skipped() {
    local need=$1 why=$2 what
    what=$(sed -n "s/^$need  *//p" tests/require/needs)
    [[ -n $what ]] || { echo "tests/require/needs has no $need" >&2; exit 2; }
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

# A typing mistake must not make a test pass.
required_names_are_known() {
    local name names=${SHMEM_TEST_REQUIRE:-}
    for name in ${names//,/ }; do
        [[ $name == all ]] || grep -q "^$name " tests/require/needs || {
            echo "SHMEM_TEST_REQUIRE=$SHMEM_TEST_REQUIRE: there is no need $name in tests/require/needs" >&2
            exit 2
        }
    done
}

# What the feature `verbs` lacks to be built, as Debian's names of it.
verbs_lack() {
    local PATH=$PATH:/usr/sbin:/sbin
    pkg-config --exists libibverbs 2>/dev/null || echo "libibverbs-dev pkg-config"
    pkg-config --exists librdmacm 2>/dev/null || echo librdmacm-dev
    [[ -n ${LIBCLANG_PATH:-} ]] || ldconfig -p 2>/dev/null | grep -q libclang || command -v llvm-config >/dev/null ||
        compgen -G '/usr/lib*/llvm*/lib*/libclang*' >/dev/null || echo libclang-dev
}

# stage NAME COMMAND...: runs a function or a command. One that fails does not keep the next ones from
# running; `stages` tells in the end.
stage_rows=()
stages_failed=0
stage() {
    local name=$1 began=$SECONDS status rows_before rows result=ok
    shift
    echo "== $name"
    rows_before=$(skipped_rows)
    # Not in a condition, where `set -e` would be without effect inside of functions.
    set +e
    (
        set -e
        "$@"
    )
    status=$?
    set -e
    rows=$(($(skipped_rows) - rows_before))
    [[ $rows == 0 ]] || result="ok, $rows skipped"
    if [[ $status != 0 ]]; then
        result="FAILED ($status)"
        stages_failed=1
        echo "== $name: FAILED ($status)"
    fi
    stage_rows+=("$((SECONDS - began))"$'\t'"$name"$'\t'"$result")
}
skipped_rows() { if [[ -s ${SHMEM_TEST_SKIPPED:-} ]]; then wc -l <"$SHMEM_TEST_SKIPPED"; else echo 0; fi; }

# What was skipped, and how long everything took; ends with the status of the whole.
stages() {
    local row need test why name result seconds
    echo
    if [[ $(skipped_rows) != 0 ]]; then
        printf '%-12s %-60s %s\n' "skipped for" test because
        while IFS=$'\t' read -r need _ test why; do
            printf '%-12s %-60s %s\n' "$need" "$test" "${why:0:160}"
        done <"$SHMEM_TEST_SKIPPED"
    elif [[ -n ${SHMEM_TEST_SKIPPED:-} ]]; then
        echo "nothing was skipped"
    fi
    echo
    printf '%7s  %s\n' seconds stage
    for row in "${stage_rows[@]}"; do
        IFS=$'\t' read -r seconds name result <<<"$row"
        printf '%7d  %-60s %s\n' "$seconds" "$name" "$result"
    done
    printf '%7d  %s\n' "$SECONDS" "all of ${1:-it}"
    exit "$stages_failed"
}
