#!/usr/bin/env bash
# What long and short messages take between network namespaces that lose packets: bare TCP sockets, the software HCA with
# datagrams alone, and with streams, in turn. Then four senders to one receiver. Medians over the rounds, in microseconds
# and MiB a second.
# Usage: benches/networks.sh [rounds] [milliseconds per row] [directory of the programs]. Needs root; nft or iptables.
source "$(dirname "$0")/../ci/common.sh"
rounds=${1:-5}
ms=${2:-20}
bin=${3:-$target/release}
id=shmem-networks-$$
network=10.78.0
lossy=udp,tcp
source ci/namespaces.sh
out=$(mktemp -d)
end() {
    remove_namespaces
    rm -rf "$out"
}
at_exit end
make_namespaces 5

# The Ethernet frames of veth take 1500 bytes: path MTU 1024.
export SHMEM_SOFT_ADDRESS=$network.1+ SHMEM_SOFT_NETNS=/run/netns/$id-node SHMEM_SOFT_MTU=1024
job() { SHMEM_SOFT_STREAM=$1 "$bin/shmrun" -n 2 --nodes 2 "$bin/p2p" --table "$ms"; }
bare() {
    ip netns exec "$id-node0" "$bin/raw-sockets" --over tcp --address "$network.1" --partner-address "$network.2" \
        --through "ip netns exec $id-node1" --table "$@"
}
incast() { SHMEM_SOFT_STREAM=$1 "$bin/incast" --senders 4 --runs 1 --puts 120 2>/dev/null | sed -n 's/.*"mib_per_s":\([0-9.]*\).*/\1/p'; }
# Four senders at once; the sum of their rates.
bare_incast() {
    local i
    for i in 1 2 3 4; do
        ip netns exec "$id-node$i" "$bin/raw-sockets" --over tcp --address "$network.$((i + 1))" \
            --partner-address "$network.1" --through "ip netns exec $id-node0" --rate 500 &
    done | awk '{ sum += $1 } END { print sum }'
    wait
}

# Medians of what `rows` prints as "way row bytes microseconds".
medians() {
    sort -k 2,2r -k 3,3n -k 1,1 -k 4,4n "$1" | awk '
        function flush_group() { if (n) value[row, way] = (samples[int((n + 1) / 2)] + samples[int(n / 2) + 1]) / 2 }
        { key = $2 " " $3 " " $1 }
        key != last { flush_group(); n = 0; last = key; row = $2 " " $3; way = $1; if (!(row in seen)) { seen[row] = 1; rows[++count] = row } }
        { samples[++n] = $4 }
        END {
            flush_group()
            printf "%-12s %9s %10s %10s %10s\n", "row", "bytes", "TCP", "datagrams", "streams"
            for (i = 1; i <= count; i++) {
                split(rows[i], name, " ")
                printf "%-12s %9d %10.1f %10.1f %10.1f\n", name[1], name[2], value[rows[i], "tcp"], value[rows[i], "never"], value[rows[i], "auto"]
            }
        }'
}
rows() { awk -v way="$1" '/^(put\+quiet|get|pingpong) / { print way, $1, $2, $3 / 1000 }'; }

for permille in 0 1 10; do
    lose "$permille"
    for ((round = 0; round < rounds; round++)); do
        bare "$ms" | rows tcp
        job never | rows never
        job auto | rows auto
    done >"$out/$permille"
    echo "== loss of $permille in 1000 ($tool): microseconds"
    medians "$out/$permille"
    for ((round = 0; round < rounds; round++)); do
        echo "tcp incast 4 $(bare_incast)"
        echo "never incast 4 $(incast never)"
        echo "auto incast 4 $(incast auto)"
    done >"$out/incast-$permille"
    echo "== four senders: MiB a second"
    medians "$out/incast-$permille"
done
