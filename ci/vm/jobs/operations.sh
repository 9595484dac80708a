# vm: one
# measures: yes
# shows: single operations over Soft-RoCE, as multiples of the software HCA's time for the same
# Times under emulation say nothing but their ratios.
set -e
source /host/jobs/common.sh
export SHMEM_SYMMETRIC_SIZE=16M
for round in 1 2 3; do
    for device in soft "$HCA"; do
        SHMEM_HCA=$device limited shmrun -n 2 --nodes 2 p2p 5 --table >"/tmp/$device.$round" 2>&1 || {
            cat "/tmp/$device.$round"
            exit 1
        }
        cat "/tmp/$device.$round"
    done
done
show "$(printf '%-18s %8s %8s   (least of three rounds of medians)' operation bytes ratio)"
# A row is: operation, bytes, median, and more.
awk '$2 ~ /^[0-9]+$/ {
        device = FILENAME ~ /soft/ ? "soft" : "rxe"
        key = $1 " " $2
        if (!(key in row)) { row[key] = ++rows; name[rows] = key }
        if (!((key, device) in least) || $3 < least[key, device]) least[key, device] = $3
    }
    END {
        for (i = 1; i <= rows; i++) {
            split(name[i], part, " ")
            printf "> %-18s %8s %8.1f\n", part[1], part[2], least[name[i], "rxe"] / least[name[i], "soft"]
        }
    }' /tmp/soft.? "/tmp/$HCA".?
