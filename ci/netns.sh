#!/usr/bin/env bash
# Four hosts that are network namespaces, joined by a bridge, with an sshd in each, and jobs of 16 PEs on them: as
# they are, with packets that are lost, and with a host that is cut off while a job runs.
# Usage: ci/netns.sh [directory of the programs]. Needs root, sshd, and nft or iptables. The daemons have their own
# keys, settings and ports in a temporary directory, and nothing of them or of a job is left.
source "$(dirname "$0")/common.sh"
bin=$(realpath "${1:-$target/release}")
id=shmem-netns-$$
network=10.78.0
lossy=tcp,udp
port=2222
[[ $(id -u) == 0 ]] || cannot hosts "only root can make network namespaces that have names"
need iproute2 ip
need nftables nft
need openssh-server sshd
need openssh-client ssh ssh-keygen
nothing_is_missing sshd
source ci/namespaces.sh
dir=$(mktemp -d)
# Where programs are started that nobody but root may find.
chmod 700 "$dir"

# Whoever is in a namespace of a host.
processes() { for ((i = 0; i < nodes; i++)); do ip netns pids "$id-node$i" 2>/dev/null || true; done; }
cleanup() {
    local pids
    pids=$(processes)
    # shellcheck disable=SC2086 # words
    [[ -z $pids ]] || kill -KILL $pids 2>/dev/null || true
    remove_namespaces
    rm -rf "$dir"
}
at_exit cleanup
make_namespaces 4

# The daemons. Privilege separation wants its directory.
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$dir/host"
ssh-keygen -q -t ed25519 -N '' -f "$dir/user"
cat >"$dir/sshd" <<CONFIG
Port $port
HostKey $dir/host
AuthorizedKeysFile $dir/user.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
MaxStartups 100
CONFIG
{
    for ((i = 0; i < nodes; i++)); do echo "Host node$i"; echo "    HostName $network.$((i + 1))"; done
    cat <<CONFIG
Host *
    Port $port
    User root
    IdentityFile $dir/user
    IdentitiesOnly yes
    BatchMode yes
    LogLevel ERROR
    UserKnownHostsFile $dir/known
    StrictHostKeyChecking yes
CONFIG
} >"$dir/ssh"
for ((i = 0; i < nodes; i++)); do
    echo "[$network.$((i + 1))]:$port $(cat "$dir/host.pub")" >>"$dir/known"
    ip netns exec "$id-node$i" "$(PATH=$PATH:/usr/sbin command -v sshd)" -D -e -f "$dir/sshd" 2>>"$dir/log.$i" &
    disown
done
answers() { ip netns exec "$id-node0" ssh -F "$dir/ssh" "node$1" true 2>>"$dir/answers"; }
for ((i = 0; i < nodes; i++)); do
    for ((try = 0; try < 100; try++)); do if answers "$i"; then continue 2; else sleep 0.1; fi; done
    echo "the sshd of node $i does not answer:" >&2
    cat "$dir/answers" "$dir/log.$i" >&2
    exit 1
done

# The Ethernet frames of veth take 1500 bytes: path MTU 1024.
export SHMEM_SOFT_ADDRESS=$network.0/24 SHMEM_SOFT_MTU=1024 SHMEM_RSH="ssh -F $dir/ssh"
# job [OPTIONS] PROGRAM...: 16 PEs on the four hosts, seen from the first.
job() { ip netns exec "$id-node0" "$bin/shmrun" -n 16 --hosts localhost,node1,node2,node3 "$@"; }
ring() { job "$bin/ring"; }
[[ -x $bin/ring ]] || ring() { job "$bin/examples/ring"; }

# Of a job nothing is left on any host: what is there is sshd's, and whatever waits for it.
left() {
    local pid name
    for pid in $(processes); do
        name=$(cat "/proc/$pid/comm" 2>/dev/null) || continue
        case $name in sshd | sshd-session | sshd-auth) ;; *) echo "$pid ($name)" ;; esac
    done
}
nothing_left() {
    local what
    what=$(left)
    [[ -z $what ]] || { echo "left: $what" >&2; return 1; }
}
all() {
    ring >/dev/null
    echo "   ring: ok"
    job "$bin/npb-ep" S | grep -q 'SUCCESSFUL' && echo "   EP: ok"
    job "$bin/soak" "$1" | sed 's/^/   /'
    nothing_left
}

# off I HOST: cuts host I off while a job runs. shmrun has to report that and to end some seconds after the time-out of
# 8 s, with nothing left on either side. 20 s and 30 s leave a busy machine time.
off() {
    local began ended status=0 from=$SECONDS
    : >"$dir/said"
    : >"$dir/out"
    job "$bin/busy" >"$dir/out" 2>"$dir/said" &
    local shmrun=$!
    # All of them talk.
    until grep -q '^round 64$' "$dir/out"; do
        ((SECONDS - from < 60)) || { echo "the job does not start" >&2; cat "$dir/said" >&2; return 1; }
        sleep 0.1
    done
    cut "$1"
    began=$(date +%s%N)
    until grep -q 'nothing was heard of its launch agent' "$dir/said"; do
        ended=$(($(date +%s%N) - began))
        ((ended < 20000000000)) || { echo "nothing was said within 20 s" >&2; cat "$dir/said" >&2; return 1; }
        sleep 0.05
    done
    ended=$(($(date +%s%N) - began))
    echo "   $(grep 'nothing was heard of its launch agent' "$dir/said" | head -n 1)"
    echo "   said after $((ended / 1000000)) ms"
    wait $shmrun || status=$?
    [[ $status == 125 ]] || { echo "the status is $status" >&2; cat "$dir/said" >&2; return 1; }
    until [[ -z $(left) ]]; do
        ended=$(($(date +%s%N) - began))
        ((ended < 30000000000)) || { echo "left after 30 s:" >&2; left >&2; return 1; }
        sleep 0.1
    done
    echo "   nothing left after $((($(date +%s%N) - began) / 1000000)) ms"
    mend "$1"
}

echo "== four hosts behind ssh, 16 PEs"
all 5
echo "== 1 of 100 packets of everybody is lost ($tool)"
lose 10
all 5
echo "   $(dropped) packets were lost"
lose 0
echo "== the third host is cut off"
off 2
echo "== the launcher's own host is cut off"
off 0
