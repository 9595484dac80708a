/* PE 0 and the last one wait for each other, one in MPI and the other in OpenSHMEM. Argument: what PE 0 is blocked in.
 *   mpi    MPI_Recv of a message that is sent after gets, atomics and a put to PE 0, which nobody has talked to before
 *   shmem  shmem_wait_until of a word that is put after MPI has moved a long message to PE 0
 *   sync   the same in shmem_barrier_all
 */
#include <mpi.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 4 << 20 };

static long word = 7, counter;

int main(int argc, char **argv)
{
    const char *where = argc > 1 ? argv[1] : "mpi";
    int provided, me, last;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
    shmem_init();
    me = shmem_my_pe();
    last = shmem_n_pes() - 1;
    if (!strcmp(where, "mpi")) {
        int token = 0;
        if (me == 0) {
            MPI_Recv(&token, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (me == last) {
            long seen = shmem_long_g(&word, 0);
            token = seen == 7 && shmem_long_atomic_fetch_inc(&counter, 0) == 0;
            shmem_long_p(&word, 8, 0);
            shmem_quiet();
            MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        }
        if (me == 0 && (token != 1 || counter != 1 || word != 8))
            return 1;
    } else {
        char *message = calloc(LONG, 1);
        if (me == 0) {
            MPI_Request request;
            MPI_Irecv(message, LONG, MPI_CHAR, last, 0, MPI_COMM_WORLD, &request);
            if (strcmp(where, "sync"))
                shmem_long_wait_until(&word, SHMEM_CMP_EQ, 8);
            else
                shmem_barrier_all();
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            if (message[LONG - 1] != 5)
                return 1;
        } else if (me == last) {
            memset(message, 5, LONG);
            /* Returns when PE 0 has begun to take it. */
            MPI_Ssend(message, LONG, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
            shmem_long_p(&word, 8, 0);
        }
        if (me != 0 && !strcmp(where, "sync"))
            shmem_barrier_all();
        free(message);
    }
    shmem_barrier_all();
    if (me == 0)
        printf("nobody waits for ever in %s\n", where);
    shmem_finalize();
    MPI_Finalize();
    return 0;
}
