/* The routines that are named by the bits of their elements, or take bytes. The file that includes
 * this defines SIZED(routine, bits, suffix, ...), QUIET() and NAME(test). Compiles as C and as C++. */

#define SIZED_TEST(BITS)                                                                           \
    static void NAME(BITS)(PARAMETERS)                                                             \
    {                                                                                              \
        enum { SIZE = BITS / 8 };                                                                  \
        for (int i = 0; i < 4 * LEN * SIZE; i++)                                                   \
            sized_from[i] = VALUE(unsigned char, me, i);                                           \
        CLEAR(sized_to);                                                                           \
        SIZED(put, BITS, , sized_to, sized_from, LEN, right);                                      \
        SIZED(put, BITS, _nbi, sized_to + LEN * SIZE, sized_from, LEN, right);                     \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        for (int i = 0; i < LEN * SIZE; i++) {                                                     \
            CHECK(sized_to[i] == VALUE(unsigned char, left, i));                                   \
            CHECK(sized_to[LEN * SIZE + i] == VALUE(unsigned char, left, i));                      \
        }                                                                                          \
        CHECK(sized_to[2 * LEN * SIZE] == 0);                                                      \
        memset(sized_got, 0, sizeof sized_got);                                                    \
        SIZED(get, BITS, , sized_got, sized_from, LEN, left);                                      \
        SIZED(get, BITS, _nbi, sized_got + LEN * SIZE, sized_from, LEN, left);                     \
        QUIET();                                                                                   \
        for (int i = 0; i < LEN * SIZE; i++) {                                                     \
            CHECK(sized_got[i] == VALUE(unsigned char, left, i));                                  \
            CHECK(sized_got[LEN * SIZE + i] == VALUE(unsigned char, left, i));                     \
        }                                                                                          \
        shmem_barrier_all();                                                                       \
        CLEAR(sized_to);                                                                           \
        SIZED(iput, BITS, , sized_to, sized_from, 2, 3, LEN, right);                               \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        for (int i = 0; i < 2 * LEN * SIZE; i++) {                                                 \
            int element = i / SIZE, byte = i % SIZE;                                               \
            CHECK(sized_to[i] ==                                                                   \
                  (element % 2 ? 0 : VALUE(unsigned char, left, element / 2 * 3 * SIZE + byte)));  \
        }                                                                                          \
        CLEAR(sized_to);                                                                           \
        SIZED(ibput, BITS, , sized_to, sized_from, 3, 4, 2, LEN, right);                           \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        for (int i = 0; i < 3 * LEN * SIZE; i++) {                                                 \
            int element = i / SIZE, byte = i % SIZE;                                               \
            int source = element / 3 * 4 + element % 3;                                            \
            CHECK(sized_to[i] ==                                                                   \
                  (element % 3 == 2 ? 0 : VALUE(unsigned char, left, source * SIZE + byte)));      \
        }                                                                                          \
        memset(sized_got, 0, sizeof sized_got);                                                    \
        SIZED(iget, BITS, , sized_got, sized_from, 3, 2, LEN, left);                               \
        for (int i = 0; i < 3 * LEN * SIZE; i++) {                                                 \
            int element = i / SIZE, byte = i % SIZE;                                               \
            CHECK(sized_got[i] ==                                                                  \
                  (element % 3 ? 0 : VALUE(unsigned char, left, element / 3 * 2 * SIZE + byte)));  \
        }                                                                                          \
        memset(sized_got, 0, sizeof sized_got);                                                    \
        SIZED(ibget, BITS, , sized_got, sized_from, 4, 3, 2, LEN, left);                           \
        for (int i = 0; i < 4 * LEN * SIZE; i++) {                                                 \
            int element = i / SIZE, byte = i % SIZE;                                               \
            int source = element / 4 * 3 + element % 4;                                            \
            CHECK(sized_got[i] ==                                                                  \
                  (element % 4 > 1 ? 0 : VALUE(unsigned char, left, source * SIZE + byte)));       \
        }                                                                                          \
        shmem_barrier_all();                                                                       \
        sized_signal = 0;                                                                          \
        CLEAR(sized_to);                                                                           \
        SIZED(put, BITS, _signal, sized_to, sized_from, LEN, &sized_signal, 3, SHMEM_SIGNAL_ADD,   \
              right);                                                                              \
        shmem_signal_wait_until(&sized_signal, SHMEM_CMP_NE, 0);                                   \
        CHECK(sized_to[LEN * SIZE - 1] == VALUE(unsigned char, left, LEN * SIZE - 1));             \
        shmem_barrier_all();                                                                       \
        SIZED(put, BITS, _signal_nbi, sized_to, sized_from + SIZE, LEN, &sized_signal, 9,          \
              SHMEM_SIGNAL_SET, right);                                                            \
        shmem_signal_wait_until(&sized_signal, SHMEM_CMP_EQ, 9);                                   \
        CHECK(sized_to[LEN * SIZE - 1] == VALUE(unsigned char, left, (LEN + 1) * SIZE - 1));       \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
    }
BITS5(SIZED_TEST)
#undef SIZED_TEST

/* Bytes, at odd addresses; nothing at all, at none. */
static void NAME(bytes)(PARAMETERS)
{
    for (int i = 0; i < 100; i++)
        sized_from[i] = VALUE(unsigned char, me, i);
    sized_signal = 0;
    CLEAR(sized_to);
    SIZED(put, mem, , sized_to + 1, sized_from + 3, 33, right);
    SIZED(put, mem, _nbi, sized_to + 51, sized_from + 5, 7, right);
    QUIET();
    shmem_barrier_all();
    for (int i = 0; i < 33; i++)
        CHECK(sized_to[i + 1] == VALUE(unsigned char, left, i + 3));
    for (int i = 0; i < 7; i++)
        CHECK(sized_to[i + 51] == VALUE(unsigned char, left, i + 5));
    CHECK(sized_to[0] == 0 && sized_to[34] == 0 && sized_to[50] == 0 && sized_to[58] == 0);
    memset(sized_got, 0, sizeof sized_got);
    SIZED(get, mem, , sized_got + 3, sized_from + 1, 31, right);
    SIZED(get, mem, _nbi, sized_got + 47, sized_from + 9, 3, right);
    QUIET();
    for (int i = 0; i < 31; i++)
        CHECK(sized_got[i + 3] == VALUE(unsigned char, right, i + 1));
    CHECK(sized_got[47] == VALUE(unsigned char, right, 9) && sized_got[50] == 0);
    shmem_barrier_all();
    SIZED(put, mem, _signal, sized_to, sized_from, 5, &sized_signal, 1, SHMEM_SIGNAL_ADD, right);
    SIZED(put, mem, _signal_nbi, sized_to + 5, sized_from + 5, 6, &sized_signal, 1,
          SHMEM_SIGNAL_ADD, right);
    shmem_signal_wait_until(&sized_signal, SHMEM_CMP_EQ, 2);
    for (int i = 0; i < 11; i++)
        CHECK(sized_to[i] == VALUE(unsigned char, left, i));
    SIZED(put, mem, , NULL, NULL, 0, right);
    SIZED(get, mem, , NULL, NULL, 0, right);
    SIZED(put, mem, _nbi, NULL, NULL, 0, right);
    SIZED(get, mem, _nbi, NULL, NULL, 0, right);
    QUIET();
    shmem_barrier_all();
    /* no data, yet a signal */
    SIZED(put, mem, _signal, NULL, NULL, 0, &sized_signal, 7, SHMEM_SIGNAL_SET, right);
    shmem_signal_wait_until(&sized_signal, SHMEM_CMP_EQ, 7);
    shmem_barrier_all();
}

#define RUN(BITS) NAME(BITS)(ARGUMENTS);
static void NAME(all)(PARAMETERS)
{
    BITS5(RUN)
    NAME(bytes)(ARGUMENTS);
}
#undef RUN
