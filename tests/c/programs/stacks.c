/* Collectives on a thread with a small stack, as user-level threads have. The argument says how many KiB. */
#include <pthread.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 5000

static long *source, *dest;

static void reduce(size_t n)
{
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, dest, source, n);
}

static void *collectives(void *unused)
{
    (void) unused;
    size_t sizes[] = {1, 100, MOST};
    for (int i = 0; i < 3; i++) {
        size_t n = sizes[i];
        reduce(n);
        shmem_long_sum_inscan(SHMEM_TEAM_WORLD, dest, source, n);
        shmem_long_sum_exscan(SHMEM_TEAM_WORLD, dest, source, n);
        shmem_long_broadcast(SHMEM_TEAM_WORLD, dest, source, n, 0);
        shmem_long_fcollect(SHMEM_TEAM_WORLD, dest, source, n);
        shmem_long_collect(SHMEM_TEAM_WORLD, dest, source, n + shmem_my_pe());
        shmem_long_alltoall(SHMEM_TEAM_WORLD, dest, source, n);
        shmem_long_alltoalls(SHMEM_TEAM_WORLD, dest, source, 1, 1, n);
    }
    shmem_team_t half;
    shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, (shmem_n_pes() + 1) / 2, NULL, 0, &half);
    if (half != SHMEM_TEAM_INVALID) {
        shmem_team_sync(half);
        shmem_team_destroy(half);
    }
    long *more = shmem_malloc(64);
    shmem_barrier_all();
    shmem_sync_all();
    shmem_free(more);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_attr_t attr;
    pthread_t thread;
    int provided;
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    size_t room = (MOST + 100) * (size_t) shmem_n_pes() * sizeof(long);
    source = shmem_calloc(1, room);
    dest = shmem_calloc(1, room);
    for (int i = 0; i < MOST; i++)
        source[i] = 1;
    shmem_barrier_all();
    pthread_attr_init(&attr);
    if (pthread_attr_setstacksize(&attr, (size_t) (argc > 1 ? atoi(argv[1]) : 64) << 10))
        return 2;
    if (pthread_create(&thread, &attr, collectives, NULL) || pthread_join(thread, NULL))
        return 3;
    reduce(MOST);
    if (shmem_my_pe() == 0)
        printf("%ld on %d PEs\n", dest[MOST - 1], shmem_n_pes());
    shmem_finalize();
    return 0;
}
