/* A program as they were written before shmem_init: it never finalizes. */
#include <mpp/shmem.h>
#include <stdio.h>

static long sync_[_SHMEM_REDUCE_SYNC_SIZE], from, to;
static long work[_SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static long arrived;

int main(void)
{
    start_pes(0);
    start_pes(7); /* without effect */
    int me = _my_pe(), n = _num_pes();
    for (int i = 0; i < _SHMEM_REDUCE_SYNC_SIZE; i++)
        sync_[i] = _SHMEM_SYNC_VALUE;
    from = me + 1;
    shmem_barrier_all();
    shmem_long_sum_to_all(&to, &from, 1, 0, 0, n, work, sync_);
    if (me == 0)
        printf("sum %ld of %d PEs\n", to, n);
    /* the library's end waits for everybody: this one comes late, and all others have left main */
    if (me == n - 1)
        for (int pe = 0; pe < n; pe++)
            shmem_long_inc(&arrived, pe);
    return to != (long)n * (n + 1) / 2;
}
