#include "volatiles.h"

/* As bindings write them, for objects of either kind. */
template <typename T> static void wait_for_one(T *flag, void (*wait)(volatile T *, int, T))
{
    wait(flag, SHMEM_CMP_EQ, 1);
}

int main()
{
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes();
    set_all((me + 1) % n);
    int good = wait_for_all();
    wait_for_one(const_cast<int *>(&flag), shmem_int_wait_until);
    shmem_barrier_all();
    if (me == 0)
        printf("good %d\n", good);
    shmem_finalize();
    return !good;
}
