/* Locks: one holder at a time, in static memory and in the heap. */
#include "check.h"

static long lock_word, guarded;

static void contended(long *lock)
{
    enum { ROUNDS = 20 };
    guarded = 0;
    shmem_barrier_all();
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 3 == 0) {
            while (shmem_test_lock(lock))
                ;
        } else {
            shmem_set_lock(lock);
        }
        long value = shmem_long_g(&guarded, 0);
        shmem_long_p(&guarded, value + 1, 0);
        shmem_clear_lock(lock); /* completes the put */
    }
    shmem_barrier_all();
    CHECK(shmem_long_g(&guarded, 0) == (long)n * ROUNDS);
    shmem_barrier_all();
}

void locks(void)
{
    contended(&lock_word);
    long *lock = shmem_calloc(1, sizeof(long));
    contended(lock);
    shmem_free(lock);
    /* who holds it keeps the others out */
    if (me == 0)
        CHECK(shmem_test_lock(&lock_word) == 0);
    shmem_barrier_all();
    if (me != 0)
        CHECK(shmem_test_lock(&lock_word) == 1);
    shmem_barrier_all();
    if (me == 0)
        shmem_clear_lock(&lock_word);
    shmem_barrier_all();
    CHECK(lock_word == 0 || me != 0);
}
