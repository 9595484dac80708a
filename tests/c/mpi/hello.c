/* An MPI program as everybody's first: who am I, and on which node with whom? */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, local;
    MPI_Comm node;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &local);
    printf("hello from %d of %d, %d on this node\n", rank, size, local);
    MPI_Comm_free(&node);
    MPI_Finalize();
    return 0;
}
