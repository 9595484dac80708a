/* A program that defines routines itself and calls the library's by their other names. */
#include <pshmem.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

static long puts_, barriers;
static int from[4], to[4];
static long sum_from, sum_to;

void shmem_int_put(int *dest, const int *source, size_t nelems, int pe)
{
    puts_++;
    pshmem_int_put(dest, source, nelems, pe);
}

void shmem_barrier_all(void)
{
    barriers++;
    pshmem_barrier_all();
}

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes();
    for (int i = 0; i < 4; i++)
        from[i] = 10 * me + i;
    shmem_barrier_all();
    shmem_int_put(to, from, 4, (me + 1) % n);
    shmem_barrier_all();
    int left = (me + n - 1) % n, wrong = 0;
    for (int i = 0; i < 4; i++)
        wrong += to[i] != 10 * left + i;
    /* what the library does inside, it does not do through names that a program can take */
    sum_from = me;
    void *block = shmem_malloc(100);
    shmem_free(block);
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &sum_to, &sum_from, 1);
    wrong += sum_to != (long)n * (n - 1) / 2;
    wrong += puts_ != 1 || barriers != 2;
    if (me == 0)
        printf("%d wrong; %ld puts and %ld barriers seen\n", wrong, puts_, barriers);
    shmem_finalize();
    return wrong + (puts_ != 1 || barriers != 2);
}
