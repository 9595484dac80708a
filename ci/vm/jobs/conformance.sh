# vm: one
# shows: the conformance suite of verbs, and endpoints, on two Soft-RoCE devices
source /host/jobs/common.sh
export SHMEM_TEST_HCA=$HCA SHMEM_TEST_REQUIRE=all
status=0
devices conformance >/tmp/out 2>&1 || status=1
cat /tmp/out
show "$(grep 'checks passed' /tmp/out || tail -1 /tmp/out)"
sed -n 's/^check \(.*\): \(FAILED.*\)/>   \1: \2/p' /tmp/out
sed -n 's/^check \(.*\): ok.*\[left out: \(.*\)\]/>   \1: ok, but \2/p' /tmp/out
devices endpoints >/tmp/out 2>&1 || status=1
cat /tmp/out
show "endpoints: $(grep 'checks passed' /tmp/out || tail -1 /tmp/out)"
sed -n 's/^check \(.*\): \(FAILED.*\)/>   \1: \2/p' /tmp/out
exit $status
