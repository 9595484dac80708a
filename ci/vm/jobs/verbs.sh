# vm: one
# shows: jobs over real verbs on two emulated nodes, one device each, on demand and static
source /host/jobs/common.sh
status=0
SHMEM_HCA=$HCA shmem-info || status=1
SHMEM_HCA=soft shmem-info || status=1

# Runs a program over the devices and makes sure that its traffic went through them.
job() {
    local connect=$1 pes=$2 before started ended result
    shift 2
    echo "== $connect, $pes PEs: $*"
    before=$(packets 'rxe[12]')
    started=$(cut -d' ' -f1 /proc/uptime)
    SHMEM_HCA=$HCA SHMEM_CONNECT=$connect limited shmrun -n "$pes" --nodes 2 --report /tmp/report "$@"
    result=$?
    ended=$(cut -d' ' -f1 /proc/uptime)
    cat /tmp/report
    local sent=$(($(packets 'rxe[12]') - before))
    [[ $result == 0 && $sent -gt 0 ]] || status=1
    show "$(printf '%-9s %2s PEs %-10s status %s, %6s packets, %s s' "$connect" "$pes" "$1" "$result" "$sent" \
        "$(awk -v a="$started" -v b="$ended" 'BEGIN { printf "%.1f", b - a }')")"
}
for connect in ondemand static; do
    job $connect 4 hello
    job $connect 4 ring
    job $connect 4 histogram
    job $connect 4 heat2d
    for kernel in /host/bin/npb-*; do job $connect 4 "$(basename "$kernel")" S; done
    job $connect 8 footprint all
done
exit $status
