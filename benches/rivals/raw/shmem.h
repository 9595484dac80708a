/*
 * No library at all: what two processes get from memory that they share. The benchmarks of this
 * directory are compiled against it to know the limits of the machine, in the same minute as the
 * libraries are measured.
 *
 * The two PEs are forked by shmem_init and share a mapping; everything is inlined, and checks
 * nothing. There is only what the benchmarks of two PEs use. Static variables are not symmetric.
 */
#ifndef RAW_SHMEM_H
#define RAW_SHMEM_H
#define NO_SYMMETRIC_STATICS 1
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHMEM_CMP_EQ = 1, SHMEM_CMP_NE };
enum { RAW_SEGMENT = 64 << 20, RAW_APART = 128 };

static char *raw_base;
static int raw_me;
static size_t raw_used;
static pid_t raw_child;

/* On a line of its own for each PE, at the start of its segment. */
static long *raw_arrived(int pe)
{
    return (long *)(raw_base + (size_t)pe * RAW_SEGMENT);
}

static inline void *raw_of(const void *at, int pe)
{
    return (char *)at + (ptrdiff_t)(pe - raw_me) * RAW_SEGMENT;
}

static inline void raw_pause(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

static inline void shmem_quiet(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void shmem_barrier_all(void)
{
    long round = __atomic_add_fetch(raw_arrived(raw_me), 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(raw_arrived(1 - raw_me), __ATOMIC_ACQUIRE) < round)
        raw_pause();
}

static inline void shmem_sync_all(void)
{
    shmem_barrier_all();
}

static inline void *shmem_malloc(size_t bytes)
{
    size_t at = raw_used;
    if (bytes > RAW_SEGMENT - at)
        return NULL;
    /* Large arrays begin on a page, as in other libraries. */
    if (bytes >= 4096)
        at = (at + 4095) / 4096 * 4096;
    raw_used = (at + bytes + RAW_APART - 1) / RAW_APART * RAW_APART;
    return raw_base + (size_t)raw_me * RAW_SEGMENT + at;
}

static inline void *shmem_calloc(size_t n, size_t size)
{
    return shmem_malloc(n * size); /* fresh pages are zero, and nothing is freed */
}

static inline void shmem_init(void)
{
    raw_base = mmap(NULL, 2 * (size_t)RAW_SEGMENT, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (raw_base == MAP_FAILED)
        exit(3);
    raw_used = RAW_APART;
    raw_child = fork();
    if (raw_child < 0)
        exit(3);
    raw_me = raw_child == 0;
}

static inline void shmem_finalize(void)
{
    shmem_barrier_all();
    if (raw_child != 0)
        waitpid(raw_child, NULL, 0);
}

static inline void shmem_global_exit(int status)
{
    kill(raw_child != 0 ? raw_child : getppid(), 15);
    exit(status);
}

static inline int shmem_my_pe(void)
{
    return raw_me;
}

static inline int shmem_n_pes(void)
{
    return 2;
}

static inline void shmem_putmem(void *dest, const void *source, size_t bytes, int pe)
{
    memcpy(raw_of(dest, pe), source, bytes);
}

static inline void shmem_putmem_nbi(void *dest, const void *source, size_t bytes, int pe)
{
    memcpy(raw_of(dest, pe), source, bytes);
}

static inline void shmem_getmem(void *dest, const void *source, size_t bytes, int pe)
{
    memcpy(dest, raw_of(source, pe), bytes);
}

static inline void shmem_long_p(long *dest, long value, int pe)
{
    __atomic_store_n((long *)raw_of(dest, pe), value, __ATOMIC_RELEASE);
}

static inline void shmem_double_p(double *dest, double value, int pe)
{
    *(volatile double *)raw_of(dest, pe) = value;
}

static inline long shmem_long_g(const long *source, int pe)
{
    return __atomic_load_n((long *)raw_of(source, pe), __ATOMIC_RELAXED);
}

static inline long shmem_long_atomic_fetch_add(long *dest, long value, int pe)
{
    return __atomic_fetch_add((long *)raw_of(dest, pe), value, __ATOMIC_SEQ_CST);
}

static inline void shmem_long_atomic_add(long *dest, long value, int pe)
{
    __atomic_fetch_add((long *)raw_of(dest, pe), value, __ATOMIC_SEQ_CST);
}

static inline long shmem_long_atomic_compare_swap(long *dest, long cond, long value, int pe)
{
    __atomic_compare_exchange_n((long *)raw_of(dest, pe), &cond, value, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return cond;
}

static inline void shmem_long_wait_until(long *word, int cmp, long value)
{
    while ((__atomic_load_n(word, __ATOMIC_ACQUIRE) == value) != (cmp == SHMEM_CMP_EQ))
        raw_pause();
}
#endif
