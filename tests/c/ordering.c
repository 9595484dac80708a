/* Fence, quiet, and quiet for some PEs. */
#include "check.h"

enum { ROUNDS = 50, BLOCK = 300 };
static long block[BLOCK], flag;

void ordering(void)
{
    /* a flag behind a fence is not seen before the data */
    static long source[BLOCK];
    flag = 0;
    CLEAR(block);
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < BLOCK; i++)
            source[i] = round * 1000 + i;
        shmem_long_put(block, source, BLOCK, right);
        shmem_fence();
        shmem_long_p(&flag, round, right);
        shmem_long_wait_until(&flag, SHMEM_CMP_GE, round);
        long wrong = 0;
        for (int i = 0; i < BLOCK; i++)
            wrong += block[i] != round * 1000 + i;
        CHECK(wrong == 0);
        shmem_barrier_all();
    }
    /* after quiet, others find it */
    shmem_long_put_nbi(block, source + 1, BLOCK - 1, right);
    shmem_quiet();
    CHECK(shmem_long_g(&block[BLOCK - 2], right) == source[BLOCK - 1]);
    shmem_barrier_all();
    int pes[MOST_PES];
    for (int pe = 0; pe < n; pe++) {
        pes[pe] = pe;
        shmem_long_atomic_set(&block[me], 5000 + me, pe);
    }
    shmem_pe_quiet(pes, (size_t)n);
    for (int pe = 0; pe < n; pe++)
        CHECK(shmem_long_atomic_fetch(&block[me], pe) == 5000 + me);
    shmem_pe_quiet(&right, 1);
    shmem_pe_quiet(NULL, 0);
    shmem_ctx_pe_quiet(SHMEM_CTX_DEFAULT, pes, (size_t)n);
    shmem_ctx_pe_quiet(SHMEM_CTX_INVALID, pes, (size_t)n);
    shmem_barrier_all();
    for (int pe = 0; pe < n; pe++)
        CHECK(block[pe] == 5000 + pe);
    shmem_barrier_all();
}
