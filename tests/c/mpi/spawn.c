/* Parents spawn children, two programs of them, and all add up their ranks together. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "spawn: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 9);
    }
}

int main(int argc, char **argv)
{
    int rank, size, all, sum, of_all;
    MPI_Comm other, together;

    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&other);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int child = other != MPI_COMM_NULL;
    if (!child) {
        char *commands[2] = {argv[0], argv[0]};
        char *first[] = {"first", "two words", NULL}, *second[] = {"second", NULL};
        char **args[2] = {first, second};
        int procs[2] = {2, 3}, errors[5];
        MPI_Info infos[2];

        MPI_Info_create(&infos[0]);
        MPI_Info_set(infos[0], "wdir", "/");
        infos[1] = MPI_INFO_NULL;
        MPI_Comm_spawn_multiple(2, commands, args, procs, infos, 0, MPI_COMM_WORLD, &other,
                                errors);
        for (int i = 0; i < 5; i++)
            check(errors[i] == MPI_SUCCESS, "a child was not started");
        MPI_Info_free(&infos[0]);
    } else {
        int *number, flag;

        check(size == 5, "five children");
        check(!strcmp(argv[1], rank < 2 ? "first" : "second"), "arguments of the program");
        check(rank >= 2 || !strcmp(argv[2], "two words"), "an argument with a blank");
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &flag);
        check(flag && *number == (rank >= 2), "number of the program");
    }
    MPI_Intercomm_merge(other, child, &together);
    MPI_Comm_size(together, &all);
    MPI_Comm_rank(together, &of_all);
    MPI_Allreduce(&of_all, &sum, 1, MPI_INT, MPI_SUM, together);
    check(sum == all * (all - 1) / 2, "sum of ranks");
    printf("%s %d of %d, %d of %d together\n", child ? "child" : "parent", rank, size, of_all, all);
    MPI_Comm_free(&together);
    MPI_Comm_disconnect(&other);
    MPI_Finalize();
    return 0;
}
