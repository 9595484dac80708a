/* Threads that communicate at the same time: on the default context, and each on its own. */
#include <pthread.h>
#include <shmem.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 100 };
static long counter, slots[THREADS], flags[THREADS], from_thread[THREADS];
static int me, n, right, left;
static int wrong[THREADS];

static void *work(void *argument)
{
    int t = *(int *)argument;
    shmem_ctx_t ctx;
    if (shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) != 0) {
        wrong[t]++;
        return NULL;
    }
    for (int round = 1; round <= ROUNDS; round++) {
        shmem_ctx_long_p(ctx, &slots[t], round * 10 + t, right);
        shmem_ctx_fence(ctx);
        shmem_ctx_long_p(ctx, &flags[t], round, right);
        shmem_long_wait_until(&flags[t], SHMEM_CMP_GE, round);
        wrong[t] += slots[t] < round * 10 + t || slots[t] % 10 != t;
        shmem_long_atomic_inc(&counter, (me + round) % n);
        wrong[t] += shmem_ctx_long_g(ctx, &from_thread[t], left) != 1000 + left;
    }
    shmem_ctx_destroy(ctx);
    return NULL;
}

int main(void)
{
    int provided;
    if (shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) || provided != SHMEM_THREAD_MULTIPLE)
        return 3;
    me = shmem_my_pe();
    n = shmem_n_pes();
    right = (me + 1) % n;
    left = (me + n - 1) % n;
    for (int t = 0; t < THREADS; t++)
        from_thread[t] = 1000 + me;
    shmem_barrier_all();
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        pthread_create(&threads[t], NULL, work, &numbers[t]);
    }
    int bad = 0;
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        bad += wrong[t];
    }
    shmem_barrier_all();
    static long mine, all;
    mine = counter;
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &all, &mine, 1);
    bad += all != (long)n * THREADS * ROUNDS;
    if (me == 0)
        printf("%d wrong on %d PEs\n", bad, n);
    shmem_finalize();
    return bad != 0;
}
