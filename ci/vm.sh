#!/usr/bin/env bash
# Runs jobs on real verbs where no RDMA device is: a Debian kernel with Soft-RoCE under QEMU's
# software emulation, which needs no privileges and no network. Jobs are the files of ci/vm/jobs; each
# says whether it wants one machine with two devices, or two machines with one device each.
# Usage: ci/vm.sh [--packages | --list | JOB...]
# Without jobs: all of them but those that measure, and prove nothing; of another architecture, those that name it.
#   VM_ARCH           the guests' architecture: x86_64, or aarch64, whose kernel has pages of 16 KiB (x86_64)
#   --packages        prints the Debian packages that are missing
#   --list            prints the jobs
#   VM_DIR            where the kernel and the results are kept (target/vm, target/vm-aarch64)
#   SHMEM_TEST_REQUIRE=all   fail, where it would otherwise say why it cannot run and pass
#   VM_CPUS, VM_MEMORY   processors (2) and megabytes (2048) of a machine
#   SOS_PREFIX        where Sandia OpenSHMEM is installed, for jobs that put others beside this library
source "$(dirname "$0")/common.sh"
export VM_ARCH=${VM_ARCH:-x86_64}
dir=$target/vm
[[ $VM_ARCH == x86_64 ]] || dir=$target/vm-$VM_ARCH
dir=$(realpath -m "${VM_DIR:-$dir}")
jobs_dir=ci/vm/jobs

# What a job's file says about it, in a line such as `# vm: one`.
about() { sed -n "s/^# $2: //p" "$jobs_dir/$1.sh"; }
all=()
for file in "$jobs_dir"/*.sh; do
    name=$(basename "$file" .sh)
    [[ -z $(about "$name" vm) ]] || all+=("$name")
done

packages=
wanted=()
for argument in "$@"; do
    case $argument in
    --packages) packages=1 ;;
    --list)
        for name in "${all[@]}"; do printf '%-16s %-4s %s\n' "$name" "$(about "$name" vm)" "$(about "$name" shows)"; done
        exit
        ;;
    *)
        if [[ " ${all[*]} " != *" $argument "* ]]; then
            echo "no job $argument; there are: ${all[*]}" >&2
            exit 2
        fi
        wanted+=("$argument")
        ;;
    esac
done
if [[ ${#wanted[@]} -eq 0 ]]; then
    for name in "${all[@]}"; do
        case " $(about "$name" arch) " in
        *" $VM_ARCH "*) ;;
        *) [[ -z $(about "$name" arch) && $VM_ARCH == x86_64 ]] || continue ;;
        esac
        [[ -n $(about "$name" measures) ]] || wanted+=("$name")
    done
fi

need busybox-static busybox
need binutils readelf
need cpio cpio
need kmod depmod modprobe
need xz-utils xz
need zstd zstd
# What is skipped where it cannot run, as tests/kit/needs has it.
as=vm
need dropbear-bin dropbear dbclient dropbearkey
case $VM_ARCH in
x86_64)
    need qemu-system-x86 qemu-system-x86_64
    need iproute2 ip rdma tc
    need ibverbs-utils ibv_devinfo ibv_rc_pingpong
    need ibverbs-providers '/usr/lib/*/libibverbs/librxe-rdmav*.so'
    machine=(qemu-system-x86_64 -cpu max)
    console=ttyS0
    ;;
aarch64)
    as=aarch64
    need qemu-system-arm qemu-system-aarch64
    need gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc aarch64-linux-gnu-strip
    # One that has pages of 16 KiB, and is emulated faster than one that has everything.
    machine=(qemu-system-aarch64 -machine virt -cpu neoverse-n1)
    console=ttyAMA0
    ;;
*)
    echo "VM_ARCH=$VM_ARCH: x86_64 or aarch64" >&2
    exit 2
    ;;
esac
[[ -z $packages ]] || { echo "${missing[@]}"; exit; }
nothing_is_missing "$as"
[[ $(uname -m) == x86_64 ]] || cannot "$as" "the host's programs are for $(uname -m), and guests are made on x86_64"

began=$SECONDS
mkdir -p "$dir"
bash ci/vm/image.sh "$dir" || cannot "$as" "no kernel or no file system for the guest"
echo "-- kernel and file system: $((SECONDS - began)) s"
began=$SECONDS
bash ci/vm/programs.sh "$dir/share/bin"
echo "-- programs: $((SECONDS - began)) s"

# What the guests see as /host.
share=$dir/share
rm -rf "$share"/{jobs,logs,key*}
mkdir -p "$share/logs"
cp -r "$jobs_dir" "$share/jobs"
dropbearkey -t ed25519 -f "$share/key" 2>/dev/null | grep '^ssh-' >"$share/key.pub"

running=()
finish() {
    # A signal may have come between the fork and the entry in the list, so ask the shell too.
    local pid
    for pid in "${running[@]}" $(jobs -p); do kill "$pid" 2>/dev/null || true; done
    wait
    rm -f "$dir"/wire[12]
}
at_exit finish

# Jobs that put other libraries beside ours need what those look for at run time, which is much: the guest gets the
# host's file system to read.
rivals=()
for name in "${wanted[@]}"; do
    [[ -n $(about "$name" rivals) ]] || continue
    rivals=(-virtfs "local,path=/,mount_tag=system,security_model=none,multidevs=remap,readonly=on")
    bash ci/vm/rivals.sh "$share"
    break
done

# A job, and a machine, that hangs is ended. A machine that others use, too, takes ten times as long as a quiet one; .ci/run has a
# limit of its own.
job_limit=1h machine_limit=3h
[[ -z ${SHMEM_CI:-} ]] || job_limit=10m machine_limit=25m
echo "$job_limit" >"$share/limit"

# Starts a machine whose console goes to a file: its node (0: alone).
boot() {
    local node=$1 wire=(-nic none)
    if [[ $node != 0 ]]; then
        # An Ethernet of two machines over datagrams between two sockets; neither waits for the other.
        local other=$((3 - node))
        wire=(-netdev "dgram,id=wire,local.type=unix,local.path=$dir/wire$node,remote.type=unix,remote.path=$dir/wire$other"
            -device "virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0$node,romfile=")
    fi
    timeout -k 5 "$machine_limit" "${machine[@]}" -nodefaults -nographic -no-reboot -monitor none -serial stdio \
        -accel tcg,thread=multi -smp "${VM_CPUS:-2}" -m "${VM_MEMORY:-2048}" \
        -kernel "$dir/vmlinux" -initrd "$dir/initramfs" -device virtio-rng-pci "${wire[@]}" \
        -virtfs "local,path=$share,mount_tag=host,security_model=none,multidevs=remap" "${rivals[@]}" \
        -append "console=$console panic=-1 quiet mitigations=off no_timer_check preempt=full maxcpus=1 vm_node=$node" \
        </dev/null >"$dir/console$node" 2>&1 &
    running+=($!)
}

# Fails where one of the machines of these nodes, which are those that run, ends before it is up, or is not up after ten minutes.
are_up() {
    local node
    for node in "$@"; do
        until grep -aqs VM-UP "$dir/console$node"; do
            all_run && ((SECONDS - began < 600)) || return 1
            sleep 0.2
        done
    done
}
all_run() {
    local pids
    pids=$(jobs -pr)
    # shellcheck disable=SC2086 # words become arguments
    set -- $pids
    [[ $# == "${#running[@]}" ]]
}
last_words() { tr -d '\r' <"$dir/console$1" | grep -av 'VM-' | tail -20 | sed "s/^/   console$1: /" || true; }

declare -A status seconds
# Runs jobs of one kind (one, two): boots, and boots once more for jobs that a machine which died left without
# a result. Multi-threaded emulation of QEMU 7.2 now and then loses a machine whose kernel changes its own
# code while another processor runs it.
run_jobs() {
    local kind=$1 attempt name node nodes left line began lives
    shift
    nodes=(0)
    [[ $kind == one ]] || nodes=(2 1)
    # The machine that runs the jobs is the last one; it says so and switches itself off.
    local runner=${nodes[-1]}
    for attempt in 1 2; do
        left=()
        for name in "$@"; do [[ -n ${status[$name]:-} ]] || left+=("$name"); done
        [[ ${#left[@]} -gt 0 ]] || return 0
        printf '%s\n' "${left[@]}" >"$share/list"
        [[ $attempt == 1 ]] || echo "-- a machine ended without a result; once more: ${left[*]}"
        rm -f "$dir"/wire[12] "$dir"/console?
        running=()
        began=$SECONDS
        for node in "${nodes[@]}"; do boot "$node"; done
        lives=no
        if are_up "${nodes[@]}"; then
            wait "${running[-1]}" 2>/dev/null || true
            running=("${running[@]:0:${#running[@]}-1}")
            if all_run; then lives=yes; fi
        fi
        for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
        wait
        while read -r _ name line; do
            # What failed because the other machine was gone is no result.
            [[ $lives == yes || $line == 0\ * ]] || continue
            read -r "status[$name]" "seconds[$name]" <<<"$line"
        done < <(tr -d '\r' <"$dir/console$runner" | grep -ao 'VM-JOB .*')
        echo "-- $kind: $((SECONDS - began)) s; $(tr -d '\r' <"$dir/console$runner" |
            sed -n 's/.*VM-UP [0-9] \(.*\) \(.*\)/guest up at \1 s, \2 processors/p')"
        grep -aq 'VM-END' "$dir/console$runner" || last_words "$runner"
        [[ $lives == yes || $kind == one ]] || last_words 2
    done
}
for kind in one two; do
    these=()
    for name in "${wanted[@]}"; do [[ $(about "$name" vm) != "$kind" ]] || these+=("$name"); done
    [[ ${#these[@]} -eq 0 ]] || run_jobs "$kind" "${these[@]}"
done

# Lines of a job that begin with `> ` are what it has to show.
failed=0
printf '\n%-16s %-4s %-8s %8s   %s\n' job vm result seconds shows
for name in "${wanted[@]}"; do
    case ${status[$name]:-none} in
    0) result=ok ;;
    124) result=timeout ;;
    none) result=lost ;;
    *) result=FAILED ;;
    esac
    printf '%-16s %-4s %-8s %8s   %s\n' "$name" "$(about "$name" vm)" "$result" "${seconds[$name]:--}" "$(about "$name" shows)"
    log=$share/logs/$name.log
    [[ ! -e $log ]] || sed -n 's/^> /                        /p' "$log"
    if [[ $result != ok ]]; then
        failed=1
        [[ ! -e $log ]] || tail -25 "$log" | sed 's/^/   | /'
    fi
done
echo "logs: $share/logs"
exit "$failed"
