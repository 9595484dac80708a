#!/usr/bin/env bash
# The build with feature `verbs` where there is no RDMA device, or only such as nobody asks for here:
# its programs must start without libibverbs, use the software HCA, and say clearly why a device that
# was asked for cannot be had. What devices do is tested by ci/vm.sh.
source "$(dirname "$0")/common.sh"
need binutils readelf
nothing_is_missing c

fail() {
    echo "ci/verbs.sh: $*" >&2
    exit 1
}

echo "-- tests with feature verbs"
cargo test -p shmem-ib -p shmem-device -p shmem-core --features shmem-core/verbs --lib --quiet
cargo test -p shmem-core --features verbs --test info --quiet

echo "-- programs that start anywhere"
cargo build "${release[@]}" --bins --examples
out=$target/release
shmrun="$out/shmrun" hello="$out/examples/hello" ring="$out/examples/ring" info="$out/shmem-info"
for program in "$hello" "$info"; do
    needs=$(readelf -d "$program" | grep NEEDED)
    ! grep -q ibverbs <<<"$needs" || fail "$program does not start without libibverbs: $needs"
    grep -qaF libibverbs.so.1 "$program" || fail "$program was built without feature verbs"
done
grep -q 'built with feature verbs' <<<"$("$info")" || fail "shmem-info does not know how it was built"

echo "-- the software HCA where no device is"
for hca in auto soft; do
    text=$(SHMEM_HCA=$hca "$shmrun" -n 4 --nodes 2 "$ring") || fail "SHMEM_HCA=$hca"
    grep -q 'came back right' <<<"$text" || fail "SHMEM_HCA=$hca: $text"
done

echo "-- a device that is not there"
refused() {
    local text
    if text=$(SHMEM_HCA=$1 "$shmrun" -n 2 --nodes 2 "$hello" 2>&1); then
        fail "SHMEM_HCA=$1 succeeded: $text"
    fi
    grep -q "SHMEM_HCA=$1 cannot be had" <<<"$text" && grep -q shmem-info <<<"$text" ||
        fail "SHMEM_HCA=$1 does not say what is wrong: $text"
}
refused no_such_device
if compgen -G '/sys/class/infiniband/*' >/dev/null; then
    echo "this machine has RDMA devices: SHMEM_HCA=verbs is not expected to fail"
else
    refused verbs
fi

echo "-- lints and documentation with feature verbs"
if cargo clippy --version >/dev/null 2>&1; then
    cargo clippy -p shmem-ib -p shmem-device -p shmem-core --features shmem-core/verbs --all-targets --quiet -- -D warnings
else
    skipped lints "there is no cargo clippy"
fi
RUSTDOCFLAGS="-D warnings" cargo doc -p shmem-ib -p shmem-device -p shmem-core --features shmem-core/verbs --no-deps --document-private-items --quiet
