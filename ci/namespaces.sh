# Sourced by scripts that make nodes of network namespaces, after common.sh: each has one end of a veth pair, the
# other ends are ports of a bridge in one more. Needs root, iproute2, and nft or iptables, by which packets are
# lost: the kernel of a virtual machine often lacks netem.
#   id        what the names of the namespaces begin with: $id-node0 ..
#   network   the first three numbers of their addresses: node i has $network.$((i + 1))
#   lossy     the protocols that lose packets, with commas between
# shellcheck shell=bash disable=SC2154 # id, network and lossy are set by who sources this

spaces=()
remove_namespaces() { for ns in "${spaces[@]}"; do ip netns del "$ns" 2>/dev/null || true; done; }

# make_namespaces N: the bridge and so many nodes.
make_namespaces() {
    nodes=$1
    local i ns bridge=$id-bridge
    spaces=("$bridge")
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
        ip -n "$ns" addr add "$network.$((i + 1))/24" dev eth0
        ip -n "$ns" link set eth0 up
    done
    for tool in nft iptables none; do
        if [[ $tool == none ]]; then
            echo "neither nft (numgen) nor iptables (statistic) can lose packets here" >&2
            exit 1
        fi
        lose 1 2>/dev/null && break
    done
    lose 0
}

# cut I, mend I: node I has no link to the bridge, has it again.
cut() { ip -n "$id-bridge" link set "port$1" down; }
mend() { ip -n "$id-bridge" link set "port$1" up; }

# Loses so many of 1000 packets that come in over Ethernet.
lose() {
    local i protocol
    for ((i = 0; i < nodes; i++)); do
        local ns=$id-node$i
        if [[ $tool == nft ]]; then
            ip netns exec "$ns" nft -f - <<RULES
table ip lossy
delete table ip lossy
table ip lossy {
    chain input {
        type filter hook input priority 0;
        iifname "eth0" meta l4proto { $lossy } numgen random mod 1000 < $1 counter drop
    }
}
RULES
        else
            ip netns exec "$ns" iptables -F INPUT
            for protocol in ${lossy//,/ }; do
                ip netns exec "$ns" iptables -A INPUT -i eth0 -p "$protocol" -m statistic --mode random \
                    --probability "$(printf '0.%03d' "$1")" -j DROP
            done
        fi
    done
}
dropped() {
    for ((i = 0; i < nodes; i++)); do
        if [[ $tool == nft ]]; then
            ip netns exec "$id-node$i" nft list table ip lossy | sed -n 's/.*counter packets \([0-9]*\).*/\1/p'
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
