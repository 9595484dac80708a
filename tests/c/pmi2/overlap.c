/* What PMIX_Iallgather costs, and how much of an allgather passes while a process computes or sleeps.
   Prints for the slowest process, as the median of several rounds: the blocking call; the non-blocking one; what
   PMIX_Wait takes after a pause of `factor` blocking calls; and the overlap, the part that is not waited for.
     shmrun -x SHMEM_SPAWN=exec -n 256 overlap [width] [factor] [spin] */
#include <shmem_pmi2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 7

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void must(int code)
{
    if (code)
        exit(1);
}

int main(int argc, char **argv)
{
    int spawned, size, rank, appnum;
    int width = argc > 1 ? atoi(argv[1]) : 64;
    double factor = argc > 2 ? atof(argv[2]) : 1;
    int spin = argc > 3;
    double rounds[3][ROUNDS], pause = 0;

    must(PMI2_Init(&spawned, &size, &rank, &appnum));
    char *buffer = malloc((size_t)size * (size_t)width), *times = malloc((size_t)size * 128);
    must(!buffer || !times);
    for (int i = -1; i < ROUNDS; i++) {
        double t[3], start;
        char text[128];
        PMIX_Request request;
        must(PMI2_KVS_Fence());
        start = now();
        must(PMIX_Allgather_max("value", buffer, width));
        t[0] = now() - start;
        must(PMI2_KVS_Fence());
        start = now();
        must(PMIX_Iallgather_max("value", buffer, width, &request));
        t[1] = now() - start;
        if (spin) {
            for (double end = now() + pause; now() < end;)
                ;
        } else {
            struct timespec sleep = {(time_t)(pause / 1e6), (long)(pause * 1e3) % 1000000000};
            nanosleep(&sleep, NULL);
        }
        start = now();
        must(PMIX_Wait(request));
        t[2] = now() - start;
        snprintf(text, sizeof text, "%f %f %f", t[0], t[1], t[2]);
        must(PMIX_Allgather_max(text, times, 128));
        t[0] = t[1] = t[2] = 0;
        for (int r = 0; r < size; r++) {
            char *at = times + r * 128;
            for (int k = 0; k < 3; k++) {
                double one = strtod(at, &at);
                t[k] = one > t[k] ? one : t[k];
            }
        }
        pause = factor * t[0];
        for (int k = 0; k < 3 && i >= 0; k++)
            rounds[k][i] = t[k];
    }
    for (int k = 0; k < 3; k++)
        qsort(rounds[k], ROUNDS, sizeof(double), by_size);
    if (rank == 0) {
        double all = rounds[0][ROUNDS / 2], call = rounds[1][ROUNDS / 2], wait = rounds[2][ROUNDS / 2];
        printf("%d processes, %d bytes: allgather %.0f us, iallgather %.1f us, wait %.1f us, overlap %.0f %%\n", size, width,
               all, call, wait, 100 * (1 - (call + wait) / all));
    }
    must(PMI2_Finalize());
    return 0;
}
