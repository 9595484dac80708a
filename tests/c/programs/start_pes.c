/* A program as they were written before shmem_init: it never finalizes. */
#include <mpp/shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static long sync_[_SHMEM_REDUCE_SYNC_SIZE], from, to;
static long work[_SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static long arrived;
static pid_t self;

/* Runs after the library's end, which waits for everybody and all that they have sent. */
static void check(void)
{
    if (getpid() == self && arrived != 1) {
        fprintf(stderr, "%ld arrived before the end, not 1\n", arrived);
        _exit(9);
    }
}

int main(void)
{
    self = getpid();
    atexit(check);
    start_pes(0);
    start_pes(7); /* without effect */
    int me = _my_pe(), n = _num_pes();
    for (int i = 0; i < _SHMEM_REDUCE_SYNC_SIZE; i++)
        sync_[i] = _SHMEM_SYNC_VALUE;
    from = me + 1;
    if (me == 0) {
        /* a child that exits is no PE that ends */
        int status = -1;
        pid_t child = fork();
        if (child == 0)
            exit(0);
        waitpid(child, &status, 0);
        if (status != 0)
            return 8;
    }
    shmem_barrier_all();
    shmem_long_sum_to_all(&to, &from, 1, 0, 0, n, work, sync_);
    if (me == 0)
        printf("sum %ld of %d PEs\n", to, n);
    /* this one comes late, when the others have left main */
    if (me == n - 1) {
        usleep(100000);
        for (int pe = 0; pe < n; pe++)
            shmem_long_inc(&arrived, pe);
    }
    return to != (long)n * (n + 1) / 2;
}
