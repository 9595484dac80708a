#!/usr/bin/env bash
# Ring and EP in a network namespace whose loopback loses 1 % of all UDP packets. Needs root and
# iptables with the `statistic` match.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-target/release}
ns=shmem-loss-$$
ip netns add "$ns"
trap 'ip netns del "$ns"' EXIT
ip -n "$ns" link set lo up
run() { ip netns exec "$ns" "$@"; }
run iptables -A INPUT -p udp -m statistic --mode random --probability 0.01 -j DROP
for program in "$bin/examples/ring" "$bin/npb-ep S"; do
    echo "== $program"
    # shellcheck disable=SC2086 # a program and its arguments
    run "$bin/shmrun" -n 8 --nodes 4 --report - $program
done
echo "== packets dropped by the firewall"
run iptables -nvxL INPUT
