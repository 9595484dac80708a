/* A token goes once around all PEs; each adds one to it. Static variables are symmetric: every PE has
 * its own, and the others can reach it.
 *
 *     oshcc ring.c -o ring && oshrun -np 4 ./ring
 */
#include <shmem.h>
#include <stdio.h>

static long token;
static uint64_t arrived;

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n;
    long mine = 0;

    if (me != 0) {
        shmem_signal_wait_until(&arrived, SHMEM_CMP_EQ, 1);
        mine = token;
    }
    mine++;
    /* the token and then the flag, in one call: whoever sees the flag sees the token */
    shmem_long_put_signal(&token, &mine, 1, &arrived, 1, SHMEM_SIGNAL_SET, next);

    int wrong = 0;
    if (me == 0) {
        shmem_signal_wait_until(&arrived, SHMEM_CMP_EQ, 1);
        wrong = token != n;
        printf("the token came back after %ld PEs\n", token);
    }
    shmem_finalize();
    return wrong;
}
