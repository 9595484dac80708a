/* How long it takes from a moment that STARTED tells (seconds of `date +%s.%N`) to the end of MPI_Init on the last process,
 * and to the end of a first MPI_Allreduce. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    const char *started = getenv("STARTED");
    double begun = started ? strtod(started, NULL) : now(), mine, last, reduced;
    int rank, size;
    MPI_Init(&argc, &argv);
    mine = now() - begun;
    MPI_Allreduce(&mine, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    reduced = now() - begun;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        printf("%d processes: MPI_Init over after %.3f s, the first allreduce after %.3f s\n", size, last, reduced);
    MPI_Finalize();
    return 0;
}
