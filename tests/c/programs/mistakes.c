/* mistakes NAME: makes a mistake that the library should name. */
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long word, words[8];
static const long constant = 7;

int main(int argc, char **argv)
{
    const char *mistake = argc > 1 ? argv[1] : "";
    long on_the_stack[2] = {1, 2}, *private_ = malloc(64);
    if (!strcmp(mistake, "before-init"))
        shmem_long_p(&word, 1, 0);
    shmem_init();
    int n = shmem_n_pes();
    if (!strcmp(mistake, "stack"))
        shmem_long_put(on_the_stack, &word, 1, 0);
    else if (!strcmp(mistake, "malloc"))
        shmem_long_get(&word, private_, 1, 0);
    else if (!strcmp(mistake, "constant"))
        shmem_long_g(&constant, 0);
    else if (!strcmp(mistake, "null"))
        shmem_long_p(NULL, 1, 0);
    else if (!strcmp(mistake, "pe"))
        shmem_long_p(&word, 1, n);
    else if (!strcmp(mistake, "negative-pe"))
        shmem_long_atomic_inc(&word, -1);
    else if (!strcmp(mistake, "misaligned"))
        shmem_long_atomic_inc((long *)((char *)words + 3), 0);
    else if (!strcmp(mistake, "comparison"))
        shmem_long_wait_until(&word, 99, 0);
    else if (!strcmp(mistake, "free"))
        shmem_free(private_);
    else if (!strcmp(mistake, "twice")) {
        void *block = shmem_malloc(64);
        shmem_free(block);
        shmem_free(block);
    } else if (!strcmp(mistake, "stride"))
        shmem_long_iput(words, words, 1, 0, 2, 0);
    else if (!strcmp(mistake, "wide-stride"))
        /* the bytes between the elements are too many for a number */
        shmem_long_iput(words, words, 1, PTRDIFF_MAX / 2, 2, 0);
    else if (!strcmp(mistake, "exhausted")) {
        /* no mistake: the program is told by NULL, and the user by a message */
        void *block = shmem_malloc(1UL << 40);
        if (block == NULL && shmem_malloc(64) != NULL)
            printf("went on\n");
    } else if (!strcmp(mistake, "past-the-heap")) {
        char *block = shmem_malloc(64);
        shmem_putmem(block, block, (size_t)1 << 50, 0);
    } else
        fprintf(stderr, "no mistake is called %s\n", mistake);
    shmem_finalize();
    return 0;
}
