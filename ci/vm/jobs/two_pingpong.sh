# vm: two
# shows: two machines: RC between their devices, commands by ssh
set -e
source /host/jobs/common.sh
await_node2
remote node2 'hostname; ibv_devinfo -d rxe0 -v' | tee /tmp/node2
[[ $(head -1 /tmp/node2) == node2 ]]
gid() { sed -n 's/.*GID\[ *\([0-9]*\)\].*::ffff:10.5.*/\1/p' "$1"; }
ibv_devinfo -d rxe0 -v >/tmp/node1
remote node2 "ibv_rc_pingpong -e -d rxe0 -g $(gid /tmp/node2) -n 100" &
sleep 2
ibv_rc_pingpong -e -d rxe0 -g "$(gid /tmp/node1)" -n 100 node2
wait $!
show "packets of rxe0 on node 1: $(packets rxe0) sent"
