/*
 * Time of collectives on all PEs, for any OpenSHMEM library from 1.4 on.
 *
 * The twin of src/bin/collectives.rs: the same rows, the same method, the same output. Whoever
 * changes one changes the other.
 *
 *     collectives [MILLISECONDS]        milliseconds of measurement per row, 50 if not given
 *
 * A call is the collective and a shmem_barrier_all, so that no PE runs ahead; in the rows
 * barrier_all and sync_all it is that alone. PE 0 takes the time, of batches of calls whose number
 * it finds beforehand, and tells the others. Libraries of 1.5 and later are called by their team
 * routines, older ones, and with ACTIVE_SETS defined all, by those with active sets. With BENCH_BIND
 * in the environment, and enough cores, each PE stays on the core of its number. Output is CSV as
 * that of p2p.c; bytes are those of one PE's contribution. All results are checked.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#if !defined ACTIVE_SETS && SHMEM_MAJOR_VERSION == 1 && SHMEM_MINOR_VERSION < 5
#define ACTIVE_SETS
#endif

enum { MOST = 65536, BATCHES = 10, CALIBRATION = 5 };

static int me, n;
static double row_ns;

/* Symmetric: arrays of MOST bytes and of as many for each PE, the number of calls, CPU time. */
static uint64_t *source, *dest, *wide;
static long *calls;
static double *cpu_of_last;

#ifdef ACTIVE_SETS
/* Large enough for each routine. */
static long sync_words[SHMEM_BCAST_SYNC_SIZE + SHMEM_REDUCE_SYNC_SIZE + SHMEM_COLLECT_SYNC_SIZE +
                       SHMEM_ALLTOALL_SYNC_SIZE];
static double work[MOST / sizeof(double) / 2 + 1 + SHMEM_REDUCE_MIN_WRKDATA_SIZE];
#endif

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static double cpu_ns(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e9 +
           (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e3;
}

/* ---- The collectives, on `words` words of 8 bytes. */

static void barrier(size_t words)
{
    (void)words;
    shmem_barrier_all();
}

static void sync_only(size_t words)
{
    (void)words;
    shmem_sync_all();
}

static void broadcast(size_t words)
{
#ifdef ACTIVE_SETS
    shmem_broadcast64(dest, source, words, 0, 0, 0, n, sync_words);
#else
    shmem_uint64_broadcast(SHMEM_TEAM_WORLD, dest, source, words, 0);
#endif
    shmem_barrier_all();
}

static void sum(size_t words)
{
#ifdef ACTIVE_SETS
    shmem_double_sum_to_all((double *)dest, (double *)source, words, 0, 0, n, work, sync_words);
#else
    shmem_double_sum_reduce(SHMEM_TEAM_WORLD, (double *)dest, (double *)source, words);
#endif
    shmem_barrier_all();
}

static void fcollect(size_t words)
{
#ifdef ACTIVE_SETS
    shmem_fcollect64(wide, source, words, 0, 0, n, sync_words);
#else
    shmem_uint64_fcollect(SHMEM_TEAM_WORLD, wide, source, words);
#endif
    shmem_barrier_all();
}

static void alltoall(size_t words)
{
#ifdef ACTIVE_SETS
    shmem_alltoall64(dest, wide, words, 0, 0, n, sync_words);
#else
    shmem_uint64_alltoall(SHMEM_TEAM_WORLD, dest, wide, words);
#endif
    shmem_barrier_all();
}

/* ---- What goes in and what must come out: word `i`, of PE `pe` where it matters. */

static uint64_t numbered(int pe, size_t i)
{
    return (uint64_t)pe * 1000003 + i;
}

static void fill_integers(size_t words)
{
    for (size_t i = 0; i < words; i++)
        source[i] = numbered(me, i);
}

static void fill_doubles(size_t words)
{
    for (size_t i = 0; i < words; i++)
        ((double *)source)[i] = (double)(numbered(me, i) % 1024);
}

static void fill_wide(size_t words)
{
    for (size_t i = 0; i < words * n; i++)
        wide[i] = numbered(me, i);
}

static int good_broadcast(size_t words)
{
    if (me == 0) /* with active sets the root's own array is left alone */
        return 1;
    for (size_t i = 0; i < words; i++)
        if (dest[i] != numbered(0, i))
            return 0;
    return 1;
}

static int good_sum(size_t words)
{
    for (size_t i = 0; i < words; i++) {
        double all = 0;
        for (int pe = 0; pe < n; pe++)
            all += (double)(numbered(pe, i) % 1024);
        if (((double *)dest)[i] != all)
            return 0;
    }
    return 1;
}

static int good_fcollect(size_t words)
{
    for (size_t i = 0; i < words * n; i++)
        if (wide[i] != numbered((int)(i / words), i % words))
            return 0;
    return 1;
}

static int good_alltoall(size_t words)
{
    for (size_t i = 0; i < words * n; i++)
        if (dest[i] != numbered((int)(i / words), me * words + i % words))
            return 0;
    return 1;
}

/* ---- The method. */

struct row {
    const char *name;
    size_t bytes;
    void (*call)(size_t words);
    void (*fill)(size_t words);
    int (*good)(size_t words);
};

static void run(const struct row *r, long times)
{
    for (long i = 0; i < times; i++)
        r->call(r->bytes / 8);
}

static void measure(const struct row *r)
{
    double samples[BATCHES], cpu, before, after;
    if (r->fill)
        r->fill(r->bytes / 8);
    shmem_barrier_all();
    run(r, 1);
    if (r->good && !r->good(r->bytes / 8)) {
        fprintf(stderr, "collectives: PE %d: wrong result in %s of %zu bytes\n", me, r->name,
                r->bytes);
        shmem_global_exit(1);
    }
    shmem_barrier_all();
    before = now_ns();
    run(r, CALIBRATION);
    after = now_ns();
    if (me == 0) {
        long times = (long)(row_ns / BATCHES / ((after - before) / CALIBRATION));
        for (int pe = 0; pe < n; pe++)
            shmem_long_p(calls, times < 1 ? 1 : times, pe);
    }
    shmem_barrier_all();
    long times = *calls;
    run(r, times / 4 + 1);
    cpu = cpu_ns();
    before = now_ns();
    for (int b = 0; b < BATCHES; b++) {
        run(r, times);
        after = now_ns();
        samples[b] = (after - before) / times;
        before = after;
    }
    cpu = cpu_ns() - cpu;
    if (me == n - 1)
        shmem_double_p(cpu_of_last, cpu, 0);
    shmem_barrier_all();
    if (me == 0) {
        long all = times * BATCHES;
        for (int b = 0; b < BATCHES; b++)
            printf("%s,%zu,ns,%ld,%.2f\n", r->name, r->bytes, times, samples[b]);
        printf("%s,%zu,cpu0_ns,%ld,%.2f\n", r->name, r->bytes, all, cpu / all);
        printf("%s,%zu,cpu1_ns,%ld,%.2f\n", r->name, r->bytes, all, *cpu_of_last / all);
        fflush(stdout);
    }
    shmem_barrier_all();
}

/* Keeps this PE on the core of its number among those that it may use. */
static void bind_to_core(void)
{
    cpu_set_t all, one;
    int left = me, core = -1;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || n > CPU_COUNT(&all))
        return;
    do
        left -= CPU_ISSET(++core, &all) ? 1 : 0;
    while (left >= 0);
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}

int main(int argc, char **argv)
{
    static const struct row rows[] = {
        {"barrier_all", 0, barrier, NULL, NULL},
        {"sync_all", 0, sync_only, NULL, NULL},
        {"broadcast", 8, broadcast, fill_integers, good_broadcast},
        {"broadcast", 65536, broadcast, fill_integers, good_broadcast},
        {"sum_reduce", 8, sum, fill_doubles, good_sum},
        {"sum_reduce", 32768, sum, fill_doubles, good_sum},
        {"fcollect", 8, fcollect, fill_integers, good_fcollect},
        {"fcollect", 1024, fcollect, fill_integers, good_fcollect},
        {"alltoall", 8, alltoall, fill_wide, good_alltoall},
    };
    double ms = argc > 1 ? atof(argv[1]) : 50;
    if (!(ms > 0)) {
        fprintf(stderr, "collectives: '%s' is not a number of milliseconds\n", argv[1]);
        return 2;
    }
    row_ns = ms * 1e6;
    shmem_init();
    me = shmem_my_pe();
    n = shmem_n_pes();
    if (getenv("BENCH_BIND"))
        bind_to_core();
#ifdef ACTIVE_SETS
    for (size_t i = 0; i < sizeof sync_words / sizeof(long); i++)
        sync_words[i] = SHMEM_SYNC_VALUE;
#endif
    source = shmem_malloc(MOST);
    dest = shmem_malloc(MOST);
    wide = shmem_malloc((size_t)1024 * n);
    calls = shmem_malloc(sizeof *calls);
    cpu_of_last = shmem_malloc(sizeof *cpu_of_last);
    if (!source || !dest || !wide || !calls || !cpu_of_last || 8 * (size_t)n > MOST) {
        fprintf(stderr, "collectives: PE %d: too little memory, or too many PEs\n", me);
        shmem_global_exit(1);
    }
    if (me == 0)
        printf("row,bytes,what,ops,value\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        measure(&rows[i]);
    shmem_finalize();
    return 0;
}
