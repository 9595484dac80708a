/* The program of src/bin/jacobi in C, for any OpenSHMEM library: `oshcc -O3 -o jacobi_c jacobi.c`,
 * `oshrun -np 4 [--nodes 2] jacobi_c [ROWS COLS]`. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 30, STEPS = 200 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    size_t rows = argc > 2 ? atol(argv[1]) : 64, cols = argc > 2 ? atol(argv[2]) : 512;
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), above = (me + n - 1) % n, below = (me + 1) % n;
    /* Two grids with a ghost row above and below, used in turn; the steps that have come from either side. */
    double *grids = shmem_calloc(2 * (rows + 2) * cols, sizeof *grids);
    uint64_t *come = shmem_calloc(2, sizeof *come), step = 0;
    double *sums = shmem_calloc(2, sizeof *sums), took[BATCHES];
    if (!grids || !come || !sums)
        shmem_global_exit(1);
    double *now_at = grids, *next = grids + (rows + 2) * cols;
    for (size_t i = 0; i < rows + 2; i++)
        for (size_t j = 0; j < cols; j++)
            now_at[i * cols + j] = (me + n + (i == 0 ? -1 : i > rows)) % n == 0 ? 1.0 : 0.0;
    shmem_barrier_all();
    for (int b = 0; b < BATCHES; b++) {
        double begin = now();
        for (int s = 0; s < STEPS; s++) {
            for (size_t i = 1; i <= rows; i++) {
                const double *up = now_at + (i - 1) * cols, *at = up + cols, *down = at + cols;
                double *to = next + i * cols;
                to[0] = at[0], to[cols - 1] = at[cols - 1];
                for (size_t j = 1; j + 1 < cols; j++)
                    to[j] = 0.25 * (up[j] + down[j] + at[j - 1] + at[j + 1]);
            }
            step++;
            shmem_double_put_signal(next + (rows + 1) * cols, next + cols, cols, come + 1, step, SHMEM_SIGNAL_SET, above);
            shmem_double_put_signal(next, next + rows * cols, cols, come, step, SHMEM_SIGNAL_SET, below);
            shmem_uint64_wait_until_all(come, 2, NULL, SHMEM_CMP_GE, step);
            double *other = now_at;
            now_at = next, next = other;
        }
        took[b] = (now() - begin) / STEPS;
    }
    for (size_t i = cols; i < (rows + 1) * cols; i++)
        sums[0] += now_at[i];
    shmem_double_sum_reduce(SHMEM_TEAM_WORLD, sums + 1, sums, 1);
    qsort(took, BATCHES, sizeof *took, ascending);
    if (me == 0)
        printf("%-8s %10.2f us a step, best %10.2f, sum %.9e\n", "C", took[BATCHES / 2], took[0], sums[1]);
    shmem_finalize();
    return 0;
}
