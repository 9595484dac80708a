# vm: one
# measures: yes
# rivals: yes
# shows: one-sided operations of this library and of others over the same devices: events per operation
# What counts is what is asked of the device. Soft-RoCE's doorbell is a system call, so the kernel's probes see
# doorbells, entries of completion queues and registrations of all processes, and the devices count packets. Times under
# emulation say little, and are in the log.
source /host/jobs/common.sh
export SHMEM_SYMMETRIC_SIZE=32M
calls=${CALLS:-64}
status=0

mount -t tracefs trace /sys/kernel/tracing
# Launchers do not like a machine without a name.
hostname localhost
# The file system of the host, read-only: what the other libraries look for at run time lies there.
system=/system
mkdir -p $system
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro system $system
for dir in proc sys dev; do mount --rbind /$dir $system/$dir; done
mount -t tmpfs tmp $system/tmp
mount -t tmpfs run $system/run
mount --bind /host $system/mnt
there() { chroot $system /usr/bin/env PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp TMPDIR=/tmp LC_ALL=C "$@"; }

probes=/sys/kernel/tracing
for probe in doorbells:rxe_post_send completions:rxe_cq_post registrations:rxe_reg_user_mr queue_pairs:rxe_create_qp; do
    echo "p:rxe/${probe%:*} ${probe#*:}" >>$probes/kprobe_events || status=1
done
echo 1 >$probes/events/rxe/enable
packets=/sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts
export BENCH_COUNTS=$probes/kprobe_profile:$packets:${packets/rxe1/rxe2}
counted() { awk -v name="$1" '$1 == name { print $2 }' $probes/kprobe_profile; }

# Each library runs a program of its own name: so many PEs, and arguments. Every second PE uses the other device.
ours() { SHMEM_HCA=$HCA timeout $LIMIT shmrun -n "$1" --nodes 2 p2p "${@:2}"; }
# With this component Open MPI 4.1 crashes in shmem_finalize.
open_mpi() {
    there OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_osc=^rdma OMPI_MCA_oob_tcp_if_include=lo \
        OMPI_MCA_btl_tcp_if_include=lo SHMEM_SYMMETRIC_SIZE=$SHMEM_SYMMETRIC_SIZE BENCH_COUNTS="$BENCH_COUNTS" UCX_TLS="$tls" \
        timeout -k 5 $LIMIT oshrun --oversubscribe --bind-to none -np "$1" bash -c \
        'UCX_NET_DEVICES=rxe$((OMPI_COMM_WORLD_RANK % 2 + 1)):1 exec /mnt/rivals/p2p-open-mpi "$@"' bash "${@:2}"
}
ucx_rc() { tls=rc_v,self open_mpi "$@"; }
ucx_ud() { tls=ud_v,self open_mpi "$@"; }
# By itself libfabric asks for a longer completion queue than Soft-RoCE has.
sandia() {
    there SHMEM_OFI_PROVIDER='verbs;ofi_rxm' FI_UNIVERSE_SIZE=64 SHMEM_SYMMETRIC_SIZE=$SHMEM_SYMMETRIC_SIZE \
        BENCH_COUNTS="$BENCH_COUNTS" LD_LIBRARY_PATH=/mnt/rivals/sandia-lib \
        timeout -k 5 $LIMIT mpiexec.hydra -iface lo -np "$1" /mnt/rivals/p2p-sandia "${@:2}"
}
libraries=(ours)
[[ ! -e /host/rivals/p2p-open-mpi ]] || libraries+=(ucx_rc ucx_ud)
[[ ! -e /host/rivals/p2p-sandia ]] || libraries+=(sandia)

good=()
for library in "${libraries[@]}"; do
    result=0
    LIMIT=1200 $library 2 0 "$calls" >"/tmp/$library.csv" 2>"/tmp/$library.err" || result=$?
    cat "/tmp/$library.csv" "/tmp/$library.err"
    if [[ $result == 0 ]]; then
        good+=("$library")
    else
        show "$library: status $result: $(grep -av '^$' "/tmp/$library.err" | head -3 | tr '\n' ' ')"
        [[ $library != ours ]] || status=1
    fi
done

show "per operation, PEs 0 and 1 together: doorbells, completions, registrations, packets"
awk -F, -v libraries="${good[*]}" '
    BEGIN { n = split(libraries, library, " ") }
    FNR == 1 { at = FILENAME; sub(/.*\//, "", at); sub(/\.csv$/, "", at) }
    $3 ~ /^(doorbells|completions|registrations|sent_pkts)$/ {
        key = $1 " " $2
        if (!(key in row)) { row[key] = ++rows; name[rows] = key }
        value[key, at, $3] = $5
    }
    END {
        line = sprintf("> %-18s %8s", "operation", "bytes")
        for (l = 1; l <= n; l++) line = line sprintf(" | %-27s", library[l])
        print line
        for (i = 1; i <= rows; i++) {
            split(name[i], part, " ")
            line = sprintf("> %-18s %8s", part[1], part[2])
            for (l = 1; l <= n; l++) {
                k = name[i] SUBSEP library[l] SUBSEP
                line = line sprintf(" | %6.2f %6.2f %5.2f %7.2f", value[k "doorbells"], value[k "completions"],
                    value[k "registrations"], value[k "sent_pkts"])
            }
            print line
        }
    }' $(printf '/tmp/%s.csv ' "${good[@]}")

# Start and end of a job that does nothing, with what is made for it.
export SHMEM_SYMMETRIC_SIZE=4M
show "start and end: PEs, seconds, queue pairs, registrations"
declare -A slow
for pes in 2 16 64; do
    for library in "${good[@]}"; do
        [[ -z ${slow[$library]:-} ]] || continue
        qps=$(counted queue_pairs) regs=$(counted registrations)
        began=$(cut -d' ' -f1 /proc/uptime)
        result=0
        LIMIT=150 $library $pes 0 0 >/tmp/out 2>&1 || result=$?
        ended=$(cut -d' ' -f1 /proc/uptime)
        [[ $result == 0 ]] || head -20 /tmp/out
        # Four times as many would take minutes.
        awk -v a="$began" -v b="$ended" 'BEGIN { exit b - a < 40 }' && slow[$library]=1
        show "$(printf '%-8s %3s PEs: status %s, %6.1f s, %5s queue pairs, %5s registrations' "$library" "$pes" "$result" \
            "$(awk -v a="$began" -v b="$ended" 'BEGIN { print b - a }')" \
            $(($(counted queue_pairs) - qps)) $(($(counted registrations) - regs)))"
    done
done
exit $status
