# vm: one
# shows: heaps registered whole and in parts with real verbs: results, and what it takes of the machine
source /host/jobs/common.sh
export SHMEM_HCA=rxe1,rxe2
status=0
run() {
    limited shmrun "$@" >/tmp/out 2>&1
    local result=$?
    cat /tmp/out
    return $result
}

# Everything in the library across parts, in a heap that no machine of this size can pin for all.
for choice in auto grow; do
    if SHMEM_HEAP_REGISTER=$choice SHMEM_SYMMETRIC_SIZE=256M run -n 4 --nodes 2 --report /tmp/report conformance \
        first_contact_after_growth growth_while_connected growth_is_used_again growth_while_others_put; then
        show "$choice: $(tail -1 /tmp/out); $(grep 'memory of the heap registered' /tmp/report)"
    else
        status=1
        show "$choice: failed: $(tail -1 /tmp/out)"
    fi
done
# The first job of a program finds nothing of it in memory.
SHMEM_HEAP_REGISTER=grow run -n 4 --nodes 2 footprint none || status=1
# What a heap of 64 MiB takes of the machine, of which the program uses little.
declare -A taken
for choice in grow whole; do
    before=$(available)
    export SHMEM_HEAP_REGISTER=$choice SHMEM_SYMMETRIC_SIZE=64M
    shmrun -n 4 --nodes 2 --report /tmp/report footprint none >/tmp/out 2>&1 || status=1
    cat /tmp/out /tmp/report
    after=$(sed -n 's/^available after init: \([0-9]*\).*/\1/p' /tmp/out)
    taken[$choice]=$((before - after))
    show "$choice: ${taken[$choice]} KiB of the machine after init; $(grep 'memory of the heap registered' /tmp/report)"
    show "$choice: $(grep 'registering the heap' /tmp/report)"
done
# Four heaps of 64 MiB at once, or the first parts of them: far apart, however the machine counts.
[[ ${taken[whole]} -gt $((150 << 10)) && ${taken[grow]} -lt $((100 << 10)) ]] || status=1
# More than there is: refused, with advice.
if SHMEM_HEAP_REGISTER=whole SHMEM_SYMMETRIC_SIZE=600M run -n 4 --nodes 2 hello; then status=1; fi
show "$(grep -m1 registering /tmp/out)"
grep -q SHMEM_HEAP_REGISTER=grow /tmp/out || status=1
if SHMEM_HEAP_REGISTER=odp run -n 2 --nodes 2 hello; then status=1; fi
show "$(grep -m1 odp /tmp/out)"
exit $status
