/* A child that a PE forks has static variables of its own. */
#include <shmem.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static long cell = 1;

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), status = -1;
    shmem_barrier_all();
    pid_t child = fork();
    if (child == 0) {
        cell = 99;
        _exit(cell == 99 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    int wrong = status != 0 || cell != 1;
    shmem_barrier_all();
    wrong += shmem_long_g(&cell, (me + 1) % n) != 1;
    shmem_barrier_all();
    shmem_long_p(&cell, 5 + me, (me + 1) % n);
    shmem_barrier_all();
    wrong += cell != 5 + (me + n - 1) % n;
    if (me == 0)
        printf("%d wrong\n", wrong);
    shmem_finalize();
    return wrong;
}
