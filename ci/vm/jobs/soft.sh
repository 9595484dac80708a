# vm: one
# arch: x86_64 aarch64
# shows: jobs over the software HCA on the guest's loopback
set -e
source /host/jobs/common.sh
shmrun -n 4 --nodes 2 ring
shmrun -n 4 --nodes 2 npb-ep S
shmrun -n 4 --nodes 2 histogram
