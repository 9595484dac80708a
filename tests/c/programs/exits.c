/* exits STATUS one|all|blocked: who ends the job with shmem_global_exit. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long never;

static void at_the_end(void) { printf("cleaned up\n"); }

int main(int argc, char **argv)
{
    (void)argc;
    int status = atoi(argv[1]);
    shmem_init();
    int me = shmem_my_pe(), last = me == shmem_n_pes() - 1;
    if (last) {
        atexit(at_the_end);
        printf("said before the end\n"); /* into a pipe, so it is in a buffer */
    }
    shmem_barrier_all();
    if (last || !strcmp(argv[2], "all"))
        shmem_global_exit(status);
    if (!strcmp(argv[2], "blocked")) {
        if (me % 2)
            shmem_barrier_all(); /* the last PE does not come */
        shmem_long_wait_until(&never, SHMEM_CMP_NE, 0);
    }
    for (;;)
        sleep(1); /* computes on, and on */
}
