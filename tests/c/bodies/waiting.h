/* Every way to wait for words of one's own memory and to test them. The file that includes this
 * defines WAIT(TYPENAME, routine, ...) and NAME(test). Compiles as C and as C++. */

#define WORDS 4

/* The left neighbour sets all words of this PE, from the last to the first. */
#define SEND(TYPENAME, T, value)                                                                   \
    do {                                                                                           \
        for (int i = WORDS - 1; i >= 0; i--)                                                       \
            shmem_##TYPENAME##_atomic_set(&TYPENAME##_words[i], (T)(value), right);                \
    } while (0)

#define WAITING_TEST(TYPENAME, T)                                                                  \
    static T TYPENAME##_words[WORDS];                                                              \
    static void NAME(TYPENAME)(void)                                                               \
    {                                                                                              \
        T *words = TYPENAME##_words;                                                               \
        T wanted[WORDS];                                                                           \
        size_t indices[WORDS], found, which;                                                       \
        int skip[WORDS] = {0, 1, 0, 0}, none[WORDS] = {1, 1, 1, 1}, seen[WORDS] = {0};             \
        for (int i = 0; i < WORDS; i++)                                                            \
            wanted[i] = (T)(20 + i);                                                               \
        CLEAR(TYPENAME##_words);                                                                   \
        /* nothing has come */                                                                     \
        CHECK(WAIT(TYPENAME, test, words, SHMEM_CMP_EQ, 0) == 1);                                  \
        CHECK(WAIT(TYPENAME, test, words, SHMEM_CMP_NE, 0) == 0);                                  \
        CHECK(WAIT(TYPENAME, test_all, words, WORDS, NULL, SHMEM_CMP_LE, 0) == 1);                 \
        CHECK(WAIT(TYPENAME, test_all, words, WORDS, skip, SHMEM_CMP_GT, 0) == 0);                 \
        CHECK(WAIT(TYPENAME, test_any, words, WORDS, NULL, SHMEM_CMP_GT, 0) == SIZE_MAX);          \
        CHECK(WAIT(TYPENAME, test_some, words, WORDS, indices, NULL, SHMEM_CMP_GT, 0) == 0);       \
        CHECK(WAIT(TYPENAME, test_all_vector, words, WORDS, NULL, SHMEM_CMP_LT, wanted) == 1);     \
        CHECK(WAIT(TYPENAME, test_any_vector, words, WORDS, NULL, SHMEM_CMP_EQ, wanted) ==         \
              SIZE_MAX);                                                                           \
        CHECK(WAIT(TYPENAME, test_some_vector, words, WORDS, indices, NULL, SHMEM_CMP_EQ,          \
                   wanted) == 0);                                                                  \
        /* of nothing, all is true and none is found */                                            \
        WAIT(TYPENAME, wait_until_all, words, WORDS, none, SHMEM_CMP_GT, 0);                       \
        WAIT(TYPENAME, wait_until_all_vector, words, WORDS, none, SHMEM_CMP_GT, wanted);           \
        WAIT(TYPENAME, wait_until_all, words, 0, NULL, SHMEM_CMP_GT, 0);                           \
        CHECK(WAIT(TYPENAME, wait_until_any, words, WORDS, none, SHMEM_CMP_EQ, 0) == SIZE_MAX);    \
        CHECK(WAIT(TYPENAME, wait_until_any_vector, words, 0, NULL, SHMEM_CMP_EQ, wanted) ==       \
              SIZE_MAX);                                                                           \
        CHECK(WAIT(TYPENAME, wait_until_some, words, WORDS, indices, none, SHMEM_CMP_EQ, 0) == 0); \
        CHECK(WAIT(TYPENAME, wait_until_some_vector, words, WORDS, indices, none, SHMEM_CMP_LT,    \
                   wanted) == 0);                                                                  \
        CHECK(WAIT(TYPENAME, test_all, words, WORDS, none, SHMEM_CMP_GT, 0) == 1);                 \
        CHECK(WAIT(TYPENAME, test_all_vector, words, 0, NULL, SHMEM_CMP_GT, wanted) == 1);         \
        CHECK(WAIT(TYPENAME, test_any, words, WORDS, none, SHMEM_CMP_EQ, 0) == SIZE_MAX);          \
        CHECK(WAIT(TYPENAME, test_some, words, WORDS, indices, none, SHMEM_CMP_EQ, 0) == 0);       \
        shmem_barrier_all();                                                                       \
        /* every comparison */                                                                     \
        SEND(TYPENAME, T, 7);                                                                      \
        WAIT(TYPENAME, wait_until, words, SHMEM_CMP_NE, 0);                                        \
        WAIT(TYPENAME, wait_until, words, SHMEM_CMP_EQ, 7);                                        \
        WAIT(TYPENAME, wait_until, words, SHMEM_CMP_GT, 6);                                        \
        WAIT(TYPENAME, wait_until, words, SHMEM_CMP_GE, 7);                                        \
        WAIT(TYPENAME, wait_until, words, SHMEM_CMP_LT, 8);                                        \
        WAIT(TYPENAME, wait_until, words, SHMEM_CMP_LE, 7);                                        \
        CHECK(*words == 7);                                                                        \
        CHECK(WAIT(TYPENAME, test, words, SHMEM_CMP_GE, 8) == 0);                                  \
        CHECK(WAIT(TYPENAME, test, words, SHMEM_CMP_LT, 7) == 0);                                  \
        WAIT(TYPENAME, wait_until_all, words, WORDS, NULL, SHMEM_CMP_EQ, 7);                       \
        CHECK(words[1] == 7 && words[WORDS - 1] == 7);                                             \
        CHECK(WAIT(TYPENAME, test_all, words, WORDS, NULL, SHMEM_CMP_EQ, 7) == 1);                 \
        CHECK(WAIT(TYPENAME, test_any, words, WORDS, skip, SHMEM_CMP_EQ, 7) != 1);                 \
        CHECK(WAIT(TYPENAME, test_some, words, WORDS, indices, skip, SHMEM_CMP_EQ, 7) ==           \
              WORDS - 1);                                                                          \
        shmem_barrier_all();                                                                       \
        /* negative numbers, and large ones, are ordered as their type has it */                   \
        SEND(TYPENAME, T, (T)0 - (T)1);                                                            \
        WAIT(TYPENAME, wait_until_all, words, WORDS, NULL, SHMEM_CMP_NE, 7);                       \
        CHECK(WAIT(TYPENAME, test, words, SHMEM_CMP_GT, 7) == ((T)0 - (T)1 > (T)7));               \
        shmem_barrier_all();                                                                       \
        /* one after the other, each once */                                                       \
        SEND(TYPENAME, T, 30);                                                                     \
        for (int i = 0; i < WORDS; i++) {                                                          \
            which = WAIT(TYPENAME, wait_until_any, words, WORDS, seen, SHMEM_CMP_EQ, 30);          \
            CHECK(which < WORDS && !seen[which] && words[which] == 30);                            \
            seen[which % WORDS] = 1;                                                               \
        }                                                                                          \
        shmem_barrier_all();                                                                       \
        SEND(TYPENAME, T, 40);                                                                     \
        memset(seen, 0, sizeof seen);                                                              \
        for (size_t count = 0; count < WORDS; count += found) {                                    \
            found = WAIT(TYPENAME, wait_until_some, words, WORDS, indices, seen, SHMEM_CMP_EQ, 40);\
            CHECK(found >= 1 && found <= WORDS - count);                                           \
            for (size_t i = 0; i < found; i++) {                                                   \
                CHECK(indices[i] < WORDS && !seen[indices[i]]);                                    \
                seen[indices[i] % WORDS] = 1;                                                      \
            }                                                                                      \
        }                                                                                          \
        shmem_barrier_all();                                                                       \
        /* each word with a value of its own */                                                    \
        for (int i = 0; i < WORDS; i++)                                                            \
            shmem_##TYPENAME##_atomic_set(&words[i], (T)(20 + i), right);                          \
        memset(seen, 0, sizeof seen);                                                              \
        which = WAIT(TYPENAME, wait_until_any_vector, words, WORDS, skip, SHMEM_CMP_EQ, wanted);   \
        CHECK(which < WORDS && which != 1 && words[which] == wanted[which]);                       \
        found = WAIT(TYPENAME, wait_until_some_vector, words, WORDS, indices, skip, SHMEM_CMP_EQ,  \
                     wanted);                                                                      \
        CHECK(found >= 1 && found <= WORDS - 1);                                                   \
        WAIT(TYPENAME, wait_until_all_vector, words, WORDS, NULL, SHMEM_CMP_EQ, wanted);           \
        for (int i = 0; i < WORDS; i++)                                                            \
            CHECK(words[i] == (T)(20 + i));                                                        \
        CHECK(WAIT(TYPENAME, test_all_vector, words, WORDS, NULL, SHMEM_CMP_EQ, wanted) == 1);     \
        CHECK(WAIT(TYPENAME, test_any_vector, words, WORDS, skip, SHMEM_CMP_EQ, wanted) != 1);     \
        CHECK(WAIT(TYPENAME, test_some_vector, words, WORDS, indices, NULL, SHMEM_CMP_EQ,          \
                   wanted) == WORDS);                                                              \
        shmem_barrier_all();                                                                       \
    }
STD12(WAITING_TEST)
#undef WAITING_TEST

#define RUN(TYPENAME, T) NAME(TYPENAME)();
static void NAME(all)(void)
{
    STD12(RUN)
}
#undef RUN
#undef SEND
#undef WORDS
