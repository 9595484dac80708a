# In the guest: runs the jobs that the host asks for, and reports over the console how each ended. A job that takes longer than
# the host allows is ended. What a job prints is in a file that the host keeps.
cd /host || exit
# shellcheck source=/dev/null
source /host/jobs/common.sh
while read -r job; do
    started=$(cut -d' ' -f1 /proc/uptime)
    timeout -k 5 "$(cat /host/limit)" bash "/host/jobs/$job.sh" >"/host/logs/$job.log" 2>&1 </dev/null
    status=$?
    seconds=$(awk -v from="$started" '{ printf "%.1f", $1 - from }' /proc/uptime)
    sync
    echo "VM-JOB $job $status $seconds"
done <"/host/list"
