# vm: one
# measures: yes
# shows: 64 PEs on 8 nodes, static against on-demand: start, memory of the machine, queue pairs
# Times under emulation say nothing but their ratios.
set -e
source /host/jobs/common.sh
export SHMEM_SYMMETRIC_SIZE=256K
pes=64
nodes=8

# A number of the JSON report: of the object with this name, this key.
figure() { sed -n "s/.*\"name\": \"$1\".*\"$2\": \([0-9]*\).*/\1/p" /tmp/report.json | head -1; }
told() { sed -n "s/^$1: \([0-9]*\).*/\1/p" /tmp/out; }

# Runs a pattern of traffic and keeps its figures by mode and pattern. `init` is the time from the
# start of the job to the end of the last PE's init.
declare -A init init_kib kib qps traffic
measure() {
    local mode=$1 pattern=$2 before
    before=$(available)
    SHMEM_CONNECT=$mode shmrun -n $pes --nodes $nodes --report /tmp/report.json footprint "$pattern" >/tmp/out
    cat /tmp/out /tmp/report.json
    init[$mode$pattern]=$(($(figure "last init done" to_ns) / 1000000))
    init_kib[$mode$pattern]=$((before - $(told "available after init")))
    kib[$mode$pattern]=$((before - $(told "available after traffic")))
    qps[$mode$pattern]=$(figure "queue pairs" sum)
    traffic[$mode$pattern]=$(($(told traffic) / 1000))
}
# Init does not depend on what comes after: the least of all runs is the one that was disturbed least.
least() { printf '%s\n' "$@" | sort -n | head -1; }
line() {
    local ratio
    ratio=$(awk -v a="$2" -v b="$3" 'BEGIN { if (b > 0) printf "%.1f", a / b; else print "-" }')
    show "$(printf '  %-34s %9s %9s %7s' "$1" "$2" "$3" "$ratio")"
}

for devices in soft verbs; do
    export SHMEM_HCA=soft
    [[ $devices == soft ]] || export SHMEM_HCA=$HCA
    show "$(printf '%-36s %9s %9s %7s' "$devices" static on-demand ratio)"
    # The first job of a program finds nothing of it in memory.
    measure ondemand none
    for pattern in none ring all; do
        for mode in ondemand static; do measure $mode $pattern; done
    done
    line "ms to the end of the last init" \
        "$(least "${init[staticnone]}" "${init[staticring]}" "${init[staticall]}")" \
        "$(least "${init[ondemandnone]}" "${init[ondemandring]}" "${init[ondemandall]}")"
    line "KiB of the machine after init" "${init_kib[staticnone]}" "${init_kib[ondemandnone]}"
    for pattern in none ring all; do
        name=$pattern
        [[ $pattern != none ]] || name="barriers only"
        line "$name: queue pairs" "${qps[static$pattern]}" "${qps[ondemand$pattern]}"
        line "$name: KiB of the machine" "${kib[static$pattern]}" "${kib[ondemand$pattern]}"
        [[ $pattern == none ]] || line "$name: ms of traffic" "${traffic[static$pattern]}" "${traffic[ondemand$pattern]}"
    done
done
