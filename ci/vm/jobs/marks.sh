# vm: one
# shows: traffic class and partition in the packets of jobs; equal devices shared out among the PEs of a node
source /host/jobs/common.sh
status=0
fails() {
    echo "FAILED: $*"
    status=1
}
SHMEM_HCA=$HCA shmem-info --devices --pes 4 || fails shmem-info

# What goes over the wire while a job runs.
marked() {
    local class=$1
    shift
    limited devices marks "$class" 0xffff env SHMEM_HCA=$HCA "$@" shmrun -n 4 --nodes 2 ring >/tmp/out 2>&1 || fails "$class $*"
    cat /tmp/out
    show "$* $(grep '^traffic class' /tmp/out | tr '\n' ';')"
}
marked 0 SHMEM_TRAFFIC_CLASS=0
marked 106 SHMEM_TRAFFIC_CLASS=106 SHMEM_SL=3
marked 184 SHMEM_TRAFFIC_CLASS=184 SHMEM_PKEY=0xffff SHMEM_RETRY_COUNT=7 SHMEM_ACK_TIMEOUT=1s

# Soft-RoCE knows the default partition only.
if SHMEM_HCA=$HCA SHMEM_PKEY=0x8001 limited shmrun -n 2 --nodes 2 ring >/tmp/out 2>&1; then fails "another partition"; fi
cat /tmp/out
grep -q 'not in partition 0x8001 (SHMEM_PKEY).*0xffff (full member)' /tmp/out || fails "no word of the partition"

# Both devices, taken by turns.
sent() { packets "rxe$1"; }
before=($(sent 1) $(sent 2))
SHMEM_HCA=verbs limited shmrun -n 4 --nodes 2 ring || fails "devices by turns"
after=($(sent 1) $(sent 2))
more=($((after[0] - before[0])) $((after[1] - before[1])))
[[ ${more[0]} -gt 0 && ${more[1]} -gt 0 ]] || fails "one device was not used: ${more[*]}"
show "SHMEM_HCA=verbs, two PEs a node: ${more[0]} packets of rxe1, ${more[1]} of rxe2"
exit $status
