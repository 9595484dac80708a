/* Signals without data. */
#include "check.h"

static uint64_t signal_word;

void signals(void)
{
    shmem_ctx_t ctx;
    signal_word = 0;
    shmem_barrier_all();
    shmem_signal_set(&signal_word, 5, right);
    CHECK(shmem_signal_wait_until(&signal_word, SHMEM_CMP_EQ, 5) == 5);
    CHECK(shmem_signal_fetch(&signal_word) == 5);
    shmem_barrier_all();
    shmem_signal_add(&signal_word, 7, right);
    CHECK(shmem_signal_wait_until(&signal_word, SHMEM_CMP_GE, 6) == 12);
    shmem_barrier_all();
    CHECK(shmem_ctx_create(0, &ctx) == 0);
    shmem_ctx_signal_set(ctx, &signal_word, UINT64_MAX, right);
    CHECK(shmem_signal_wait_until(&signal_word, SHMEM_CMP_GT, UINT64_MAX - 1) == UINT64_MAX);
    shmem_ctx_quiet(ctx);
    shmem_barrier_all();
    shmem_ctx_signal_add(ctx, &signal_word, 3, right);
    CHECK(shmem_signal_wait_until(&signal_word, SHMEM_CMP_LT, UINT64_MAX) == 2);
    shmem_ctx_quiet(ctx);
    shmem_barrier_all();
    /* C11 chooses whether there is a context */
    shmem_signal_set(ctx, &signal_word, 30, right);
    shmem_signal_wait_until(&signal_word, SHMEM_CMP_EQ, 30);
    shmem_ctx_quiet(ctx);
    shmem_barrier_all();
    shmem_signal_add(ctx, &signal_word, 4, right);
    CHECK(shmem_signal_wait_until(&signal_word, SHMEM_CMP_NE, 30) == 34);
    shmem_ctx_destroy(ctx);
    shmem_barrier_all();
    /* all at once */
    signal_word = 0;
    shmem_barrier_all();
    for (int pe = 0; pe < n; pe++)
        shmem_signal_add(&signal_word, 1, pe);
    CHECK(shmem_signal_wait_until(&signal_word, SHMEM_CMP_GE, (uint64_t)n) == (uint64_t)n);
    shmem_barrier_all();
}
