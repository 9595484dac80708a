#!/usr/bin/env bash
# Runs jobs under Slurm where there is none: a controller and four nodes on this machine's loopback, as
# this user, with a munged of their own, in a directory of their own. All of it ends with this script.
# Usage: ci/slurm.sh [--packages | COMMAND [ARGUMENT...]]
# Without a command: the checks below, of the programs that cargo has built. With one: that, with srun
# and the other commands of Slurm talking to this Slurm (SLURM_CONF).
#   --packages         prints the Debian packages that are missing
#   SHMEM_TEST_REQUIRE=all   fail, where it would otherwise say why it cannot run and pass
#   PROGRAMS           where the built programs are (target/release)
source "$(dirname "$0")/common.sh"
programs=$(realpath -m "${PROGRAMS:-$target/release}")
shmrun=$programs/shmrun
nodes=4

PATH=$PATH:/usr/sbin:/sbin
need munge munged
need slurmctld slurmctld
need slurmd slurmd
need slurm-client srun
need slurm-wlm-basic-plugins '/usr/lib/*/slurm*/mpi_pmi2.so'
# Slurm's plugin for PMIx looks for the name that only the development package has.
need libpmix-dev '/usr/lib/*/pmix2/lib/libpmix.so'
[[ ${1:-} != --packages ]] || { echo "${missing[@]}"; exit; }
nothing_is_missing slurm

# Daemons look for their sockets by absolute paths, which may not be long.
dir=$(mktemp -d /tmp/slurm.XXXXXX)
children() {
    for file in "$dir"/*.pid; do
        [[ -s $file ]] && cat "$file"
    done
    return 0
}
finish() {
    local pids pid
    pids=$(children)
    # Jobs first: slurmd's children are no children of ours.
    [[ -n ${SLURM_CONF:-} ]] && timeout 10 scancel --full --user="$(id -un)" 2>/dev/null || true
    # And commands that wait for what this Slurm no longer does.
    for pid in $pids $(jobs -p); do kill "$pid" 2>/dev/null || true; done
    for _ in {1..50}; do
        for pid in $pids; do
            kill -0 "$pid" 2>/dev/null && sleep 0.1 && continue 2
        done
        break
    done
    # What watches over a step that was ended late waits for a controller that has gone.
    for pid in $(pgrep -x slurmstepd); do
        grep -qzxF "SLURM_CONF=$dir/slurm.conf" "/proc/$pid/environ" 2>/dev/null && pids+=" $pid"
    done
    for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done
    rm -rf "$dir"
}
at_exit finish

mkdir -p "$dir"/{munge,state,spool,log}
chmod 0755 "$dir" "$dir/munge"
host=$(hostname -s)
# Sets of ports, so that two of these scripts at a time have the same ones or none in common.
ports_of() { echo "$1" $(($1 + 1)) $(seq $(($1 + 11)) $(($1 + 10 + nodes))); }
# Whether nobody on this machine has any of these ports.
are_free() {
    local port
    for port in "$@"; do
        ! grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$port") " /proc/net/tcp /proc/net/tcp6 2>/dev/null || return 1
    done
}
for _ in {1..100}; do
    base=$((20000 + RANDOM % 500 * 20))
    # shellcheck disable=SC2046 # Numbers.
    are_free $(ports_of "$base") && break
    base=
done
[[ -n $base ]] || cannot slurm "no ports from 20000 to 29999 are free"
cat >"$dir/slurm.conf" <<END
ClusterName=loop
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
SlurmctldPort=$base
SlurmdPort=$((base + 1))
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
TmpFS=$dir/tmp/%n
ReturnToService=2
TreeWidth=2
KillWait=2
NodeName=n[1-$nodes] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((base + 11))-$((base + 10 + nodes))] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
END
echo CgroupPlugin=cgroup/v1 >"$dir/cgroup.conf"

dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 status=none
chmod 400 "$dir/munge/key"
munged --force --socket="$dir/munge/socket" --key-file="$dir/munge/key" --pid-file="$dir/munged.pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" ||
    cannot slurm "munged does not start"
export SLURM_CONF=$dir/slurm.conf
slurmctld -f "$SLURM_CONF" -c || cannot slurm "slurmctld does not start: $(tail -3 "$dir/log/slurmctld.log")"
for i in $(seq $nodes); do
    # Slurm's PMIx has a directory of its step there, which no two nodes may share.
    mkdir -p "$dir/spool/n$i" "$dir/tmp/n$i"
    slurmd -f "$SLURM_CONF" -N "n$i" || cannot slurm "slurmd does not start: $(tail -3 "$dir/log/slurmd.n$i.log")"
done
idle() { sinfo -h -t idle -o %D 2>/dev/null; }
all_idle() {
    for _ in {1..300}; do
        [[ $(idle) == "$nodes" ]] && return
        sleep 0.1
    done
    return 1
}
all_idle || cannot slurm "the nodes do not come up: $(tail -3 "$dir"/log/*.log)"

if [[ $# -gt 0 ]]; then
    "$@"
    exit
fi

# The nodes have their cores in common, which no PE can know.
export SHMEM_SPIN=0
fail() {
    echo "slurm: FAILED: $*" >&2
    exit 1
}
# Runs a step with PMI-2, or what `mpi` says; what it says goes to $out.
out=$dir/out
mpi=pmi2
step() {
    echo "-- srun --mpi=$mpi $*"
    local status=0
    timeout 300 srun -Q -O --mpi="$mpi" "$@" >"$out" 2>&1 || status=$?
    [[ $status == 0 ]] || { cat "$out"; fail "srun --mpi=$mpi $* ended with $status"; }
}
# Waits for a command that must fail, and not by hanging; `wait` for a job that writes to $out already.
fails() {
    local status=0
    if [[ $1 == wait ]]; then "$@" || status=$?; else "$@" >"$out" 2>&1 || status=$?; fi
    [[ $status != 0 && $status != 124 ]] || { cat "$out"; fail "$*: ended with $status"; }
}
says() { grep -q -- "$1" "$out" || { cat "$out"; fail "nothing says: $1"; }; }
# Processes of this Slurm's jobs, and of no other run of this script.
processes() {
    local dir
    for dir in /proc/[0-9]*; do
        [[ $(readlink "$dir/exe" 2>/dev/null) == "$programs"/* ]] &&
            grep -qzxF "SLURM_CONF=$SLURM_CONF" "$dir/environ" 2>/dev/null && echo "${dir#/proc/}"
    done
    return 0
}
# Memory and sockets of a job have no names in any file system, so they end with its processes.
gone() {
    for _ in {1..1200}; do
        [[ -z $(processes) ]] && return
        sleep 0.1
    done
    fail "$1 left processes behind: $(processes)"
}
for program in shmrun examples/{hello,ring,histogram,pmi_ring} heat2d pmi-process conformance npb-ep lives busy mishaps; do
    [[ -x $programs/$program ]] || fail "$programs/$program is not built"
done

step -N1 -n1 "$programs/examples/ring"
step -N1 -n4 "$programs/examples/ring"
says "round 4 PEs and came back right"
for program in examples/{ring,histogram} heat2d; do
    step -N4 -n8 "$programs/$program"
done
# The same over PMI-1, which this Slurm speaks, too.
step -N4 -n8 env SHMEM_PMI=1 "$programs/examples/ring"
# PMI alone, through its facade.
for version in auto 1 2; do
    for program in "$programs/examples/pmi_ring" "$programs/pmi-process all" "$programs/pmi-process threads"; do
        # shellcheck disable=SC2086 # program and argument
        step -N4 -n8 env SHMEM_PMI=$version $program
    done
done
# Ranks dealt out: 7 on 4 nodes, one by one.
step -N4 -n7 -m cyclic "$programs/examples/ring"
step -N4 -n8 env SHMEM_TRANSPORT=xrc "$programs/examples/histogram"
step -N4 -n8 env SHMEM_CONNECT=static "$programs/examples/ring"
step -N4 -n8 env SHMEM_DEBUG=1 "$programs/examples/ring"
says "PE 7 of 8 on node 3 of 4"
step -N2 -n4 "$programs/lives" 3

mpi=pmix
for nodes_of_step in 1 4; do
    for program in ring histogram; do
        step -N$nodes_of_step -n8 "$programs/examples/$program"
    done
    for what in all threads direct unequal twice; do
        step -N$nodes_of_step -n8 "$programs/pmi-process" $what
        says "rank 7 of 8 ok (PMIx server)"
    done
done
step -N4 -n7 -m cyclic "$programs/examples/ring"
step -N4 -n8 env SHMEM_DEBUG=1 "$programs/examples/ring"
says "PE 7 of 8 on node 3 of 4"
step -N2 -n4 "$programs/conformance"
step -N4 -n8 "$programs/npb-ep" S
step -N2 -n4 "$programs/lives" 3
# Nobody's init waits for other nodes: those of node 3 begin when one of node 0 is through it.
step -N4 -n8 bash ci/late_init.sh "$dir/through" "$programs/examples/hello"
mpi=pmi2

if command -v mpiexec.hydra >/dev/null; then
    echo "-- Hydra in an allocation"
    # With input that does not end: mpiexec writes that to a proxy that may have gone.
    mkfifo "$dir/silent"
    timeout 300 salloc -Q -N4 -n8 mpiexec.hydra -n 8 env SHMEM_DEBUG=1 "$programs/examples/ring" \
        <>"$dir/silent" >"$out" 2>&1 ||
        { cat "$out"; fail "mpiexec.hydra in an allocation"; }
    says "PE 7 of 8 on node 3 of 4"
else
    skipped mpich "there is no mpiexec.hydra"
fi
gone "jobs that ended"

# shmrun in an allocation: its agents are steps of the job, one on each node.
allocation() {
    echo "-- salloc $*"
    local status=0
    timeout 300 salloc -Q "$@" >"$out" 2>&1 || status=$?
    [[ $status == 0 ]] || { cat "$out"; fail "salloc $* ended with $status"; }
}
unsaid() { ! grep -q -- "$1" "$out" || { cat "$out"; fail "something says: $1"; }; }
lines() { [[ $(grep -c -- "$1" "$out") == "$2" ]] || { cat "$out"; fail "not $2 times: $1"; }; }
# shellcheck disable=SC2016 # for the PEs' shell
where='echo "on $SLURMD_NODENAME"'
allocation -O -N4 -n16 "$shmrun" "$programs/examples/ring"
says "round 16 PEs and came back right"
unsaid "cpu binding"
allocation -N4 -n8 "$shmrun" env SHMEM_DEBUG=1 "$programs/examples/ring"
says "PE 7 of 8 on node 3 of 4"
for program in examples/histogram heat2d; do
    allocation -N4 -n8 "$shmrun" -x SHMEM_TREE_DEGREE=2 "$programs/$program"
done
allocation -N1 -n2 "$shmrun" "$programs/examples/ring"
says "round 2 PEs"
# Ranks as Slurm has counted tasks; input, and what is no text, pass through.
allocation -N4 -n7 "$shmrun" --dry-run "$programs/examples/ring"
says "Slurm job [0-9]* has 4 hosts with 7 tasks: n\[1-4\]"
says "node 3 on host n4: PEs 6 to 6,.*srun --overlap.*--nodelist=n4"
(head -c 3000000 /dev/urandom; echo) >"$dir/random"
salloc -Q -N4 -n8 "$shmrun" --stdin 7 sh -c 'cat; exit 0' <"$dir/random" >"$dir/copy" || fail "input does not pass"
cmp "$dir/random" "$dir/copy" || fail "input or output is not what it was"
# Another part of it than all is told.
allocation -N4 -n8 "$shmrun" -n 3 sh -c "$where"
says "the job runs on 2 of the 4 hosts of Slurm job [0-9]*: n\[1-2\]"
lines "^on n1" 2
allocation -N4 -n8 "$shmrun" -N 2 -n 2 sh -c "$where"
lines "^on n[12]" 2
allocation -N4 -n8 "$shmrun" -H n4,n2 sh -c "$where"
lines "^on n[24]" 2
allocation -N4 -n4 "$shmrun" --ppn 3 sh -c "$where"
lines "^on n3" 3
allocation -N4 -n8 "$shmrun" --launcher fork -N 2 -n 4 "$programs/examples/ring"
allocation -N4 -n8 env SHMEM_ALLOCATION=none "$shmrun" -n 2 sh -c "$where"
lines "^on $" 2
fails timeout 60 salloc -Q -N4 -n7 "$shmrun" -n 9 true
says "9 PEs are more than the 7 tasks of Slurm job"
fails timeout 60 srun -Q -N2 -n4 "$shmrun" true
says "srun has started shmrun 4 times"
lines "has started shmrun" 1
fails timeout 60 "$shmrun" --launcher slurm -H n1 true
says "this is no Slurm job: SLURM_JOB_ID is not set"
# What a script asks of its own steps is not asked of the agents', but PEs know of it.
export SLURM_MEM_PER_CPU=1 SLURM_MEM_PER_NODE=2 SLURM_LABELIO=1 SLURM_EXPORT_ENV=NONE SLURM_NTASKS_PER_NODE=1
# shellcheck disable=SC2016 # for the PEs' shell
allocation -N2 -n4 --cpus-per-task=1 "$shmrun" sh -c 'echo "cpus $SLURM_CPUS_PER_TASK label $SLURM_LABELIO"'
unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURM_LABELIO SLURM_EXPORT_ENV SLURM_NTASKS_PER_NODE
lines "^cpus 1 label 1$" 4

# Runs the script; sets state to how its job has ended. What sbatch itself offers for that looks every 10 s.
batch() {
    local job
    job=$(PATH=$dir/home:$PATH sbatch --parsable -O -D "$dir/home" -o "$out" "$dir/script")
    for _ in {1..3000}; do
        state=$(scontrol -o show job "$job" | sed -n 's/.* JobState=\([A-Z]*\) .*/\1/p')
        case $state in PENDING | RUNNING | COMPLETING) sleep 0.1 ;; *) return ;; esac
    done
    fail "the script's job does not end: $state"
}
echo "-- the script of docs/clusters.md"
awk '/^```bash/ { text = ""; next } /^```/ { if (text ~ /#SBATCH/) { printf "%s", text; exit } }
    { text = text $0 "\n" }' docs/clusters.md >"$dir/script"
mkdir "$dir/home"
ln -s "$shmrun" "$programs/examples/ring" "$dir/home"
module() { :; }
export -f module
batch
[[ $state == COMPLETED ]] || { cat "$out"; fail "the script's job: $state"; }
says "^\[0\] .*round 16 PEs and came back right"

# A job that runs, by the pid of what waits for it.
running() {
    local agents
    for _ in {1..600}; do
        grep -qE "^(\[0\] )?round 8$" "$out" && return
        sleep 0.1
    done
    agents=$(processes)
    cat "$out"
    fail "the job does not start; there are: $agents"
}
# Starts a job beside this script, and waits until it runs. What the job before has written goes first: the shell empties the file
# only when it has made a process for the job, and `running` may look before that.
begin() {
    : >"$out"
    timeout 300 "$@" >"$out" 2>&1 &
    job_pid=$!
    running
}
# The processes of the job that runs that have this name. srun has another one behind it that looks after it.
processes_of_job() {
    local pid job parent
    job=$(squeue -h -t R -o %A)
    for pid in $(pgrep -x "$1"); do
        grep -qzxF "SLURM_CONF=$SLURM_CONF" "/proc/$pid/environ" 2>/dev/null &&
            grep -qzxF "SLURM_JOB_ID=$job" "/proc/$pid/environ" 2>/dev/null &&
            parent=$(ps -o ppid= -p "$pid") && # or it has ended meanwhile
            [[ $(ps -o comm= -p "$parent") != "$1" ]] && echo "$pid"
    done
    return 0
}
# An agent whose srun was killed learns of it by silence alone.
export SHMEM_HEARTBEAT_TIMEOUT=4s
echo "-- scancel of shmrun's job"
begin salloc -Q -J busy -N4 -n8 "$shmrun" "$programs/busy"
scancel --name=busy
fails wait "$job_pid"
gone "a job of shmrun that was cancelled"
says "killed by signal 15 (SIGTERM)"
sed -i "s|^#SBATCH --time.*|#SBATCH --job-name=busy|; s|./ring|$programs/busy|" "$dir/script"
: >"$out"
# The warning that the script asks for, before its time is over.
cancelled() {
    running
    scancel --batch --signal=USR1 --name=busy
    for _ in {1..100}; do
        grep -q "what the 16 PEs of this job on 4 nodes wait for" "$out" && break
        sleep 0.1
    done
    scancel --name=busy
}
cancelled &
batch
[[ $state == CANCELLED ]] || { cat "$out"; fail "the script's job: $state"; }
says "what the 16 PEs of this job on 4 nodes wait for"
gone "a script's job that was cancelled"
echo "-- kill -9 of an agent, of an srun, of a PE, of shmrun"
for victim in shmrun-agent srun busy-pe shmrun; do
    begin salloc -Q -N4 -n8 "$shmrun" "$programs/busy"
    echo "   $victim"
    kill -9 "$(processes_of_job "$victim" | head -n 1)"
    # salloc takes a command that was killed for one that ended well.
    if [[ $victim == shmrun ]]; then wait "$job_pid" || true; else fails wait "$job_pid"; fi
    gone "a job of which a process $victim was killed"
done
echo "-- a node's slurmd ends in mid-job"
begin salloc -Q -N4 -n8 "$shmrun" "$programs/busy"
slurmd_pid=$(cat "$dir/slurmd.n3.pid")
kill -9 "$slurmd_pid"
sleep 2
# The step goes on without it, and is still the job's to end.
rounds=$(grep -c ^round "$out")
for _ in {1..600}; do
    [[ $(grep -c ^round "$out") -gt $rounds ]] && break
    sleep 0.1
done
[[ $(grep -c ^round "$out") -gt $rounds ]] || { cat "$out"; fail "the job stands still without slurmd"; }
kill -TERM "$(processes_of_job shmrun)"
fails wait "$job_pid"
gone "a job whose slurmd had ended"
# Or the controller would wait for minutes before it asks again whether that job is gone from this node.
scontrol update nodename=n3 state=down reason="its slurmd had ended"
slurmd -f "$SLURM_CONF" -N n3 || fail "slurmd does not start again"
all_idle || fail "the node does not come back"
unset SHMEM_HEARTBEAT_TIMEOUT

echo "-- srun --mpi=none is refused"
fails timeout 300 srun -Q --mpi=none -N2 -n2 "$programs/examples/ring"
says "srun --mpi=pmi2 -n 2 PROGRAM"
timeout 300 srun -Q --mpi=none -N1 -n1 "$programs/examples/ring" >"$out" 2>&1 || fail "one PE needs no PMI"

echo "-- srun --mpi=pmix without libpmix"
fails timeout 300 srun -Q --mpi=pmix -N2 -n2 env SHMEM_PMIX_LIBRARY=/nowhere/libpmix.so.2 "$programs/examples/ring"
says "srun --mpi=pmix, as one of 2 processes"
says "SHMEM_PMIX_LIBRARY=/nowhere/libpmix.so.2 cannot be loaded"

# A PE that is killed, and a job that is cancelled, both in the middle of a barrier.
busy() { begin srun -Q -O --mpi="$mpi" -N4 -n8 -J busy "$@" "$programs/busy"; }
for mpi in pmi2 pmix; do
    echo "-- kill -9 of one PE ($mpi)"
    busy -K
    kill -9 "$(processes | head -n 1)"
    fails wait "$job_pid"
    gone "a job whose PE was killed"
done
echo "-- scancel"
busy
scancel --name=busy
fails wait "$job_pid"
gone "a job that was cancelled"
echo "-- a PE that gives up ends the job"
for mpi in pmi2 pmix; do
    for mishap in global-exit-3 exit-0 exit-3 panic; do
        fails timeout 300 srun -Q -O --mpi=$mpi -N4 -n8 "$programs/mishaps" $mishap
        gone "$mishap ($mpi)"
    done
done
echo "slurm: all good"
