/* Waiting for plain stores: of a thread of the same PE, and of another PE through a pointer. */
#include <pthread.h>
#include <shmem.h>
#include <stdio.h>

enum { ROUNDS = 100 };
static int turn;

/* Two threads of a PE take turns. */
static void *take_turns(void *argument)
{
    int mine = *(int *)argument;
    for (int i = 0; i < ROUNDS; i++) {
        shmem_int_wait_until(&turn, SHMEM_CMP_EQ, mine);
        *(volatile int *)&turn = 1 - mine;
    }
    return NULL;
}

int main(void)
{
    int provided, numbers[2] = {0, 1};
    if (shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) || provided != SHMEM_THREAD_MULTIPLE)
        return 3;
    int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n;
    pthread_t threads[2];
    for (int t = 0; t < 2; t++)
        pthread_create(&threads[t], NULL, take_turns, &numbers[t]);
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], NULL);

    /* once around, by pointers where there are any */
    static int round_;
    shmem_barrier_all();
    int *next = shmem_ptr(&round_, right);
    for (int i = 1; i <= ROUNDS / 4; i++) {
        if (me != 0)
            shmem_int_wait_until(&round_, SHMEM_CMP_EQ, i);
        if (next)
            *(volatile int *)next = i;
        else
            shmem_int_p(&round_, i, right);
        if (me == 0)
            shmem_int_wait_until(&round_, SHMEM_CMP_EQ, i);
    }
    shmem_barrier_all();
    if (me == 0)
        printf("%d turns on each of %d PEs\n", ROUNDS, n);
    shmem_finalize();
    return 0;
}
