# vm: one
# arch: aarch64
# shows: pages that are not of 4 KiB: every routine of Rust and of C, with statics, over the software HCA; some over Soft-RoCE
source /host/jobs/common.sh
size=$(getconf PAGESIZE)
show "getconf PAGESIZE: $size, $(uname -m), Linux $(uname -r)"
status=0
[[ $size == 16384 ]] || status=1
job() {
    local hca=$1 pes=$2 nodes=$3 result=0 began=$SECONDS
    shift 3
    SHMEM_HCA=$hca limited shmrun -n "$pes" --nodes "$nodes" "$@" >/tmp/out 2>&1 || result=$?
    cat /tmp/out
    show "$(printf '%-10s %s PEs, %s nodes: %-14s status %s, %3s s: %s' "$hca" "$pes" "$nodes" "$1" "$result" \
        $((SECONDS - began)) "$(grep -v '^ *$\|Version' /tmp/out | tail -1)")"
    [[ $result == 0 ]] || status=1
}
export SHMEM_SYMMETRIC_SIZE=64M
for nodes in 1 2; do
    job soft 4 "$nodes" conformance
    job soft 4 "$nodes" c-conformance
    job soft 4 "$nodes" ring
    job soft 4 "$nodes" npb-ep S
done
job "$HCA" 4 2 ring
job "$HCA" 4 2 histogram
# A heap of which parts are registered as they are used.
SHMEM_HEAP_REGISTER=grow job "$HCA" 4 2 conformance first_contact_after_growth growth_while_connected
exit $status
