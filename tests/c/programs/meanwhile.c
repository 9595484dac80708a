/* What goes on while shmem_init moves static data: stores of threads and of signal handlers, and allocations. */
#include <pthread.h>
#include <shmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* Takes long enough to move. */
static char large[16 << 20];
static volatile long in_static;
static volatile long *in_heap;
static volatile int end;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *count(void *unused)
{
    while (!end) {
        ++*in_heap;
        in_static++;
    }
    return unused;
}

static void *take_turns(void *unused)
{
    while (!end) {
        pthread_mutex_lock(&lock);
        in_static++;
        ++*in_heap;
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static void *allocate(void *unused)
{
    void *held[64] = {0};
    for (unsigned i = 0; !end; i = i * 1103515245 + 12345) {
        free(held[i / 65536 % 64]);
        held[i / 65536 % 64] = malloc(1 + i / 65536 % 3000);
    }
    for (int i = 0; i < 64; i++)
        free(held[i]);
    return unused;
}

static void on_timer(int signal)
{
    (void)signal;
    in_static++;
    ++*in_heap;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    pthread_t threads[3];
    int n = 0, provided, bad = 0;
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    in_heap = calloc(1, sizeof *in_heap);
    memset(large, 1, sizeof large);
    if (strcmp(what, "count") == 0)
        n = 1, pthread_create(&threads[0], NULL, count, NULL);
    else if (strcmp(what, "turns") == 0)
        for (; n < 2; n++)
            pthread_create(&threads[n], NULL, take_turns, NULL);
    else if (strcmp(what, "allocate") == 0)
        for (; n < 3; n++)
            pthread_create(&threads[n], NULL, allocate, NULL);
    else {
        signal(SIGALRM, on_timer);
        setitimer(ITIMER_REAL, &often, NULL);
    }
    if (n > 0)
        usleep(10000);
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    end = 1;
    setitimer(ITIMER_REAL, &never, NULL);
    while (n > 0)
        pthread_join(threads[--n], NULL);
    if (in_static != *in_heap) {
        printf("lost: %ld of %ld\n", *in_heap - in_static, *in_heap);
        bad = 1;
    }
    int right = (shmem_my_pe() + 1) % shmem_n_pes();
    static long neighbour;
    shmem_long_p(&neighbour, right, right);
    shmem_barrier_all();
    if (neighbour != shmem_my_pe())
        bad = 2;
    if (shmem_my_pe() == 0)
        puts("done");
    shmem_finalize();
    return bad;
}
