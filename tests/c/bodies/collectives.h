/* Every typed collective on teams, once for each way to call it: the file that includes this defines
 * COLLECT(TYPENAME, routine, team, ...) and NAME(test). Compiles as C and as C++.
 *
 * `team` is one that this PE is in, `rank` its number there, `size` the number of PEs, and `pe[]`
 * their numbers in the world. */

#define PARAMETERS shmem_team_t team, int rank, int size, const int *pe
#define ARGUMENTS team, rank, size, pe

/* Forgets what was received, on all PEs of the team. */
#define EMPTY(array) (memset((array), 0, sizeof(array)), shmem_team_sync(team))

#define MOVING_TEST(TYPENAME, T)                                                                   \
    static T TYPENAME##_from[3 * LEN * MOST_PES], TYPENAME##_to[3 * LEN * MOST_PES];               \
    static void NAME(moving_##TYPENAME)(PARAMETERS)                                                \
    {                                                                                              \
        T *from = TYPENAME##_from, *to = TYPENAME##_to;                                            \
        for (int i = 0; i < 3 * LEN * MOST_PES; i++)                                               \
            from[i] = VALUE(T, me, i);                                                             \
        for (int root = 0; root < size; root += size > 1 ? size - 1 : 1) {                         \
            EMPTY(TYPENAME##_to);                                                                  \
            CHECK(COLLECT(TYPENAME, broadcast, team, to, from, LEN, root) == 0);                   \
            for (int i = 0; i < LEN; i++)                                                          \
                CHECK(to[i] == VALUE(T, pe[root], i));                                             \
            CHECK(to[LEN] == 0);                                                                   \
        }                                                                                          \
        EMPTY(TYPENAME##_to);                                                                      \
        CHECK(COLLECT(TYPENAME, fcollect, team, to, from, LEN) == 0);                              \
        for (int i = 0; i < size * LEN; i++)                                                       \
            CHECK(to[i] == VALUE(T, pe[i / LEN], i % LEN));                                        \
        CHECK(to[size * LEN] == 0);                                                                \
        /* a different number from each, from some none */                                         \
        EMPTY(TYPENAME##_to);                                                                      \
        CHECK(COLLECT(TYPENAME, collect, team, to, from, (size_t)(rank % 3)) == 0);                \
        int at = 0;                                                                                \
        for (int r = 0; r < size; r++)                                                             \
            for (int i = 0; i < r % 3; i++)                                                        \
                CHECK(to[at++] == VALUE(T, pe[r], i));                                             \
        CHECK(to[at] == 0);                                                                        \
        EMPTY(TYPENAME##_to);                                                                      \
        CHECK(COLLECT(TYPENAME, alltoall, team, to, from, LEN) == 0);                              \
        for (int i = 0; i < size * LEN; i++)                                                       \
            CHECK(to[i] == VALUE(T, pe[i / LEN], rank * LEN + i % LEN));                           \
        CHECK(to[size * LEN] == 0);                                                                \
        EMPTY(TYPENAME##_to);                                                                      \
        CHECK(COLLECT(TYPENAME, alltoalls, team, to, from, 2, 3, LEN) == 0);                       \
        for (int i = 0; i < 2 * size * LEN; i++) {                                                 \
            int element = i / 2 % LEN, r = i / 2 / LEN;                                            \
            CHECK(to[i] == (i % 2 ? (T)0 : VALUE(T, pe[r], 3 * (rank * LEN + element))));          \
        }                                                                                          \
        shmem_team_sync(team);                                                                     \
    }
RMA24(MOVING_TEST)
#undef MOVING_TEST

/* A reduction beside the same done by hand; then in place. */
#define REDUCTION(TYPENAME, T, routine, VALUE_OF, FIRST, COMBINE)                                  \
    do {                                                                                           \
        for (int i = 0; i < LEN; i++)                                                              \
            from[i] = VALUE_OF(T, me, i);                                                          \
        memset(to, 0, (LEN + 1) * sizeof(T));                                                      \
        shmem_team_sync(team);                                                                     \
        CHECK(COLLECT(TYPENAME, routine, team, to, from, LEN) == 0);                               \
        for (int i = 0; i < LEN; i++) {                                                            \
            T a = FIRST;                                                                           \
            for (int r = 0; r < size; r++) {                                                       \
                T b = VALUE_OF(T, pe[r], i);                                                       \
                a = (T)(COMBINE);                                                                  \
            }                                                                                      \
            CHECK(to[i] == a);                                                                     \
            CHECK(from[i] == VALUE_OF(T, me, i));                                                  \
        }                                                                                          \
        CHECK(to[LEN] == (T)0);                                                                    \
        shmem_team_sync(team);                                                                     \
        CHECK(COLLECT(TYPENAME, routine, team, from, from, LEN) == 0);                             \
        for (int i = 0; i < LEN; i++)                                                              \
            CHECK(from[i] == to[i]);                                                               \
        shmem_team_sync(team);                                                                     \
    } while (0)

/* Sums over the PEs up to this one, with it or without it. */
#define SCAN(TYPENAME, T, routine, LAST)                                                           \
    do {                                                                                           \
        for (int i = 0; i < LEN; i++)                                                              \
            from[i] = SMALL(T, me, i);                                                             \
        memset(to, 0, (LEN + 1) * sizeof(T));                                                      \
        shmem_team_sync(team);                                                                     \
        CHECK(COLLECT(TYPENAME, routine, team, to, from, LEN) == 0);                               \
        for (int i = 0; i < LEN; i++) {                                                            \
            T sum = 0;                                                                             \
            for (int r = 0; r < (LAST); r++)                                                       \
                sum = (T)(sum + SMALL(T, pe[r], i));                                               \
            CHECK(to[i] == sum);                                                                   \
        }                                                                                          \
        CHECK(to[LEN] == (T)0);                                                                    \
        shmem_team_sync(team);                                                                     \
        CHECK(COLLECT(TYPENAME, routine, team, from, from, LEN) == 0);                             \
        for (int i = 0; i < LEN; i++)                                                              \
            CHECK(from[i] == to[i]);                                                               \
        shmem_team_sync(team);                                                                     \
    } while (0)

#define SMALL(T, pe, i) ((T)(((pe) + (i)) % 3 + 1))
#define SUMS(TYPENAME, T)                                                                          \
    REDUCTION(TYPENAME, T, sum_reduce, SMALL, 0, a + b);                                           \
    REDUCTION(TYPENAME, T, prod_reduce, SMALL, 1, a * b);                                          \
    SCAN(TYPENAME, T, sum_inscan, rank + 1);                                                       \
    SCAN(TYPENAME, T, sum_exscan, rank);

#define ORDERED_TEST(TYPENAME, T)                                                                  \
    static void NAME(ordered_##TYPENAME)(PARAMETERS)                                               \
    {                                                                                              \
        T *from = TYPENAME##_from, *to = TYPENAME##_to;                                            \
        REDUCTION(TYPENAME, T, max_reduce, MIXED, MIXED(T, pe[0], i), a > b ? a : b);              \
        REDUCTION(TYPENAME, T, min_reduce, MIXED, MIXED(T, pe[0], i), a < b ? a : b);              \
        SUMS(TYPENAME, T)                                                                          \
    }
RMA24(ORDERED_TEST)
#undef ORDERED_TEST

#define BITS_TEST(TYPENAME, T)                                                                     \
    static void NAME(bits_##TYPENAME)(PARAMETERS)                                                  \
    {                                                                                              \
        (void)rank;                                                                                \
        T *from = TYPENAME##_from, *to = TYPENAME##_to;                                            \
        REDUCTION(TYPENAME, T, and_reduce, MIXED, (T)~(T)0, a & b);                                \
        REDUCTION(TYPENAME, T, or_reduce, MIXED, 0, a | b);                                        \
        REDUCTION(TYPENAME, T, xor_reduce, MIXED, 0, a ^ b);                                       \
    }
RED14(BITS_TEST)
#undef BITS_TEST

#define COMPLEX_TEST(TYPENAME, T)                                                                  \
    static T TYPENAME##_from[LEN + 1], TYPENAME##_to[LEN + 1];                                     \
    static void NAME(complex_##TYPENAME)(PARAMETERS)                                               \
    {                                                                                              \
        T *from = TYPENAME##_from, *to = TYPENAME##_to;                                            \
        SUMS(TYPENAME, T)                                                                          \
    }
#undef SMALL
#define SMALL(T, pe, i) ((T)(((pe) + (i)) % 3 + 1) + (T)(((pe) + 2 * (i)) % 2) * IMAGINARY)
COMPLEX2(COMPLEX_TEST)
#undef SMALL
#undef COMPLEX_TEST

#define RUN_MOVING(TYPENAME, T) NAME(moving_##TYPENAME)(ARGUMENTS);
#define RUN_ORDERED(TYPENAME, T) NAME(ordered_##TYPENAME)(ARGUMENTS);
#define RUN_BITS(TYPENAME, T) NAME(bits_##TYPENAME)(ARGUMENTS);
#define RUN_COMPLEX(TYPENAME, T) NAME(complex_##TYPENAME)(ARGUMENTS);
static void NAME(all)(PARAMETERS)
{
    RMA24(RUN_MOVING)
    RMA24(RUN_ORDERED)
    RED14(RUN_BITS)
    COMPLEX2(RUN_COMPLEX)
}
#undef RUN_MOVING
#undef RUN_ORDERED
#undef RUN_BITS
#undef RUN_COMPLEX
#undef PARAMETERS
#undef ARGUMENTS
