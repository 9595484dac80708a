/* The halo exchange of src/bin/halo.rs in C, for any OpenSHMEM library: `oshcc -O2 -o halo_c halo.c`,
 * `oshrun -np 4 [--nodes 2] halo_c`. The PEs are a ring; in each step a PE puts an edge to both neighbours with a
 * signal behind each, and waits for the two signals of its own. Rows: blocking, and non-blocking with quiet.
 * µs a step of PE 0, median and best of batches; all data is checked. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 60, LARGEST = 1 << 17 };

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

static int me, left, right;
static double *area;
static uint64_t *come, step;

static void exchange(const double *field, size_t n, int nbi)
{
    /* Two halves are used in turn: nobody overwrites what a slower neighbour has not read. */
    double *from_left = area + (++step % 2) * 2 * LARGEST, *from_right = from_left + LARGEST;
    if (nbi) {
        shmem_double_put_signal_nbi(from_left, field, n, come, 1, SHMEM_SIGNAL_ADD, right);
        shmem_double_put_signal_nbi(from_right, field, n, come, 1, SHMEM_SIGNAL_ADD, left);
        shmem_quiet();
    } else {
        shmem_double_put_signal(from_left, field, n, come, 1, SHMEM_SIGNAL_ADD, right);
        shmem_double_put_signal(from_right, field, n, come, 1, SHMEM_SIGNAL_ADD, left);
    }
    shmem_signal_wait_until(come, SHMEM_CMP_GE, 2 * step);
}

int main(void)
{
    static const size_t sizes[] = {8, 256, 4096, 16384, 65536, 1 << 20};
    static const char *const ways[] = {"put_signal", "nbi"};
    shmem_init();
    int n_pes = shmem_n_pes();
    me = shmem_my_pe(), left = (me + n_pes - 1) % n_pes, right = (me + 1) % n_pes;
    area = shmem_malloc(4 * LARGEST * sizeof *area);
    come = shmem_calloc(1, sizeof *come);
    uint64_t *steps_of = shmem_calloc(1, sizeof *steps_of);
    double *field = malloc(LARGEST * sizeof *field);
    if (!area || !come || !steps_of || !field)
        shmem_global_exit(2);
    if (me == 0)
        printf("%-12s %8s %10s %10s\n", "way", "bytes", "step, us", "best");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int nbi = 0; nbi < 2; nbi++) {
            size_t n = sizes[s] / sizeof *field;
            double value = sizes[s] + nbi, took[BATCHES];
            for (size_t i = 0; i < n; i++)
                field[i] = value + me;
            double begin = now();
            for (int i = 0; i < 10; i++)
                exchange(field, n, nbi);
            if (me == 0) {
                double steps = 4000 / ((now() - begin) / 10);
                for (int pe = 0; pe < n_pes; pe++)
                    shmem_uint64_p(steps_of, steps < 2 ? 2 : steps > 4000 ? 4000 : steps, pe);
            }
            shmem_barrier_all();
            uint64_t steps = *steps_of;
            for (int b = 0; b < BATCHES; b++) {
                begin = now();
                for (uint64_t i = 0; i < steps; i++)
                    exchange(field, n, nbi);
                took[b] = (now() - begin) / steps;
            }
            const double *edge = area + (step % 2) * 2 * LARGEST;
            for (size_t i = 0; i < n; i++)
                if (edge[i] != value + left || edge[LARGEST + i] != value + right)
                    shmem_global_exit(1);
            shmem_barrier_all();
            qsort(took, BATCHES, sizeof *took, ascending);
            if (me == 0)
                printf("%-12s %8zu %10.2f %10.2f\n", ways[nbi], sizes[s], took[BATCHES / 2], took[0]);
        }
    }
    shmem_finalize();
    return 0;
}
