/* A matrix times a vector on a grid of PEs: each has a block of the matrix, teams are the grid's rows
 * and columns.
 *
 *     oshcc matrix.c -o matrix && oshrun -np 6 ./matrix
 */
#include <shmem.h>
#include <stdio.h>

enum { BLOCK = 8 };

/* The matrix and the vector are made up where they are needed. */
static double matrix(int row, int column) { return row + 2.0 * column; }
static double vector(int column) { return column % 5 - 1; }

static double part[BLOCK], sum[BLOCK], given[BLOCK], piece[BLOCK];

int main(void)
{
    shmem_init();
    int n = shmem_n_pes(), width = 1;
    for (int w = 1; w * w <= n; w++) /* the grid without gaps that is nearest to a square */
        if (n % w == 0)
            width = w;

    shmem_team_t row, column;
    shmem_team_split_2d(SHMEM_TEAM_WORLD, width, NULL, 0, &row, NULL, 0, &column);
    int x = shmem_team_my_pe(row), y = shmem_team_my_pe(column);

    /* the first of each column has its piece of the vector and gives it to the others */
    if (y == 0)
        for (int j = 0; j < BLOCK; j++)
            given[j] = vector(x * BLOCK + j);
    shmem_double_broadcast(column, piece, given, BLOCK, 0);

    for (int i = 0; i < BLOCK; i++) {
        part[i] = 0;
        for (int j = 0; j < BLOCK; j++)
            part[i] += matrix(y * BLOCK + i, x * BLOCK + j) * piece[j];
    }
    /* what the blocks of a row have is added up; every PE of the row gets the sum */
    shmem_double_sum_reduce(row, sum, part, BLOCK);

    static long wrong, wrong_in_all;
    for (int i = 0; i < BLOCK; i++) {
        double want = 0;
        for (int j = 0; j < width * BLOCK; j++)
            want += matrix(y * BLOCK + i, j) * vector(j);
        wrong += sum[i] != want;
    }
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &wrong_in_all, &wrong, 1);
    if (shmem_my_pe() == 0)
        printf("%s\n", wrong_in_all ? "the product is wrong" : "the product is right");

    shmem_team_destroy(row);
    shmem_team_destroy(column);
    shmem_finalize();
    return wrong_in_all != 0;
}
