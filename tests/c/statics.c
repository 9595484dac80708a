/* Static variables of every kind are symmetric. */
#include "check.h"

long initialized_global = 77;                 /* .data */
long zero_global;                             /* .bss */
static int initialized_static[3] = {4, 5, 6}; /* .data of this file */
static char large[3 << 20];                   /* far more than a page */
static struct { short a; double b[2]; } record = {1, {2.5, 3.5}};
int *relocated = &initialized_static[1]; /* a pointer that the dynamic linker sets */

static long *counter(void)
{
    static long inside_a_function = 5;
    return &inside_a_function;
}

void statics(void)
{
    /* their values are what the program says */
    CHECK(initialized_global == 77 && zero_global == 0 && *counter() == 5);
    CHECK(initialized_static[2] == 6 && record.b[1] == 3.5 && *relocated == 5);
    shmem_barrier_all();
    shmem_long_atomic_add(&initialized_global, 1, 0);
    shmem_long_p(&zero_global, me + 1, right);
    shmem_int_put(initialized_static, (int[]){me, me + 1, me + 2}, 3, right);
    shmem_long_atomic_inc(counter(), right);
    shmem_double_p(&record.b[0], me + 0.25, right);
    shmem_char_p(&large[sizeof large - 1], (char)(me + 1), right);
    shmem_char_p(&large[sizeof large / 2], (char)(me + 2), right);
    shmem_barrier_all();
    CHECK(shmem_long_g(&initialized_global, 0) == 77 + n);
    CHECK(zero_global == left + 1);
    CHECK(initialized_static[0] == left && initialized_static[2] == left + 2 && *relocated == left + 1);
    CHECK(*counter() == 6);
    CHECK(record.b[0] == left + 0.25 && record.b[1] == 3.5 && record.a == 1);
    CHECK(large[sizeof large - 1] == left + 1 && large[sizeof large / 2] == left + 2);
    CHECK(large[0] == 0 && large[sizeof large - 2] == 0);
    CHECK(shmem_int_g(&initialized_static[1], left) == (left + n - 1) % n + 1);
    /* and this PE's own stores to them are seen */
    shmem_barrier_all();
    zero_global = 500 + me;
    shmem_barrier_all();
    CHECK(shmem_long_g(&zero_global, right) == 500 + right);
    shmem_barrier_all();
}
