# What jobs share. A job exits with 0, or anything else where it failed.
export PATH=/host/bin:$PATH RUST_BACKTRACE=1
# Heaps are pinned by a device: small ones.
export SHMEM_SYMMETRIC_SIZE=4M

# The two devices of a machine that is alone; emulated nodes take them by turns.
HCA=rxe1,rxe2

# limited COMMAND...: ends a command that hangs. The limit is far above what any command takes, because a machine that others use, too,
# was seen to take ten times as long as a quiet one.
limited() { timeout -k 5 1200 "$@"; }

# What is to be seen in the table of results.
show() { echo "> $*"; }

# Packets that devices have sent: those of a pattern such as rxe[12].
packets() {
    # shellcheck disable=SC2086 # a pattern
    cat /sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts | awk '{ sum += $1 } END { print sum }'
}
# KiB of memory that the machine has available, as it counts about once a second.
available() {
    sleep 1.2
    awk '/^MemAvailable:/ { print $2 }' /proc/meminfo
}

# The remote shell between two machines, as `shmrun --rsh` takes it; the host's key is made on its
# first connection.
RSH="dbclient -i /root/.ssh/id -y"
remote() { $RSH "$@" </dev/null; }
# Waits until the other machine is up.
await_node2() {
    local since=$SECONDS
    while ((SECONDS - since < 1200)); do
        if timeout 60 $RSH node2 true </dev/null 2>/dev/null; then return; fi
        sleep 1
    done
    echo "node2 does not answer" >&2
    exit 1
}
