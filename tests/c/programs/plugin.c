/* A plugin that has a copy of the library inside: it becomes a PE, and is none any more when it returns. */
#include <shmem.h>

int plugin(void)
{
    shmem_init();
    shmem_barrier_all();
    int me = shmem_my_pe();
    shmem_finalize();
    return me;
}
