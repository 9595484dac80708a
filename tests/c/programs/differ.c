/* differ WHAT: the last PE calls another collective than the others, or the same with other arguments. */
#include <shmem.h>
#include <stdio.h>
#include <string.h>

static int from[8], to[8];

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    shmem_init();
    int odd = shmem_my_pe() == shmem_n_pes() - 1;
    if (!strcmp(what, "malloc-barrier") && odd)
        shmem_malloc(100);
    else if (!strcmp(what, "malloc"))
        shmem_malloc(odd ? 100 : 200);
    else if (!strcmp(what, "reduce"))
        shmem_int_sum_reduce(SHMEM_TEAM_WORLD, to, from, odd ? 2 : 4);
    else if (!strcmp(what, "operation"))
        odd ? shmem_int_max_reduce(SHMEM_TEAM_WORLD, to, from, 1)
            : shmem_int_sum_reduce(SHMEM_TEAM_WORLD, to, from, 1);
    else if (!strcmp(what, "broadcast-reduce"))
        odd ? shmem_int_broadcast(SHMEM_TEAM_WORLD, to, from, 1, 0)
            : shmem_int_sum_reduce(SHMEM_TEAM_WORLD, to, from, 1);
    else if (!strcmp(what, "root"))
        shmem_int_broadcast(SHMEM_TEAM_WORLD, to, from, 8, odd);
    else if (!strcmp(what, "permitted")) {
        /* members may give different numbers, and free nothing */
        shmem_int_collect(SHMEM_TEAM_WORLD, to, from, odd ? 1 : 0);
        shmem_free(NULL);
        odd ? shmem_sync_all() : (void)shmem_team_sync(SHMEM_TEAM_WORLD);
    } else if (!strcmp(what, "finalize") && odd) {
        shmem_finalize();
        return 0;
    } else if (!strcmp(what, "end") && odd)
        return 0;
    shmem_barrier_all();
    shmem_finalize();
    if (odd)
        printf("went on\n");
    return 0;
}
