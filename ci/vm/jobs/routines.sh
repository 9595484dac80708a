# vm: one
# shows: every routine of the library over real verbs, on emulated nodes, one device each
source /host/jobs/common.sh
# Registered as the checks allocate.
export SHMEM_HCA=$HCA SHMEM_SYMMETRIC_SIZE=256M
status=0
for layout in "4 2" "3 3"; do
    read -r pes nodes <<<"$layout"
    result=0
    limited shmrun -n "$pes" --nodes "$nodes" conformance >/tmp/out 2>&1 || result=$?
    cat /tmp/out
    show "$pes PEs on $nodes nodes: status $result, $(tail -1 /tmp/out)"
    [[ $result == 0 ]] || status=1
done
exit $status
