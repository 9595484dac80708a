# vm: one
# shows: the devices work: RC between rxe1 and rxe2 by ibv_rc_pingpong
set -e
source /host/jobs/common.sh
ibv_devinfo
gid() { for i in $(seq 0 9); do if grep -qi "$2" "/sys/class/infiniband/$1/ports/1/gids/$i"; then echo "$i"; return; fi; done; }
frames() { cat /sys/class/net/v2/statistics/tx_packets; }
sent_before=$(packets rxe2) frames_before=$(frames)
ibv_rc_pingpong -e -d rxe1 -g "$(gid rxe1 ffff:0a07:0001)" -n 100 &
sleep 1
ibv_rc_pingpong -e -d rxe2 -g "$(gid rxe2 ffff:0a07:0002)" -n 100 10.7.0.1 | tee /tmp/out
wait $!
grep -q '100 iters' /tmp/out
sent=$(($(packets rxe2) - sent_before)) frames=$(($(frames) - frames_before))
show "rxe2 sent $sent packets, v2 $frames frames"
if ((sent < 200 || frames < sent)); then exit 1; fi
