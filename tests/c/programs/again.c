/* A program that enters the library and leaves it several times, with calls that nest. */
#include <shmem.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 3 };
static long cell;

static int initialized(void)
{
    int is = -1;
    shmem_query_initialized(&is);
    return is;
}

/* May be asked at any time, outside of init and finalize, too. */
static int level(void)
{
    int provided = -1;
    shmem_query_thread(&provided);
    return provided;
}

int main(void)
{
    int wrong = initialized() != 0 || level() != SHMEM_THREAD_SINGLE, n = 0, me = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int provided = -1, nested = -1;
        shmem_init_thread(SHMEM_THREAD_SERIALIZED, &provided);
        shmem_init();
        shmem_init_thread(SHMEM_THREAD_SERIALIZED, &nested);
        wrong += provided < SHMEM_THREAD_SERIALIZED || nested != provided || !initialized();
        wrong += level() != provided;
        me = shmem_my_pe();
        n = shmem_n_pes();
        int right = (me + 1) % n, left = (me + n - 1) % n;
        long *heap = shmem_malloc(1000 * sizeof(long)); /* left for the library to free */
        shmem_ctx_t ctx;
        shmem_team_t team;
        wrong += heap == NULL || shmem_ctx_create(0, &ctx) != 0;
        wrong += shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) != 0;
        shmem_finalize(); /* not the last one: a barrier */
        shmem_long_p(&heap[999], 100 * round + me, right);
        shmem_ctx_long_p(ctx, &cell, 1000 * round + me, right);
        shmem_ctx_quiet(ctx);
        shmem_finalize();
        wrong += heap[999] != 100 * round + left || cell != 1000 * round + left || !initialized();
        shmem_finalize();
        wrong += initialized() || level() != SHMEM_THREAD_SINGLE;
        wrong += cell != 1000 * round + left; /* the program's own memory stays as it is */
    }
    if (me == 0)
        printf("%d wrong in %d rounds on %d PEs\n", wrong, ROUNDS, n);
    return wrong;
}
