/* The symmetric heap. */
#include "check.h"

/* The same address in everybody's heap: what the others put there arrives. */
static void exchange(unsigned char *block, size_t size)
{
    CHECK(block != NULL);
    if (!block)
        return;
    memset(block, 0, size);
    shmem_barrier_all();
    unsigned char value = (unsigned char)(me + 1);
    shmem_putmem(block + size - 1, &value, 1, right);
    shmem_barrier_all();
    CHECK(block[size - 1] == left + 1);
}

void memory(void)
{
    unsigned char *a = shmem_malloc(1000);
    exchange(a, 1000);
    CHECK((uintptr_t)a % 16 == 0);
    unsigned char *b = shmem_calloc(1000, 3);
    CHECK(b && (b + 3000 <= a || a + 1000 <= b));
    for (int i = 0; b && i < 3000; i++)
        CHECK(b[i] == 0);
    exchange(b, 3000);
    for (size_t align = sizeof(void *); align <= 8 << 20; align *= 2) {
        unsigned char *c = shmem_align(align, 100);
        CHECK((uintptr_t)c % align == 0);
        exchange(c, 100);
        shmem_free(c);
    }
    /* what was written stays, larger or smaller */
    for (int i = 0; i < 1000; i++)
        a[i] = VALUE(unsigned char, me, i);
    a = shmem_realloc(a, 100000);
    CHECK(a != NULL);
    for (int i = 0; i < 1000; i++)
        CHECK(a[i] == VALUE(unsigned char, me, i));
    exchange(a + 1000, 99000);
    a = shmem_realloc(a, 10);
    for (int i = 0; i < 10; i++)
        CHECK(a[i] == VALUE(unsigned char, me, i));
    unsigned char *d = shmem_realloc(NULL, 50);
    exchange(d, 50);
    CHECK(shmem_realloc(d, 0) == NULL);
    long hints[] = {0, SHMEM_MALLOC_ATOMICS_REMOTE, SHMEM_MALLOC_SIGNAL_REMOTE,
                    SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE};
    for (int i = 0; i < 4; i++) {
        unsigned char *e = shmem_malloc_with_hints(64, hints[i]);
        exchange(e, 64);
        shmem_free(e);
    }
    /* nothing, and too much */
    CHECK(shmem_malloc(0) == NULL && shmem_calloc(0, 8) == NULL && shmem_calloc(8, 0) == NULL);
    CHECK(shmem_align(64, 0) == NULL && shmem_malloc_with_hints(0, 0) == NULL);
    shmem_free(NULL);
    CHECK(shmem_malloc(SIZE_MAX) == NULL && shmem_malloc(SIZE_MAX / 2) == NULL);
    CHECK(shmem_calloc(SIZE_MAX / 2, 4) == NULL);
    CHECK(shmem_realloc(a, SIZE_MAX / 2) == NULL);
    for (int i = 0; i < 10; i++)
        CHECK(a[i] == VALUE(unsigned char, me, i)); /* what could not grow is kept */
    shmem_free(a);
    shmem_free(b);
    /* what is freed can be had again, in any order */
    for (int round = 0; round < 3; round++) {
        void *blocks[20];
        for (int i = 0; i < 20; i++)
            CHECK((blocks[i] = shmem_malloc(1 << (i % 18))) != NULL);
        for (int i = 0; i < 20; i++)
            shmem_free(blocks[(i * 7 + round) % 20]);
    }
}
