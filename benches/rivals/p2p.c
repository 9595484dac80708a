/*
 * Time and CPU time per one-sided operation between two PEs, for any OpenSHMEM 1.4 library.
 *
 * The twin of src/bin/p2p.rs: the same rows, the same method, the same output, so that our library
 * and others can be measured in one sitting. Whoever changes one changes the other.
 *
 *     p2p [MILLISECONDS [CALLS]]     milliseconds of measurement per row, 50 if not given
 *
 * PE 0 acts on the last PE, which sits in shmem_barrier_all (in the ping-pong it answers). All
 * buffers lie in the symmetric heap, but for the local ones of the rows *_private, which come from
 * malloc, and the flag of pingpong_static. Operations are timed in batches of about 40 us, or of
 * one call where that takes longer. With BENCH_BIND in the environment each PE stays on the core of
 * its number. Output is CSV:
 *
 *     row,bytes,what,ops,value
 *     put+quiet,8,ns,4,9150.25          one batch: its operations and the time of each
 *     put+quiet,8,cpu0_ns,5464,9012.1   all batches: CPU time of PE 0 per operation
 *     put+quiet,8,cpu1_ns,5464,8923.7   and that of the last PE
 *     put+quiet,8,doorbells,5464,1.01   what was counted meanwhile, per operation
 *
 * With a number of calls each row is one batch of so many calls, or of fewer that move 8 MiB, after one more; with 0 there are no rows, and
 * the program but begins and ends. BENCH_COUNTS in the environment names files of counters, with colons between
 * them, which PE 0 reads before and after: a number, or lines of names and numbers.
 *
 * Put alone is time until the source may be used again; rows with +quiet have one quiet each. An
 * operation of put_nbi_x1000, put_nbi_x64 and atomic_add_x1000 is one of the thousand or the 64, with its
 * share of the quiet; an operation of pingpong is one way. The program ends with status 1 if data or sums are
 * not what they must be.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum {
    LARGEST = 4 << 20,
    STREAM = 1000,
    SHORT_STREAM = 64,
    FEWEST_BATCHES = 20,
    MOST_BATCHES = 1 << 16,
    MOST_COUNTS = 16,
    MOST_BYTES = 8 << 20
};
#define BATCH_NS 40e3
#define WARM_UP_NS 2e6

static int me, target;
static double row_ns;
static long calls_per_row = -1;
static double samples[MOST_BATCHES];
static char mark;

/* Symmetric. */
static char *area, *source, *sink;
static long *sum, *compared, *turn;
static double *cpu_of_target;

/* Of this PE alone. */
static char *private;

/* Operations that PE 0 has done, for the checks. */
static long added, swapped, sent;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* User and system time of this process with all its threads. */
static double cpu_ns(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e9 +
           (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e3;
}

/* ---- Counters. */

struct count {
    char name[48];
    unsigned long value;
};
struct counts {
    struct count of[MOST_COUNTS];
    int n;
};

static void count_more(struct counts *counts, const char *name, unsigned long value)
{
    int i = 0;
    while (i < counts->n && strcmp(counts->of[i].name, name) != 0)
        i++;
    if (i == MOST_COUNTS)
        return;
    if (i == counts->n) {
        counts->n++;
        counts->of[i].value = 0;
        snprintf(counts->of[i].name, sizeof counts->of[i].name, "%s", name);
    }
    counts->of[i].value += value;
}

/* The counters as they stand. */
static struct counts read_counts(void)
{
    struct counts counts = {.n = 0};
    const char *files = getenv("BENCH_COUNTS");
    char *list = strdup(files ? files : ""), *rest = list, *path, line[256];
    while ((path = strsep(&rest, ":")) != NULL) {
        FILE *file = fopen(path, "r");
        const char *slash = strrchr(path, '/');
        while (file && fgets(line, sizeof line, file)) {
            char first[48], second[48];
            int words = sscanf(line, "%47s %47s", first, second);
            char *number = words == 1 ? first : second, *end;
            if (words < 1)
                continue;
            unsigned long value = strtoul(number, &end, 10);
            if (*end == 0)
                count_more(&counts, words == 1 ? (slash ? slash + 1 : path) : first, value);
        }
        if (file)
            fclose(file);
    }
    free(list);
    return counts;
}

static void fail(const char *row, size_t bytes)
{
    fprintf(stderr, "p2p: PE %d: wrong result in %s of %zu bytes\n", me, row, bytes);
    shmem_global_exit(1);
}

/* ---- The operations. */

static void put(size_t bytes)
{
    shmem_putmem(area, source, bytes, target);
}

static void put_private(size_t bytes)
{
    shmem_putmem(area, private, bytes, target);
}

static void get_private(size_t bytes)
{
    shmem_getmem(private, area, bytes, target);
}

static void p(size_t bytes)
{
    (void)bytes;
    shmem_long_p((long *)area, *(long *)source, target);
}

static void g(size_t bytes)
{
    (void)bytes;
    *(long *)sink = shmem_long_g((long *)area, target);
}

static void put_quiet(size_t bytes)
{
    shmem_putmem(area, source, bytes, target);
    shmem_quiet();
}

static void get(size_t bytes)
{
    shmem_getmem(sink, area, bytes, target);
}

static void fetch_add(size_t bytes)
{
    (void)bytes;
    if (shmem_long_atomic_fetch_add(sum, 1, target) != added++)
        fail("fetch_add", 8);
}

static void compare_swap(size_t bytes)
{
    (void)bytes;
    if (shmem_long_atomic_compare_swap(compared, swapped, swapped + 1, target) != swapped)
        fail("compare_swap", 8);
    swapped++;
}

static void put_nbi_stream(size_t bytes)
{
    for (size_t i = 0; i < STREAM; i++)
        shmem_putmem_nbi(area + i * bytes, source + i * bytes, bytes, target);
    shmem_quiet();
}

static void put_nbi_short_stream(size_t bytes)
{
    /* Where they are more than the buffers hold, they begin again. */
    for (size_t i = 0; i < SHORT_STREAM; i++)
        shmem_putmem_nbi(area + i * bytes % LARGEST, source + i * bytes % LARGEST, bytes, target);
    shmem_quiet();
}

static void atomic_add_stream(size_t bytes)
{
    (void)bytes;
    for (int i = 0; i < STREAM; i++)
        shmem_long_atomic_add(sum, 1, target);
    added += STREAM;
    shmem_quiet();
}

/* The flag in use. */
static long *turn_now;

static void ping(size_t bytes)
{
    (void)bytes;
    sent++;
    shmem_long_p(turn_now, sent, target);
    shmem_long_wait_until(turn_now, SHMEM_CMP_EQ, sent);
}

/* The target's part of the ping-pong: sends back what comes, until it is negative. */
static void answer(void)
{
    static long seen = 0;
    for (;;) {
        shmem_long_wait_until(turn_now, SHMEM_CMP_NE, seen);
        seen = *(volatile long *)turn_now;
        if (seen < 0)
            return;
        shmem_long_p(turn_now, seen, 0);
    }
}

static void end_answers(void)
{
    shmem_long_p(turn_now, -sent, target);
}

/* ---- The method. */

struct row {
    const char *name;
    size_t bytes;
    long weight; /* operations per call */
    void (*call)(size_t bytes);
    void (*answer)(void); /* what the target does instead of sitting in the barrier */
    void (*end)(void);    /* how PE 0 ends that */
};

/* One phase: PE 0 works, the others meet it in the barrier. */
static void meet(const struct row *r)
{
    if (me == 0 && r->end)
        r->end();
    if (me == target && r->answer)
        r->answer();
    shmem_barrier_all();
}

static void measure(const struct row *r)
{
    long per_batch = 1, batches = 0;
    struct counts counted = {.n = 0};
    shmem_barrier_all();
    if (me == 0 && calls_per_row > 0) {
        r->call(r->bytes);
        per_batch = MOST_BYTES / (r->bytes * r->weight);
        if (per_batch > calls_per_row)
            per_batch = calls_per_row;
        if (per_batch < 1)
            per_batch = 1;
    } else if (me == 0) {
        long calls = 0;
        double start = now_ns(), spent;
        do {
            r->call(r->bytes);
            calls++;
            spent = now_ns() - start;
        } while (spent < WARM_UP_NS);
        per_batch = (long)(BATCH_NS / (spent / calls));
        if (per_batch < 1)
            per_batch = 1;
    }
    meet(r);

    double cpu = cpu_ns();
    if (me == 0) {
        long fewest = calls_per_row > 0 ? 1 : FEWEST_BATCHES;
        struct counts counts = read_counts();
        double start = now_ns(), before = start, after;
        do {
            for (long i = 0; i < per_batch; i++)
                r->call(r->bytes);
            after = now_ns();
            samples[batches++] = (after - before) / (per_batch * r->weight);
            before = after;
        } while (batches < MOST_BATCHES && (batches < fewest || after - start < row_ns));
        cpu = cpu_ns() - cpu;
        counted = read_counts();
        for (int i = 0; i < counts.n && i < counted.n; i++)
            counted.of[i].value -= counts.of[i].value;
    }
    meet(r);
    if (me == target) {
        cpu = cpu_ns() - cpu;
        shmem_double_p(cpu_of_target, cpu, 0);
    }
    shmem_barrier_all();

    if (me == 0) {
        long ops = per_batch * r->weight, all = ops * batches;
        for (long b = 0; b < batches; b++)
            printf("%s,%zu,ns,%ld,%.2f\n", r->name, r->bytes, ops, samples[b]);
        printf("%s,%zu,cpu0_ns,%ld,%.2f\n", r->name, r->bytes, all, cpu / all);
        printf("%s,%zu,cpu1_ns,%ld,%.2f\n", r->name, r->bytes, all, *cpu_of_target / all);
        for (int i = 0; i < counted.n; i++)
            printf("%s,%zu,%s,%ld,%.3f\n", r->name, r->bytes, counted.of[i].name, all,
                   (double)counted.of[i].value / all);
        fflush(stdout);
    }
}

static void expect(const struct row *r, const char *data, size_t len, char value)
{
    for (size_t i = 0; i < len; i++)
        if (data[i] != value)
            fail(r->name, r->bytes);
}

/* Measures puts of `len` bytes in all, marked so that their arrival can be checked. */
static void measure_puts(const struct row *r, char *from, size_t len)
{
    memset(from, ++mark, len);
    measure(r);
    if (me == target)
        expect(r, area, len, mark);
    shmem_barrier_all();
}

static void measure_gets(const struct row *r, char *to)
{
    memset(area, ++mark, r->bytes);
    measure(r);
    if (me == 0)
        expect(r, to, r->bytes, mark);
    shmem_barrier_all();
}

/* Keeps this PE on the core of its number among those that it may use. */
static void bind_to_core(void)
{
    cpu_set_t all, one;
    int left = me, core = -1;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || shmem_n_pes() > CPU_COUNT(&all))
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
    static const size_t sizes[] = {8, 64, 256, 1024, 4096, 16384, 65536, 1 << 20, LARGEST};
    double ms = argc > 1 ? atof(argv[1]) : 50;
    if (!(ms >= 0)) {
        fprintf(stderr, "p2p: '%s' is not a number of milliseconds\n", argv[1]);
        return 2;
    }
    row_ns = ms * 1e6;
    if (argc > 2)
        calls_per_row = atol(argv[2]);

    shmem_init();
    me = shmem_my_pe();
    target = shmem_n_pes() - 1;
    if (target == 0) {
        fprintf(stderr, "p2p: needs at least 2 PEs\n");
        shmem_global_exit(2);
    }
    if (getenv("BENCH_BIND"))
        bind_to_core();
    if (calls_per_row == 0) {
        shmem_finalize();
        return 0;
    }
    private = malloc(LARGEST);
    area = shmem_malloc(LARGEST);
    source = shmem_malloc(LARGEST);
    sink = shmem_malloc(LARGEST);
    sum = shmem_calloc(1, sizeof *sum);
    compared = shmem_calloc(1, sizeof *compared);
    turn = shmem_calloc(1, sizeof *turn);
    cpu_of_target = shmem_calloc(1, sizeof *cpu_of_target);
    if (!private || !area || !source || !sink || !sum || !compared || !turn || !cpu_of_target) {
        fprintf(stderr, "p2p: PE %d: there is too little memory\n", me);
        shmem_global_exit(1);
    }
    memset(area, 0, LARGEST);
    memset(sink, 0, LARGEST);
    memset(private, 0, LARGEST);

    if (me == 0)
        printf("row,bytes,what,ops,value\n");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t size = sizes[i];
        struct row put_row = {"put", size, 1, put, NULL, NULL};
        struct row put_private_row = {"put_private", size, 1, put_private, NULL, NULL};
        struct row put_quiet_row = {"put+quiet", size, 1, put_quiet, NULL, NULL};
        struct row get_row = {"get", size, 1, get, NULL, NULL};
        struct row get_private_row = {"get_private", size, 1, get_private, NULL, NULL};
        measure_puts(&put_row, source, size);
        measure_puts(&put_private_row, private, size);
        measure_puts(&put_quiet_row, source, size);
        measure_gets(&get_row, sink);
        measure_gets(&get_private_row, private);
    }
    struct row p_row = {"p", 8, 1, p, NULL, NULL};
    struct row g_row = {"g", 8, 1, g, NULL, NULL};
    struct row fetch_add_row = {"fetch_add", 8, 1, fetch_add, NULL, NULL};
    struct row compare_swap_row = {"compare_swap", 8, 1, compare_swap, NULL, NULL};
    struct row put_nbi_row = {"put_nbi_x1000", 8, STREAM, put_nbi_stream, NULL, NULL};
    struct row atomic_add_row = {"atomic_add_x1000", 8, STREAM, atomic_add_stream, NULL, NULL};
    struct row pingpong_row = {"pingpong", 8, 2, ping, answer, end_answers};
    measure_puts(&p_row, source, 8);
    measure_gets(&g_row, sink);
    measure(&fetch_add_row);
    measure(&compare_swap_row);
    measure_puts(&put_nbi_row, source, 8 * STREAM);
    for (size_t i = 0; i < 5; i++) {
        static const size_t some[] = {8, 256, 4096, 65536, 1 << 20};
        struct row row = {"put_nbi_x64", some[i], SHORT_STREAM, put_nbi_short_stream, NULL, NULL};
        const size_t len = SHORT_STREAM * some[i];
        measure_puts(&row, source, len < LARGEST ? len : LARGEST);
    }
    measure(&atomic_add_row);
    turn_now = turn;
    measure(&pingpong_row);
#ifndef NO_SYMMETRIC_STATICS
    struct row pingpong_static_row = {"pingpong_static", 8, 2, ping, answer, end_answers};
    /* Apart from what this PE writes for itself. */
    static long static_turn[32] __attribute__((aligned(128)));
    turn_now = static_turn;
    measure(&pingpong_static_row);
#endif

    if (me == 0 && shmem_long_g(sum, target) != added)
        fail("atomic_add_x1000", 8);
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
