#include "volatiles.h"

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes();
    set_all((me + 1) % n);
    int good = wait_for_all();
    /* the type-generic names */
    int status[2] = {0, 0}, values[2] = {1, 1};
    size_t indices[2];
    shmem_wait_until(&flag, SHMEM_CMP_EQ, 1);
    shmem_wait_until(&narrow, SHMEM_CMP_EQ, 1);
    shmem_wait_until(&wide, SHMEM_CMP_EQ, 1);
    good &= shmem_test(&word, SHMEM_CMP_EQ, 1);
    shmem_wait_until_all(flags, 2, status, SHMEM_CMP_EQ, 1);
    good &= shmem_wait_until_some(flags, 2, indices, status, SHMEM_CMP_EQ, 1) == 2;
    good &= shmem_test_any_vector(flags, 2, status, SHMEM_CMP_EQ, values) < 2;
    good &= shmem_test_all(flags, 2, status, SHMEM_CMP_EQ, 1);
    shmem_barrier_all();
    if (me == 0)
        printf("good %d\n", good);
    shmem_finalize();
    return !good;
}
