#!/usr/bin/env bash
# A soak over real Ethernet: every node of a job is a network namespace with one end of a veth pair,
# the other ends are ports of a bridge. Puts, gets and atomics between all PEs, with checksums, at
# several rates of loss (by the firewall), and with reordering and duplication (by the HCAs).
# Usage: ci/soak.sh [seconds per round] [directory of the programs]. Needs root; nft or iptables.
source "$(dirname "$0")/common.sh"
seconds=${1:-20}
bin=${2:-$target/release}
nodes=4
ppn=2
id=shmem-soak-$$
bridge=$id-bridge

spaces=("$bridge")
cleanup() { for ns in "${spaces[@]}"; do ip netns del "$ns" 2>/dev/null || true; done; }
at_exit cleanup
ip netns add "$bridge"
ip -n "$bridge" link add br0 type bridge
ip -n "$bridge" link set br0 up
for ((i = 0; i < nodes; i++)); do
    ns=$id-node$i
    ip netns add "$ns"
    spaces+=("$ns")
    ip -n "$ns" link set lo up
    ip link add eth0 netns "$ns" type veth peer name "port$i" netns "$bridge"
    ip -n "$bridge" link set "port$i" master br0 up
    ip -n "$ns" addr add "10.77.0.$((i + 1))/24" dev eth0
    ip -n "$ns" link set eth0 up
done

# Loses so many of 1000 packets that come in over Ethernet.
lose() {
    for ((i = 0; i < nodes; i++)); do
        local ns=$id-node$i
        if [[ $tool == nft ]]; then
            ip netns exec "$ns" nft -f - <<RULES
table ip soak
delete table ip soak
table ip soak {
    chain input {
        type filter hook input priority 0;
        iifname "eth0" meta l4proto udp numgen random mod 1000 < $1 counter drop
    }
}
RULES
        else
            ip netns exec "$ns" iptables -F INPUT
            ip netns exec "$ns" iptables -A INPUT -i eth0 -p udp -m statistic --mode random \
                --probability "$(printf '0.%03d' "$1")" -j DROP
        fi
    done
}
dropped() {
    for ((i = 0; i < nodes; i++)); do
        if [[ $tool == nft ]]; then
            ip netns exec "$id-node$i" nft list table ip soak | sed -n 's/.*counter packets \([0-9]*\).*/\1/p'
        else
            ip netns exec "$id-node$i" iptables -nvxL INPUT | awk '/DROP/ { print $1 }'
        fi
    done | awk '{ sum += $1 } END { print sum + 0 }'
}
received() {
    for ((i = 0; i < nodes; i++)); do
        ip netns exec "$id-node$i" cat /sys/class/net/eth0/statistics/rx_packets
    done | awk '{ sum += $1 } END { print sum }'
}
for tool in nft iptables none; do
    if [[ $tool == none ]]; then
        echo "neither nft (numgen) nor iptables (statistic) can lose packets here" >&2
        exit 1
    fi
    lose 1 2>/dev/null && break
done

# The Ethernet frames of veth take 1500 bytes: path MTU 1024.
export SHMEM_SOFT_ADDRESS=10.77.0.1+ SHMEM_SOFT_NETNS=/run/netns/$id-node SHMEM_SOFT_MTU=1024
round() {
    local permille=$1 faults=$2
    lose "$permille"
    echo "== loss $permille in 1000 ($tool), faults: $faults, $seconds s"
    local before
    before=$(received)
    SHMEM_SOFT_FAULTS=$faults "$bin/shmrun" -n $((nodes * ppn)) --nodes $nodes "$bin/soak" "$seconds"
    echo "   $(($(received) - before)) frames received by the nodes, $(dropped) lost by the firewall"
}
round 0 none
round 1 none
round 10 none
round 50 none
round 0 duplicate=5%,reorder=10%,seed=1
round 10 duplicate=3%,reorder=5%,seed=2
echo "-- over XRC"
SHMEM_TRANSPORT=xrc round 10 reorder=5%,seed=3
echo "-- with two queue pairs for each PE"
SHMEM_MAX_QPS=2 round 10 reorder=5%,seed=4
