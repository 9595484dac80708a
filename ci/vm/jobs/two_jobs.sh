# vm: two
# shows: jobs over real verbs on two machines, started by ssh
source /host/jobs/common.sh
status=0
await_node2
job() {
    local how=$1 pes=$2 before result
    shift 2
    echo "== $how, $pes PEs: $*"
    before=$(packets rxe0)
    # shellcheck disable=SC2086 # several variables
    limited env $how shmrun -n "$pes" --hosts node1,node2 --rsh "$RSH" --report /tmp/report "$@"
    result=$?
    cat /tmp/report
    local sent=$(($(packets rxe0) - before))
    [[ $result == 0 ]] || status=1
    [[ $how != *verbs* || $sent -gt 0 ]] || status=1
    show "$(printf '%-36s %2s PEs %-10s status %s, %6s packets' "$how" "$pes" "$1" "$result" "$sent")"
}
job "SHMEM_HCA=soft" 4 ring
for connect in ondemand static; do
    for program in hello ring histogram heat2d "npb-ep S"; do
        # shellcheck disable=SC2086 # a program and its arguments
        job "SHMEM_HCA=verbs SHMEM_CONNECT=$connect" 4 $program
    done
done
exit $status
