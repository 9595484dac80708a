/* A program of Open MPI, for releases 4 and 5, without their headers: what is used here has the same form in
 * both. Says its place and a sum over all; then does what its argument says. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char ompi_mpi_comm_world[], ompi_mpi_int[], ompi_mpi_byte[], ompi_mpi_op_sum[];
int MPI_Init(int *, char ***);
int MPI_Finalize(void);
int MPI_Comm_rank(void *, int *);
int MPI_Comm_size(void *, int *);
int MPI_Allreduce(const void *, void *, int, void *, void *, void *);
int MPI_Send(const void *, int, void *, int, int, void *);
int MPI_Recv(void *, int, void *, int, int, void *, void *);
int MPI_Abort(void *, int);
double MPI_Wtime(void);

#define WORLD ((void *)ompi_mpi_comm_world)

/* Half the time of a round trip between the first and the last. */
static void latency(int rank, int size) {
    enum { ROUNDS = 200 };
    char byte = 0;
    double start = MPI_Wtime();
    for (int i = 0; i < ROUNDS; i++) {
        if (rank == 0) {
            MPI_Send(&byte, 1, ompi_mpi_byte, size - 1, 1, WORLD);
            MPI_Recv(&byte, 1, ompi_mpi_byte, size - 1, 1, WORLD, 0);
        } else if (rank == size - 1) {
            MPI_Recv(&byte, 1, ompi_mpi_byte, 0, 1, WORLD, 0);
            MPI_Send(&byte, 1, ompi_mpi_byte, 0, 1, WORLD);
        }
    }
    if (rank == 0)
        printf("latency %.2f us\n", (MPI_Wtime() - start) * 1e6 / ROUNDS / 2);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int rank, size, mine, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(WORLD, &rank);
    MPI_Comm_size(WORLD, &size);
    mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, ompi_mpi_int, ompi_mpi_op_sum, WORLD);
    printf("rank %d of %d, sum %d\n", rank, size, sum);
    fflush(stdout);
    if (!strcmp(what, "latency"))
        latency(rank, size);
    if (!strcmp(what, "abort") && rank == size - 1)
        MPI_Abort(WORLD, 7);
    if (!strcmp(what, "leave") && rank == size - 1)
        _exit(0);
    if (!strcmp(what, "sleep"))
        sleep(1000);
    MPI_Finalize();
    return 0;
}
