/* Collectives of active sets are called by all PEs, also by those outside of the set. */
#include <shmem.h>
#include <stdio.h>

static long sync_[10][SHMEM_REDUCE_SYNC_SIZE], work[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
enum { MOST = 8 }; /* members */
static int32_t from[MOST], to[MOST];
static long lfrom, lto;
static int wrong;

static void is(const char *what, long got, long want)
{
    if (got != want) {
        fprintf(stderr, "PE %d: %s is %ld, not %ld\n", shmem_my_pe(), what, got, want);
        wrong++;
    }
}

/* Nobody writes before all are ready. */
static void reset(void)
{
    shmem_barrier_all();
    for (int i = 0; i < MOST; i++)
        to[i] = -1;
    shmem_barrier_all();
}

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), size = (n + 1) / 2, inside = me % 2 == 0;
    if (size > MOST)
        return 3;
    for (int i = 0; i < 10; i++)
        for (int k = 0; k < SHMEM_REDUCE_SYNC_SIZE; k++)
            sync_[i][k] = SHMEM_SYNC_VALUE;
    for (int i = 0; i < MOST; i++)
        from[i] = me + 1;
    lfrom = 1;
    lto = -1;
    reset();
    /* the even PEs */
    shmem_barrier(0, 1, size, sync_[0]);
    shmem_sync(0, 1, size, sync_[1]);
    shmem_broadcast32(to, from, 1, 0, 0, 1, size, sync_[2]);
    is("broadcast", to[0], inside && me ? 1 : -1);
    reset();
    shmem_collect32(to, from, 1, 0, 1, size, sync_[3]);
    is("collect", to[size - 1], inside ? 2 * size - 1 : -1);
    reset();
    shmem_fcollect32(to, from, 1, 0, 1, size, sync_[4]);
    is("fcollect", to[size - 1], inside ? 2 * size - 1 : -1);
    reset();
    shmem_alltoall32(to, from, 1, 0, 1, size, sync_[5]);
    is("alltoall", to[0], inside ? 1 : -1);
    reset();
    shmem_alltoalls32(to, from, 1, 1, 1, 0, 1, size, sync_[6]);
    is("alltoalls", to[0], inside ? 1 : -1);
    shmem_long_sum_to_all(&lto, &lfrom, 1, 0, 1, size, work, sync_[7]);
    is("sum", lto, inside ? size : -1);
    shmem_barrier_all();
    if (me == 0 && !wrong)
        printf("0 wrong on %d PEs\n", n);
    shmem_finalize();
    return wrong != 0;
}
