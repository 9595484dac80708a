/* The deprecated collectives on active sets: every (PE_start, logPE_stride, PE_size) that fits. */
#include "check.h"

#include <complex.h>

/* What is in use is told apart by turns: a set may begin before another has ended. */
enum { TURNS = 2 };
static long barrier_sync[SHMEM_BARRIER_SYNC_SIZE];
static long sync_sync[SHMEM_BARRIER_SYNC_SIZE];
static long bcast_sync[TURNS][SHMEM_BCAST_SYNC_SIZE];
static long collect_sync[TURNS][SHMEM_COLLECT_SYNC_SIZE];
static long reduce_sync[TURNS][SHMEM_REDUCE_SYNC_SIZE];
static long alltoall_sync[TURNS][SHMEM_ALLTOALL_SYNC_SIZE];
static long alltoalls_sync[TURNS][SHMEM_ALLTOALLS_SYNC_SIZE];

static void fill(long *sync, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sync[i] = SHMEM_SYNC_VALUE;
}

#define FILL(array) fill((long *)(array), sizeof(array) / sizeof(long))
#define HERE start, log_stride, size
#define PE_OF(r) (start + ((r) << log_stride))
#define EMPTY(array) (memset((array), 0, sizeof(array)), shmem_barrier(HERE, barrier_sync))

#define MOVING(BITS)                                                                               \
    static uint##BITS##_t from_##BITS[3 * LEN * MOST_PES], to_##BITS[3 * LEN * MOST_PES];          \
    static void moving_##BITS(int rank, int start, int log_stride, int size)                       \
    {                                                                                              \
        uint##BITS##_t *from = from_##BITS, *to = to_##BITS;                                       \
        for (int i = 0; i < 3 * LEN * MOST_PES; i++)                                               \
            from[i] = VALUE(uint##BITS##_t, me, i);                                                \
        int root = size - 1;                                                                       \
        EMPTY(to_##BITS);                                                                          \
        shmem_broadcast##BITS(to, from, LEN, root, HERE, bcast_sync[0]);                           \
        for (int i = 0; i < LEN; i++) /* the root's is left alone */                               \
            CHECK(to[i] == (rank == root ? 0 : VALUE(uint##BITS##_t, PE_OF(root), i)));            \
        EMPTY(to_##BITS);                                                                          \
        shmem_broadcast##BITS(to, from, LEN, 0, HERE, bcast_sync[1]);                              \
        for (int i = 0; i < LEN; i++)                                                              \
            CHECK(to[i] == (rank == 0 ? 0 : VALUE(uint##BITS##_t, PE_OF(0), i)));                  \
        EMPTY(to_##BITS);                                                                          \
        shmem_fcollect##BITS(to, from, LEN, HERE, collect_sync[0]);                                \
        for (int i = 0; i < size * LEN; i++)                                                       \
            CHECK(to[i] == VALUE(uint##BITS##_t, PE_OF(i / LEN), i % LEN));                        \
        EMPTY(to_##BITS);                                                                          \
        shmem_collect##BITS(to, from, (size_t)(rank % 3 + 1), HERE, collect_sync[1]);              \
        int at = 0;                                                                                \
        for (int r = 0; r < size; r++)                                                             \
            for (int i = 0; i < r % 3 + 1; i++)                                                    \
                CHECK(to[at++] == VALUE(uint##BITS##_t, PE_OF(r), i));                             \
        CHECK(to[at] == 0);                                                                        \
        EMPTY(to_##BITS);                                                                          \
        shmem_alltoall##BITS(to, from, LEN, HERE, alltoall_sync[0]);                               \
        for (int i = 0; i < size * LEN; i++)                                                       \
            CHECK(to[i] == VALUE(uint##BITS##_t, PE_OF(i / LEN), rank * LEN + i % LEN));           \
        EMPTY(to_##BITS);                                                                          \
        shmem_alltoalls##BITS(to, from, 2, 3, LEN, HERE, alltoalls_sync[0]);                       \
        for (int i = 0; i < 2 * size * LEN; i++) {                                                 \
            int element = i / 2 % LEN, r = i / 2 / LEN;                                            \
            CHECK(to[i] == (i % 2 ? 0 : VALUE(uint##BITS##_t, PE_OF(r), 3 * (rank * LEN + element)))); \
        }                                                                                          \
        shmem_barrier(HERE, barrier_sync);                                                         \
    }
MOVING(32)
MOVING(64)

#define SMALL(T, pe, i) ((T)(((pe) + (i)) % 3 + 1))

/* Reductions with the two work arrays in turns. */
#define REDUCTION(TYPENAME, T, op, VALUE_OF, FIRST, COMBINE)                                       \
    do {                                                                                           \
        for (int i = 0; i < LEN; i++)                                                              \
            from[i] = VALUE_OF(T, me, i);                                                          \
        memset(to, 0, (LEN + 1) * sizeof(T));                                                      \
        shmem_barrier(HERE, barrier_sync);                                                         \
        shmem_##TYPENAME##_##op##_to_all(to, from, LEN, HERE, work[0], reduce_sync[0]);            \
        for (int i = 0; i < LEN; i++) {                                                            \
            T a = FIRST;                                                                           \
            for (int r = 0; r < size; r++) {                                                       \
                T b = VALUE_OF(T, PE_OF(r), i);                                                    \
                a = (T)(COMBINE);                                                                  \
            }                                                                                      \
            CHECK(to[i] == a);                                                                     \
        }                                                                                          \
        CHECK(to[LEN] == (T)0);                                                                    \
        shmem_sync(HERE, sync_sync);                                                               \
        shmem_##TYPENAME##_##op##_to_all(from, from, LEN, HERE, work[1], reduce_sync[1]);          \
        for (int i = 0; i < LEN; i++)                                                              \
            CHECK(from[i] == to[i]);                                                               \
        shmem_barrier(HERE, barrier_sync);                                                         \
    } while (0);

enum { WORK = LEN / 2 + 1 > SHMEM_REDUCE_MIN_WRKDATA_SIZE ? LEN / 2 + 1 : SHMEM_REDUCE_MIN_WRKDATA_SIZE };

#define REDUCING(TYPENAME, T, ...)                                                                 \
    static T TYPENAME##_from[LEN + 1], TYPENAME##_to[LEN + 1], TYPENAME##_work[TURNS][WORK];       \
    static void reducing_##TYPENAME(int start, int log_stride, int size)                           \
    {                                                                                              \
        T *from = TYPENAME##_from, *to = TYPENAME##_to, (*work)[WORK] = TYPENAME##_work;           \
        __VA_ARGS__                                                                                \
    }
#define BITS_OF(TYPENAME, T)                                                                       \
    REDUCTION(TYPENAME, T, and, MIXED, (T)~(T)0, a & b)                                            \
    REDUCTION(TYPENAME, T, or, MIXED, 0, a | b)                                                    \
    REDUCTION(TYPENAME, T, xor, MIXED, 0, a ^ b)
#define ORDER_OF(TYPENAME, T)                                                                      \
    REDUCTION(TYPENAME, T, max, MIXED, MIXED(T, PE_OF(0), i), a > b ? a : b)                       \
    REDUCTION(TYPENAME, T, min, MIXED, MIXED(T, PE_OF(0), i), a < b ? a : b)
#define SUMS_OF(TYPENAME, T)                                                                       \
    REDUCTION(TYPENAME, T, sum, SMALL, 0, a + b)                                                   \
    REDUCTION(TYPENAME, T, prod, SMALL, 1, a * b)
#define WHOLE(TYPENAME, T)                                                                         \
    REDUCING(TYPENAME, T, BITS_OF(TYPENAME, T) ORDER_OF(TYPENAME, T) SUMS_OF(TYPENAME, T))
#define REAL(TYPENAME, T) REDUCING(TYPENAME, T, ORDER_OF(TYPENAME, T) SUMS_OF(TYPENAME, T))
#define COMPLEX(TYPENAME, T) REDUCING(TYPENAME, T, SUMS_OF(TYPENAME, T))
SET4(WHOLE)
REAL(float, float)
REAL(double, double)
REAL(longdouble, long double)
COMPLEX2(COMPLEX)

#define RUN(TYPENAME, T) reducing_##TYPENAME(HERE);

static void on_set(int start, int log_stride, int size)
{
    int rank = -1;
    for (int r = 0; r < size; r++)
        if (PE_OF(r) == me)
            rank = r;
    if (rank < 0)
        return;
    moving_32(rank, HERE);
    moving_64(rank, HERE);
    SET7(RUN)
    COMPLEX2(RUN)
}

void active_sets(void)
{
    FILL(barrier_sync);
    FILL(sync_sync);
    FILL(bcast_sync);
    FILL(collect_sync);
    FILL(reduce_sync);
    FILL(alltoall_sync);
    FILL(alltoalls_sync);
    shmem_barrier_all();
    for (int log_stride = 0; log_stride < 3; log_stride++)
        for (int start = 0; start < n && start < 3; start++) {
            int most = (n - 1 - start) / (1 << log_stride) + 1;
            on_set(start, log_stride, most);
            shmem_barrier_all();
        }
    /* left as they were */
    long changed = 0;
    for (size_t i = 0; i < SHMEM_BARRIER_SYNC_SIZE; i++)
        changed += barrier_sync[i] != SHMEM_SYNC_VALUE || sync_sync[i] != SHMEM_SYNC_VALUE;
    for (size_t i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
        changed += reduce_sync[0][i] != SHMEM_SYNC_VALUE;
    for (size_t i = 0; i < SHMEM_COLLECT_SYNC_SIZE; i++)
        changed += collect_sync[0][i] != SHMEM_SYNC_VALUE;
    for (size_t i = 0; i < SHMEM_BCAST_SYNC_SIZE; i++)
        changed += bcast_sync[0][i] != SHMEM_SYNC_VALUE;
    for (size_t i = 0; i < SHMEM_ALLTOALL_SYNC_SIZE; i++)
        changed += alltoall_sync[0][i] != SHMEM_SYNC_VALUE;
    for (size_t i = 0; i < SHMEM_ALLTOALLS_SYNC_SIZE; i++)
        changed += alltoalls_sync[0][i] != SHMEM_SYNC_VALUE;
    CHECK(changed == 0);
    shmem_barrier_all();
}
