#!/usr/bin/env bash
# A soak over real Ethernet: every node of a job is a network namespace with one end of a veth pair,
# the other ends are ports of a bridge. Puts, gets and atomics between all PEs, with checksums, at
# several rates of loss (by the firewall), with reordering and duplication (by the HCAs), and with what is longer than 4 KiB
# by streams.
# Usage: ci/soak.sh [seconds per round] [directory of the programs]. Needs root; nft or iptables.
source "$(dirname "$0")/common.sh"
seconds=${1:-20}
bin=${2:-$target/release}
ppn=2
id=shmem-soak-$$
network=10.77.0
lossy=udp,tcp
source ci/namespaces.sh
at_exit remove_namespaces
make_namespaces 4

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
echo "-- with streams"
for permille in 0 10 50; do SHMEM_SOFT_STREAM=4k round $permille none; done
SHMEM_SOFT_STREAM=4k round 10 duplicate=3%,reorder=5%,seed=5
echo "-- over XRC"
SHMEM_TRANSPORT=xrc round 10 reorder=5%,seed=3
echo "-- with two queue pairs for each PE"
SHMEM_MAX_QPS=2 round 10 reorder=5%,seed=4
