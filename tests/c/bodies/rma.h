/* Every typed put, get and put-with-signal, once for each way to call them: the file that includes
 * this defines CALL(TYPENAME, routine, ...), QUIET() and NAME(test). Compiles as C and as C++. */

#define RMA_TEST(TYPENAME, T)                                                                      \
    static T TYPENAME##_from[4 * LEN], TYPENAME##_to[4 * LEN];                                     \
    static uint64_t TYPENAME##_signal;                                                             \
    static void NAME(TYPENAME)(PARAMETERS)                                                         \
    {                                                                                              \
        T *from = TYPENAME##_from, *to = TYPENAME##_to;                                            \
        T *heap = (T *)shmem_malloc(4 * LEN * sizeof(T));                                          \
        T got[4 * LEN];                                                                            \
        uint64_t *signal = &TYPENAME##_signal;                                                     \
        CHECK(heap != NULL);                                                                       \
        for (int i = 0; i < 4 * LEN; i++)                                                          \
            from[i] = VALUE(T, me, i);                                                             \
        memset(heap, 0, 4 * LEN * sizeof(T));                                                      \
        CLEAR(TYPENAME##_to);                                                                      \
        /* put into static memory and into the heap; get from there */                             \
        CALL(TYPENAME, put, to, from, LEN, right);                                                 \
        CALL(TYPENAME, put_nbi, heap, from + 1, LEN, right);                                       \
        CALL(TYPENAME, p, heap + LEN, VALUE(T, me, 77), right);                                    \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        for (int i = 0; i < LEN; i++) {                                                            \
            CHECK(to[i] == VALUE(T, left, i));                                                     \
            CHECK(heap[i] == VALUE(T, left, i + 1));                                               \
        }                                                                                          \
        CHECK(heap[LEN] == VALUE(T, left, 77) && heap[LEN + 1] == 0 && to[LEN] == 0);              \
        memset(got, 0, sizeof got);                                                                \
        CALL(TYPENAME, get, got, from, LEN, left);                                                 \
        CALL(TYPENAME, get_nbi, got + LEN, heap, LEN, left);                                       \
        QUIET();                                                                                   \
        for (int i = 0; i < LEN; i++) {                                                            \
            CHECK(got[i] == VALUE(T, left, i));                                                    \
            CHECK(got[LEN + i] == VALUE(T, (left + n - 1) % n, i + 1));                            \
        }                                                                                          \
        CHECK(CALL(TYPENAME, g, from + 2, right) == VALUE(T, right, 2));                           \
        CHECK(CALL(TYPENAME, g, from + 3, me) == VALUE(T, me, 3));                                 \
        shmem_barrier_all();                                                                       \
        /* strides, and blocks with strides */                                                     \
        CLEAR(TYPENAME##_to);                                                                      \
        CALL(TYPENAME, iput, to, from, 2, 3, LEN, right);                                          \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        for (int i = 0; i < 2 * LEN; i++)                                                          \
            CHECK(to[i] == (i % 2 ? (T)0 : VALUE(T, left, i / 2 * 3)));                            \
        CLEAR(TYPENAME##_to);                                                                      \
        CALL(TYPENAME, ibput, to, from, 3, 4, 2, LEN, right);                                      \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        for (int i = 0; i < 3 * LEN; i++)                                                          \
            CHECK(to[i] == (i % 3 == 2 ? (T)0 : VALUE(T, left, i / 3 * 4 + i % 3)));               \
        memset(got, 0, sizeof got);                                                                \
        CALL(TYPENAME, iget, got, from, 3, 2, LEN, left);                                          \
        for (int i = 0; i < 3 * LEN; i++)                                                          \
            CHECK(got[i] == (i % 3 ? (T)0 : VALUE(T, left, i / 3 * 2)));                           \
        memset(got, 0, sizeof got);                                                                \
        CALL(TYPENAME, ibget, got, from, 4, 3, 2, LEN, left);                                      \
        for (int i = 0; i < 4 * LEN; i++)                                                          \
            CHECK(got[i] == (i % 4 > 1 ? (T)0 : VALUE(T, left, i / 4 * 3 + i % 4)));               \
        shmem_barrier_all();                                                                       \
        /* data with a signal */                                                                   \
        *signal = 0;                                                                               \
        CLEAR(TYPENAME##_to);                                                                      \
        CALL(TYPENAME, put_signal, to, from, LEN, signal, 40, SHMEM_SIGNAL_SET, right);            \
        CHECK(shmem_signal_wait_until(signal, SHMEM_CMP_EQ, 40) == 40);                            \
        for (int i = 0; i < LEN; i++)                                                              \
            CHECK(to[i] == VALUE(T, left, i));                                                     \
        shmem_barrier_all();                                                                       \
        CALL(TYPENAME, put_signal_nbi, to, from + 2, LEN, signal, 2, SHMEM_SIGNAL_ADD, right);     \
        CHECK(shmem_signal_wait_until(signal, SHMEM_CMP_GT, 40) == 42);                            \
        for (int i = 0; i < LEN; i++)                                                              \
            CHECK(to[i] == VALUE(T, left, i + 2));                                                 \
        QUIET();                                                                                   \
        shmem_barrier_all();                                                                       \
        shmem_free(heap);                                                                          \
    }
RMA24(RMA_TEST)
#undef RMA_TEST

#define RUN(TYPENAME, T) NAME(TYPENAME)(ARGUMENTS);
static void NAME(all)(PARAMETERS)
{
    RMA24(RUN)
}
#undef RUN
