# vm: one
# seconds: 500
# shows: the conformance suite of verbs on two Soft-RoCE devices
source /host/jobs/common.sh
SHMEM_TEST_HCA=rxe1,rxe2 SHMEM_TEST_HCA_REQUIRED=1 conformance_verbs --test-threads=1 >/tmp/out 2>&1
status=$?
cat /tmp/out
sed -n 's/^test result: /> /p' /tmp/out
sed -n 's/^test \(.*\) \.\.\. FAILED.*/> failed: \1/p' /tmp/out
exit $status
