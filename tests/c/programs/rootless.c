/* Broadcasts whose source is named by the root alone. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

static long sync_[2][SHMEM_BCAST_SYNC_SIZE];

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), wrong = 0, turn = 0;
    for (int k = 0; k < SHMEM_BCAST_SYNC_SIZE; k++)
        sync_[0][k] = sync_[1][k] = SHMEM_SYNC_VALUE;
    size_t most = 1 << 17;
    int *source = shmem_malloc(most * sizeof *source), *dest = shmem_calloc(most, sizeof *dest);
    for (size_t len = 1; len <= most; len *= 4)
        for (int root = 0; root < n; root++) {
            for (size_t i = 0; i < len; i++)
                source[i] = me * 1000 + (int)(i % 997);
            shmem_barrier_all();
            const int *from = me == root ? source : NULL;
            shmem_int_broadcast(SHMEM_TEAM_WORLD, dest, from, len, root);
            for (size_t i = 0; i < len; i++)
                wrong += dest[i] != root * 1000 + (int)(i % 997);
            shmem_barrier_all();
            for (size_t i = 0; i < len; i++)
                dest[i] = -1;
            shmem_barrier_all();
            shmem_broadcast32(dest, from, len, root, 0, 0, n, sync_[turn++ % 2]);
            for (size_t i = 0; i < len; i++)
                wrong += dest[i] != (me == root ? -1 : root * 1000 + (int)(i % 997));
            shmem_barrier_all();
            if (n > 1 && me < n - 1 && root < n - 1) {
                shmem_broadcast32(dest, from, len, root, 0, 0, n - 1, sync_[turn % 2]);
                for (size_t i = 0; i < len; i++)
                    wrong += dest[i] != (me == root ? -1 : root * 1000 + (int)(i % 997));
            }
            shmem_barrier_all();
        }
    if (wrong)
        fprintf(stderr, "PE %d: %d wrong\n", me, wrong);
    if (me == 0)
        printf("%d wrong on PE 0\n", wrong);
    shmem_finalize();
    return wrong != 0;
}
