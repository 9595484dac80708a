/* A program for tools: static data, the heap, puts and gets, barriers and a thread. Every PE checks what it gets.
 *
 * With an argument it makes one mistake, for a tool to find: `overflow`, `undefined`, `race`, `leak`. With `busy` it computes
 * for a while, for profilers, and with `hold` all PEs wait until a debugger sets `go` in one of them. */
#include <pthread.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORDS = 1000 };

static long first = 41, from_left[WORDS], sum;
volatile long go;
static int shared_by_threads;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *locked(void *argument)
{
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        shared_by_threads++;
        pthread_mutex_unlock(&mutex);
    }
    return argument;
}

__attribute__((noinline)) void *unlocked(void *argument)
{
    for (int i = 0; i < 1000; i++)
        shared_by_threads++;
    return argument;
}

/* Private memory that ends before what is stored. */
__attribute__((noinline)) void overflow(long n)
{
    volatile long *few = malloc(n * sizeof *few);
    few[n] = 1;
    free((void *)few);
}

__attribute__((noinline)) int undefined(int n)
{
    volatile int large = 0x7fffffff;
    return large + n;
}

__attribute__((noinline)) void leak(void)
{
    char *volatile lost = malloc(1234);
    lost[0] = 'x';
    lost = NULL;
}

/* Some tenths of a second of this process. */
__attribute__((noinline)) double busy(void)
{
    double x = 1;
    clock_t end = clock() + CLOCKS_PER_SEC / 5;
    while (clock() < end)
        for (int i = 1; i < 100000; i++)
            x += 1.0 / i / x;
    return x;
}

int main(int argc, char **argv)
{
    const char *mistake = argc > 1 ? argv[1] : "";
    int provided;
    if (shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) || provided != SHMEM_THREAD_MULTIPLE)
        return 3;
    int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n, bad = 0;
    first += me;
    pthread_t thread;
    pthread_create(&thread, NULL, strcmp(mistake, "race") ? locked : unlocked, NULL);
    (strcmp(mistake, "race") ? locked : unlocked)(NULL);

    long *mine = malloc(WORDS * sizeof *mine), *heap = shmem_malloc(WORDS * sizeof *heap);
    if (!mine || !heap)
        return 4;
    for (int i = 0; i < WORDS; i++)
        mine[i] = heap[i] = 1000L * me + i;
    shmem_barrier_all();
    shmem_long_put(from_left, mine, WORDS, right);
    shmem_long_get(mine, heap, WORDS, left);
    shmem_barrier_all();
    for (int i = 0; i < WORDS; i++)
        bad += from_left[i] != 1000L * left + i || mine[i] != 1000L * left + i;
    bad += shmem_long_g(&first, left) != 41 + left;
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &sum, &first, 1);
    bad += sum != 41L * n + n * (n - 1) / 2;
    pthread_join(thread, NULL);

    if (!strcmp(mistake, "hold")) {
        shmem_long_wait_until((long *)&go, SHMEM_CMP_NE, 0);
        for (int pe = 0; pe < n; pe++)
            shmem_long_p((long *)&go, 1, pe);
    } else if (!strcmp(mistake, "busy")) {
        bad += busy() < 0;
    } else if (me == n - 1) {
        if (!strcmp(mistake, "overflow"))
            overflow(4);
        else if (!strcmp(mistake, "undefined"))
            bad += undefined(n) > 0;
        else if (!strcmp(mistake, "leak"))
            leak();
    }
    bad += strcmp(mistake, "race") && shared_by_threads != 2000;
    free(mine);
    shmem_free(heap);
    printf("PE %d: %d wrong\n", me, bad);
    shmem_finalize();
    return bad != 0;
}
