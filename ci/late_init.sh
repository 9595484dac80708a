#!/usr/bin/env bash
# A process of a job whose last node begins when a PE of the first is through init: a job that init would keep
# waiting for other nodes never ends. SHMEM_DEBUG has a PE say when it is through.
# Usage, for each process: ci/late_init.sh FILE PROGRAM [ARGUMENT...]
#   FILE   does not exist, and is the same for all processes
set -euo pipefail
file=$1
shift
rank=${PMIX_RANK:-${PMI_RANK:-}}
last=${SLURM_NNODES:+$((SLURM_NNODES - 1))}
if [[ ${SLURM_NODEID:-} == "${last:-none}" || $(uname -n) == "${LATE_NODE:-}" ]]; then
    for _ in {1..1000}; do
        [[ -e $file ]] && exec "$@"
        sleep 0.05
    done
    echo "rank $rank: no PE of another node came through init before this one began" >&2
    exit 1
fi
SHMEM_DEBUG=1 "$@" 2> >(
    while IFS= read -r line; do
        [[ $line != *": initialised"* ]] || : >"$file"
        printf '%s\n' "$line" >&2
    done
)
