#!/usr/bin/env bash
# Builds what is packed for systems with an old glibc, an archive and a wheel, and runs jobs with them: of programs in C, linked with
# either library, on one node and on two. `cargo xtask dist` fails by itself where something asks for a newer glibc.
# Usage: ci/glibc.sh [VERSION]
source "$(dirname "$0")/common.sh"
version=${1:-2.28}
cargo-zigbuild zig cc -- --version >/dev/null 2>&1 || cannot zig "cargo-zigbuild or zig is not in PATH"
command -v cc >/dev/null || cannot c "there is no cc"

dir=$(mktemp -d)
at_exit "rm -rf '$dir'"
cat >"$dir/statics.c" <<'END'
#include <shmem.h>
static int inbox;
int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes();
    shmem_int_p(&inbox, me + 1, (me + 1) % n);
    shmem_barrier_all();
    int wrong = inbox != (me + n - 1) % n + 1;
    shmem_finalize();
    return wrong;
}
END
# jobs BIN [OPTION...]: of the program, compiled by the oshcc there.
jobs() {
    local bin=$1 options
    shift
    "$bin/oshcc" "$@" "$dir/statics.c" -o "$dir/statics"
    for options in '-n 4' '-n 4 --nodes 2'; do
        # shellcheck disable=SC2086 # words become arguments
        "$bin/shmrun" $options "$dir/statics"
        echo "$bin/shmrun $options, oshcc $*: passed"
    done
}

cargo xtask dist --glibc "$version" --out "$dir"
tar -xzf "$dir"/shmem-*.tar.gz -C "$dir"
bin=$(echo "$dir"/shmem-*/bin)
"$bin/shmrun" -n 4 --nodes 2 "$bin/shmem-info" >/dev/null
jobs "$bin"
jobs "$bin" -static-libshmem

cargo xtask dist --glibc "$version" --out "$dir" --wheel
python3 -m venv "$dir/env"
"$dir/env/bin/pip" install --quiet --no-index "$dir"/*.whl
jobs "$dir/env/bin"
