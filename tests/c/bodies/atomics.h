/* Every atomic, blocking and not, once for each way to call it: the file that includes this defines
 * CALL(TYPENAME, routine, ...), QUIET() and NAME(test). Compiles as C and as C++. */

/* Adding, and comparing and swapping. */
#define STANDARD_TEST(TYPENAME, T)                                                                 \
    static T TYPENAME##_word;                                                                      \
    static void NAME(TYPENAME)(PARAMETERS)                                                         \
    {                                                                                              \
        T *word = &TYPENAME##_word, old = 0, next = 0;                                             \
        const T sum = (T)(n * (n + 1) / 2);                                                        \
        /* all PEs at once on PE 0 */                                                              \
        *word = 0;                                                                                 \
        shmem_barrier_all();                                                                       \
        CALL(TYPENAME, atomic_inc, word, 0);                                                       \
        CALL(TYPENAME, atomic_add, word, (T)(me + 1), 0);                                          \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        CHECK(CALL(TYPENAME, atomic_fetch, word, 0) == (T)n + sum);                                \
        shmem_barrier_all();                                                                       \
        old = CALL(TYPENAME, atomic_fetch_inc, word, 0);                                           \
        CHECK(old >= (T)n + sum && old < (T)n + sum + (T)n + sum);                                 \
        old = CALL(TYPENAME, atomic_fetch_add, word, (T)(me + 1), 0);                              \
        CHECK(old > (T)n + sum && old < (T)n + sum + (T)n + sum);                                  \
        shmem_barrier_all();                                                                       \
        CHECK(CALL(TYPENAME, atomic_fetch, word, 0) == 2 * ((T)n + sum));                          \
        shmem_barrier_all();                                                                       \
        CALL(TYPENAME, atomic_fetch_inc_nbi, &old, word, 0);                                       \
        CALL(TYPENAME, atomic_fetch_add_nbi, &next, word, (T)(me + 1), 0);                         \
        QUIET();                                                                                   \
        CHECK(old >= 2 * ((T)n + sum) && old < 3 * ((T)n + sum));                                  \
        CHECK(next >= 2 * ((T)n + sum) && next < 3 * ((T)n + sum));                                \
        shmem_barrier_all();                                                                       \
        CHECK(CALL(TYPENAME, atomic_fetch, word, 0) == 3 * ((T)n + sum));                          \
        shmem_barrier_all();                                                                       \
        /* one PE at a time on its neighbour */                                                    \
        *word = VALUE(T, me, 0);                                                                   \
        shmem_barrier_all();                                                                       \
        old = CALL(TYPENAME, atomic_compare_swap, word, VALUE(T, right, 0), (T)123, right);        \
        CHECK(old == VALUE(T, right, 0));                                                          \
        old = CALL(TYPENAME, atomic_compare_swap, word, (T)122, (T)5, right);                      \
        CHECK(old == (T)123);                                                                      \
        CALL(TYPENAME, atomic_compare_swap_nbi, &old, word, (T)123, (T)77, right);                 \
        QUIET();                                                                                   \
        CHECK(old == (T)123);                                                                      \
        /* a value of all bits survives */                                                         \
        CHECK(CALL(TYPENAME, atomic_swap, word, (T)((T)0 - (T)2), right) == (T)77);                \
        CHECK(CALL(TYPENAME, atomic_fetch_add, word, (T)1, right) == (T)((T)0 - (T)2));            \
        shmem_barrier_all();                                                                       \
        CHECK(*word == (T)((T)0 - (T)1));                                                          \
        shmem_barrier_all();                                                                       \
    }
STD12(STANDARD_TEST)
#undef STANDARD_TEST

/* Reading, writing and swapping. */
#define EXTENDED_TEST(TYPENAME, T)                                                                 \
    static T TYPENAME##_cell;                                                                      \
    static void NAME(extended_##TYPENAME)(PARAMETERS)                                              \
    {                                                                                              \
        T *cell = &TYPENAME##_cell, old = 0, now = 0;                                              \
        *cell = 0;                                                                                 \
        shmem_barrier_all();                                                                       \
        CALL(TYPENAME, atomic_set, cell, VALUE(T, me, 3), right);                                  \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        CHECK(*cell == VALUE(T, left, 3));                                                         \
        shmem_barrier_all();                                                                       \
        CHECK(CALL(TYPENAME, atomic_fetch, cell, right) == VALUE(T, me, 3));                       \
        CHECK(CALL(TYPENAME, atomic_swap, cell, VALUE(T, me, 4), right) == VALUE(T, me, 3));       \
        CALL(TYPENAME, atomic_swap_nbi, &old, cell, VALUE(T, me, 5), right);                       \
        QUIET();                                                                                   \
        CALL(TYPENAME, atomic_fetch_nbi, &now, cell, right);                                       \
        QUIET();                                                                                   \
        CHECK(old == VALUE(T, me, 4));                                                             \
        CHECK(now == VALUE(T, me, 5));                                                             \
        shmem_barrier_all();                                                                       \
        CHECK(*cell == VALUE(T, left, 5));                                                         \
        shmem_barrier_all();                                                                       \
    }
STD12(EXTENDED_TEST) EXT2(EXTENDED_TEST)
#undef EXTENDED_TEST

/* Bits: each PE has its own bit of a word on PE 0. */
#define BITWISE_TEST(TYPENAME, T)                                                                  \
    static T TYPENAME##_bits;                                                                      \
    static void NAME(bitwise_##TYPENAME)(PARAMETERS)                                               \
    {                                                                                              \
        T *bits = &TYPENAME##_bits, old;                                                           \
        const T mine = (T)((T)1 << me), all = (T)(((T)1 << n) - 1), far = (T)((T)1 << 28);         \
        *bits = far;                                                                               \
        shmem_barrier_all();                                                                       \
        CALL(TYPENAME, atomic_or, bits, mine, 0);                                                  \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        CHECK(CALL(TYPENAME, atomic_fetch, bits, 0) == (T)(all | far));                            \
        shmem_barrier_all();                                                                       \
        CALL(TYPENAME, atomic_and, bits, (T)~mine, 0);                                             \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        CHECK(CALL(TYPENAME, atomic_fetch, bits, 0) == far);                                       \
        shmem_barrier_all();                                                                       \
        CALL(TYPENAME, atomic_xor, bits, mine, 0);                                                 \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        CHECK(CALL(TYPENAME, atomic_fetch, bits, 0) == (T)(all | far));                            \
        shmem_barrier_all();                                                                       \
        old = CALL(TYPENAME, atomic_fetch_xor, bits, mine, 0);                                     \
        CHECK((old & mine) == mine && (old & far) == far);                                         \
        old = CALL(TYPENAME, atomic_fetch_or, bits, mine, 0);                                      \
        CHECK((old & mine) == 0 && (old & far) == far);                                            \
        old = CALL(TYPENAME, atomic_fetch_and, bits, (T)~mine, 0);                                 \
        CHECK((old & mine) == mine && (old & far) == far);                                         \
        shmem_barrier_all();                                                                       \
        CHECK(CALL(TYPENAME, atomic_fetch, bits, 0) == far);                                       \
        shmem_barrier_all();                                                                       \
        CALL(TYPENAME, atomic_fetch_or_nbi, &old, bits, mine, 0);                                  \
        QUIET();                                                                                   \
        CHECK((old & mine) == 0 && (old & far) == far);                                            \
        CALL(TYPENAME, atomic_fetch_and_nbi, &old, bits, (T)~mine, 0);                             \
        QUIET();                                                                                   \
        CHECK((old & mine) == mine && (old & far) == far);                                         \
        CALL(TYPENAME, atomic_fetch_xor_nbi, &old, bits, mine, 0);                                 \
        QUIET();                                                                                   \
        CHECK((old & mine) == 0 && (old & far) == far);                                            \
        shmem_barrier_all();                                                                       \
        CHECK(CALL(TYPENAME, atomic_fetch, bits, 0) == (T)(all | far));                            \
        shmem_barrier_all();                                                                       \
    }
BIT7(BITWISE_TEST)
#undef BITWISE_TEST

#define RUN_STANDARD(TYPENAME, T) NAME(TYPENAME)(ARGUMENTS);
#define RUN_EXTENDED(TYPENAME, T) NAME(extended_##TYPENAME)(ARGUMENTS);
#define RUN_BITWISE(TYPENAME, T) NAME(bitwise_##TYPENAME)(ARGUMENTS);
static void NAME(all)(PARAMETERS)
{
    STD12(RUN_STANDARD)
    STD12(RUN_EXTENDED)
    EXT2(RUN_EXTENDED)
    BIT7(RUN_BITWISE)
}
#undef RUN_STANDARD
#undef RUN_EXTENDED
#undef RUN_BITWISE
