/* large ALLOCATE: how much of the heap it takes; only some pages of it are touched. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 0) : 0;
    shmem_init();
    char *block = shmem_malloc(bytes);
    if (block == NULL)
        return 4;
    int me = shmem_my_pe(), n = shmem_n_pes();
    shmem_char_p(block + bytes - 1, (char)(me % 100), (me + 1) % n);
    shmem_barrier_all();
    int wrong = block[bytes - 1] != (me + n - 1) % n % 100;
    if (me == 0)
        printf("%zu bytes on each of %d PEs\n", bytes, n);
    shmem_finalize();
    return wrong;
}
