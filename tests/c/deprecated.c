/* Deprecated and removed names that old programs use. */
#include "check.h"

#include <mpp/shmem.h>

#define OLD3(X) X(int, int) X(long, long) X(longlong, long long)
#define OLD5(X) OLD3(X) X(float, float) X(double, double)

#define READ_TEST(TYPENAME, T)                                                                     \
    static T TYPENAME##_cell;                                                                      \
    static void reading_##TYPENAME(void)                                                           \
    {                                                                                              \
        T *cell = &TYPENAME##_cell;                                                                \
        shmem_##TYPENAME##_set(cell, VALUE(T, me, 1), right);                                      \
        shmem_barrier_all();                                                                       \
        CHECK(*cell == VALUE(T, left, 1));                                                         \
        shmem_barrier_all();                                                                       \
        CHECK(shmem_##TYPENAME##_fetch(cell, right) == VALUE(T, me, 1));                           \
        CHECK(shmem_##TYPENAME##_swap(cell, VALUE(T, me, 2), right) == VALUE(T, me, 1));           \
        /* the same by the names that C11 chooses the type for */                                  \
        shmem_set(cell, VALUE(T, me, 3), right);                                                   \
        shmem_quiet();                                                                             \
        CHECK(shmem_fetch(cell, right) == VALUE(T, me, 3));                                        \
        CHECK(shmem_swap(cell, VALUE(T, me, 4), right) == VALUE(T, me, 3));                        \
        shmem_barrier_all();                                                                       \
        CHECK(*cell == VALUE(T, left, 4));                                                         \
        shmem_barrier_all();                                                                       \
    }
OLD5(READ_TEST)

#define ADD_TEST(TYPENAME, T)                                                                      \
    static void adding_##TYPENAME(void)                                                            \
    {                                                                                              \
        T *cell = &TYPENAME##_cell;                                                                \
        *cell = 10;                                                                                \
        shmem_barrier_all();                                                                       \
        shmem_##TYPENAME##_inc(cell, right);                                                       \
        shmem_##TYPENAME##_add(cell, 5, right);                                                    \
        shmem_quiet();                                                                             \
        CHECK(shmem_##TYPENAME##_finc(cell, right) == 16);                                         \
        CHECK(shmem_##TYPENAME##_fadd(cell, 3, right) == 17);                                      \
        CHECK(shmem_##TYPENAME##_cswap(cell, 20, 30, right) == 20);                                \
        CHECK(shmem_##TYPENAME##_cswap(cell, 20, 40, right) == 30);                                \
        shmem_inc(cell, right);                                                                    \
        shmem_add(cell, 5, right);                                                                 \
        shmem_quiet();                                                                             \
        CHECK(shmem_finc(cell, right) == 36);                                                      \
        CHECK(shmem_fadd(cell, 3, right) == 37);                                                   \
        CHECK(shmem_cswap(cell, 40, 50, right) == 40);                                             \
        shmem_barrier_all();                                                                       \
        CHECK(*cell == 50);                                                                        \
        shmem_barrier_all();                                                                       \
    }
OLD3(ADD_TEST)

#define WAIT_TEST(TYPENAME, T)                                                                     \
    static T TYPENAME##_flag;                                                                      \
    static void waiting_##TYPENAME(void)                                                           \
    {                                                                                              \
        T *flag = &TYPENAME##_flag;                                                                \
        shmem_##TYPENAME##_p(flag, 3, right);                                                      \
        shmem_##TYPENAME##_wait(flag, 0);                                                          \
        CHECK(*flag == 3);                                                                         \
        shmem_barrier_all();                                                                       \
        shmem_##TYPENAME##_p(flag, 4, right);                                                      \
        shmem_##TYPENAME##_wait_until(flag, SHMEM_CMP_EQ, 4);                                      \
        shmem_barrier_all();                                                                       \
    }
SET4(WAIT_TEST)

static unsigned short ushort_flag;
static long long_word;

static void untyped(void)
{
    long_word = 0;
    shmem_barrier_all();
    shmem_long_p(&long_word, 8, right);
    shmem_wait(&long_word, 0);
    CHECK(long_word == 8);
    shmem_barrier_all();
    shmem_long_p(&long_word, 9, right);
    (shmem_wait_until)(&long_word, SHMEM_CMP_GT, 8); /* the function behind C11's name */
    shmem_barrier_all();
    shmem_long_p(&long_word, 10, right);
    shmem_wait_until(&long_word, _SHMEM_CMP_GE, 10);
    shmem_barrier_all();
    CHECK(shmem_short_test(&short_flag, SHMEM_CMP_EQ, 4) == 1);
    CHECK(shmem_short_test(&short_flag, SHMEM_CMP_LT, 4) == 0);
    CHECK(shmem_ushort_test(&ushort_flag, SHMEM_CMP_NE, 0) == 0);
    shmem_barrier_all();
    shmem_ushort_p(&ushort_flag, 65535, right);
    shmem_ushort_wait_until(&ushort_flag, SHMEM_CMP_GT, 65534);
    CHECK(shmem_ushort_test(&ushort_flag, SHMEM_CMP_EQ, 65535) == 1);
    shmem_barrier_all();
}

static void old_memory(void)
{
    long *a = shmalloc(100 * sizeof(long)), *b = shmemalign(4096, 10);
    CHECK(a != NULL && b != NULL && (uintptr_t)b % 4096 == 0);
    a[5] = me;
    a = shrealloc(a, 5000 * sizeof(long));
    CHECK(a != NULL && a[5] == me);
    shmem_long_p(&a[4999], me, right);
    shmem_barrier_all();
    CHECK(a[4999] == left);
    shfree(b);
    shfree(a);
}

static void constants(void)
{
    CHECK(_SHMEM_CMP_EQ == SHMEM_CMP_EQ && _SHMEM_CMP_NE == SHMEM_CMP_NE);
    CHECK(_SHMEM_CMP_GT == SHMEM_CMP_GT && _SHMEM_CMP_GE == SHMEM_CMP_GE);
    CHECK(_SHMEM_CMP_LT == SHMEM_CMP_LT && _SHMEM_CMP_LE == SHMEM_CMP_LE);
    CHECK(_SHMEM_MAJOR_VERSION == SHMEM_MAJOR_VERSION && _SHMEM_MINOR_VERSION == SHMEM_MINOR_VERSION);
    CHECK(_SHMEM_MAX_NAME_LEN == SHMEM_MAX_NAME_LEN);
    CHECK(strcmp(_SHMEM_VENDOR_STRING, SHMEM_VENDOR_STRING) == 0);
    CHECK(_SHMEM_SYNC_VALUE == SHMEM_SYNC_VALUE && _SHMEM_BARRIER_SYNC_SIZE == SHMEM_BARRIER_SYNC_SIZE);
    CHECK(_SHMEM_BCAST_SYNC_SIZE == SHMEM_BCAST_SYNC_SIZE);
    CHECK(_SHMEM_COLLECT_SYNC_SIZE == SHMEM_COLLECT_SYNC_SIZE);
    CHECK(_SHMEM_REDUCE_SYNC_SIZE == SHMEM_REDUCE_SYNC_SIZE);
    CHECK(_SHMEM_REDUCE_MIN_WRKDATA_SIZE == SHMEM_REDUCE_MIN_WRKDATA_SIZE);
    switch (SHMEM_CMP_EQ) { /* they can be case labels */
    case SHMEM_CMP_EQ:
        break;
    case SHMEM_CMP_NE:
    case SHMEM_CMP_GT:
    case SHMEM_CMP_GE:
    case SHMEM_CMP_LT:
    case SHMEM_CMP_LE:
        CHECK(0);
    }
}

#define RUN_READ(TYPENAME, T) reading_##TYPENAME();
#define RUN_ADD(TYPENAME, T) adding_##TYPENAME();
#define RUN_WAIT(TYPENAME, T) waiting_##TYPENAME();

void deprecated(void)
{
    CHECK(_my_pe() == me && _num_pes() == n);
    OLD5(RUN_READ)
    OLD3(RUN_ADD)
    SET4(RUN_WAIT)
    untyped();
    old_memory();
    constants();
    /* nothing to do where caches are coherent */
    shmem_set_cache_inv();
    shmem_set_cache_line_inv(&long_word);
    shmem_clear_cache_inv();
    shmem_clear_cache_line_inv(&long_word);
    shmem_udcflush();
    shmem_udcflush_line(&long_word);
    shmem_barrier_all();
}
