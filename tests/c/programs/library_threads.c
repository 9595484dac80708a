/* The library's threads have stacks into which the program's thread-local data fits, and take no signals of the program. */
#include <pthread.h>
#include <shmem.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Thread_local char large[300 << 10];

int main(void) {
    memset(large, 1, sizeof large);
    shmem_init();
    /* From now on this thread takes the signal when it wants, and nobody else may. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGUSR2);
    usleep(10000);
    int taken = 0;
    sigwait(&set, &taken);
    int right = taken == SIGUSR2 && large[sizeof large - 1] == 1;
    static int sum;
    sum = 0;
    shmem_barrier_all();
    shmem_int_atomic_add(&sum, right, 0);
    shmem_barrier_all();
    if (shmem_my_pe() == 0) printf("%d of %d PEs took their signal\n", sum, shmem_n_pes());
    shmem_finalize();
    return !right;
}
