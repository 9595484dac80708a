/* MPI and OpenSHMEM in one program. Arguments: the order of inits and the order of finalizes, each `ms` (MPI first) or `sm`
 * (OpenSHMEM first); then what else is to happen:
 *   again       OpenSHMEM is left and entered again while MPI is initialised
 *   late        the same after MPI is finalized, which a job of several nodes cannot do
 *   none        nothing
 *   multiple, single   thread levels
 *   mpi-abort, global-exit   the last PE ends the job with status 7
 *   return      the last PE returns from main with status 7, without finalize
 *   no-mpi      MPI is never initialised
 *   elsewhere   OpenSHMEM is initialised by another thread than MPI, at MPI_THREAD_FUNNELED
 * and whether ranks and PE numbers are to be compared (`any`: not). */
#include <mpi.h>
#include <pthread.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long slot;
static int wrong, level, compares = 1;

#define CHECK(condition) \
    ((condition) ? (void)0 : (void)(wrong++, fprintf(stderr, "line %d: %s\n", __LINE__, #condition)))

static int finalized(void)
{
    int is = 0;
    MPI_Finalized(&is);
    return is;
}

static void init_mpi(void)
{
    int provided;
    MPI_Init_thread(NULL, NULL, level, &provided);
}

static void init_shmem(void)
{
    int provided, queried;
    int wanted = level == MPI_THREAD_MULTIPLE ? SHMEM_THREAD_MULTIPLE : SHMEM_THREAD_SERIALIZED;
    if (shmem_init_thread(wanted, &provided) != 0)
        exit(1);
    shmem_query_thread(&queried);
    CHECK(provided >= wanted && queried == provided);
}

static void *init_elsewhere(void *argument)
{
    init_shmem();
    return argument;
}

/* Words to all others, with and without MPI at work meanwhile. */
static void work(int uses_mpi)
{
    int me = shmem_my_pe(), n = shmem_n_pes(), rank = me, size = n;
    if (uses_mpi) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        CHECK(!compares || (rank == me && size == n));
    }
    long *all = shmem_malloc(n * sizeof *all);
    memset(all, 0xff, n * sizeof *all);
    slot = -1;
    shmem_barrier_all();
    for (int pe = 0; pe < n; pe++)
        shmem_long_p(&all[me], 10 * me, pe);
    shmem_long_p(&slot, me, (me + 1) % n);
    if (uses_mpi) {
        MPI_Request request;
        int over = 0;
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        while (!over) {
            shmem_long_p(&all[me], 10 * me, (me + 1) % n);
            MPI_Test(&request, &over, MPI_STATUS_IGNORE);
        }
    }
    shmem_barrier_all();
    for (int pe = 0; pe < n; pe++)
        CHECK(all[pe] == 10 * pe);
    CHECK(slot == (me + n - 1) % n);
    if (uses_mpi) {
        long sum = -1;
        MPI_Allreduce(&all[me], &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == 10L * size * (size - 1) / 2 || !compares);
    }
    shmem_free(all);
}

int main(int argc, char **argv)
{
    const char *in = argc > 1 ? argv[1] : "ms", *out = argc > 2 ? argv[2] : "sm";
    const char *what = argc > 3 ? argv[3] : "none";
    int uses_mpi = strcmp(what, "no-mpi") != 0;
    compares = argc < 5;
    level = !strcmp(what, "multiple")    ? MPI_THREAD_MULTIPLE
            : !strcmp(what, "elsewhere") ? MPI_THREAD_FUNNELED
                                         : MPI_THREAD_SINGLE;

    if (*in == 'm' && uses_mpi)
        init_mpi();
    if (!strcmp(what, "elsewhere")) {
        pthread_t other;
        pthread_create(&other, NULL, init_elsewhere, NULL);
        pthread_join(other, NULL);
    } else {
        init_shmem();
    }
    if (*in != 'm' && uses_mpi)
        init_mpi();
    int me = shmem_my_pe(), n = shmem_n_pes(), last = me == n - 1;
    work(uses_mpi);
    if (!strcmp(what, "again")) {
        shmem_finalize();
        init_shmem();
        work(uses_mpi);
    }
    if (last && !strcmp(what, "mpi-abort"))
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (last && !strcmp(what, "global-exit"))
        shmem_global_exit(7);
    if (last && !strcmp(what, "return"))
        return 7;
    if (strcmp(what, "mpi-abort") == 0 || strcmp(what, "global-exit") == 0 || strcmp(what, "return") == 0)
        shmem_barrier_all(); /* for ever */
    printf("%s %s %s: PE %d of %d, %d wrong\n", in, out, what, me, n, wrong);
    fflush(stdout);
    if (*out == 'm' && uses_mpi)
        MPI_Finalize();
    if (*out == 'm')
        work(0);
    shmem_finalize();
    if (!strcmp(what, "late")) {
        if (!finalized() && uses_mpi)
            MPI_Finalize();
        init_shmem();
        work(0);
        shmem_finalize();
    }
    if (uses_mpi && !finalized())
        MPI_Finalize();
    return wrong != 0;
}
