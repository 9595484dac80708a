/* Waiting for volatile objects, as programs declare them that others write. Compiles as C and C++. */
#include <shmem.h>
#include <stdio.h>

static volatile int flag, flags[2];
static volatile unsigned long long wide;
static volatile long word;
static volatile short narrow;
static volatile uint64_t signal_;
static volatile long lock_;

static int wait_for_all(void)
{
    int status[2] = {0, 0}, values[2] = {1, 1}, good = 1;
    size_t indices[2];
    shmem_int_wait_until(&flag, SHMEM_CMP_EQ, 1);
    good &= shmem_int_test(&flag, SHMEM_CMP_EQ, 1);
    shmem_int_wait_until_all(flags, 2, status, SHMEM_CMP_EQ, 1);
    good &= shmem_int_wait_until_any(flags, 2, status, SHMEM_CMP_EQ, 1) < 2;
    good &= shmem_int_wait_until_some(flags, 2, indices, status, SHMEM_CMP_EQ, 1) == 2;
    shmem_int_wait_until_all_vector(flags, 2, status, SHMEM_CMP_EQ, values);
    good &= shmem_int_wait_until_any_vector(flags, 2, status, SHMEM_CMP_EQ, values) < 2;
    good &= shmem_int_wait_until_some_vector(flags, 2, indices, status, SHMEM_CMP_EQ, values) == 2;
    good &= shmem_int_test_all(flags, 2, status, SHMEM_CMP_EQ, 1);
    good &= shmem_int_test_any(flags, 2, status, SHMEM_CMP_EQ, 1) < 2;
    good &= shmem_int_test_some(flags, 2, indices, status, SHMEM_CMP_EQ, 1) == 2;
    good &= shmem_int_test_all_vector(flags, 2, status, SHMEM_CMP_EQ, values);
    good &= shmem_int_test_any_vector(flags, 2, status, SHMEM_CMP_EQ, values) < 2;
    good &= shmem_int_test_some_vector(flags, 2, indices, status, SHMEM_CMP_EQ, values) == 2;
    shmem_ulonglong_wait_until(&wide, SHMEM_CMP_EQ, 1);
    shmem_short_wait_until(&narrow, SHMEM_CMP_EQ, 1);
    good &= shmem_signal_wait_until(&signal_, SHMEM_CMP_EQ, 1) == 1;
    good &= shmem_signal_fetch(&signal_) == 1;
    shmem_long_wait(&word, 0);
    shmem_wait(&word, 0);
    good &= word == 1;
    shmem_set_lock(&lock_);
    shmem_clear_lock(&lock_);
    if (shmem_test_lock(&lock_) == 0)
        shmem_clear_lock(&lock_);
    return good;
}

static void set_all(int pe)
{
    shmem_int_p((int *)&flag, 1, pe);
    shmem_int_p((int *)&flags[0], 1, pe);
    shmem_int_p((int *)&flags[1], 1, pe);
    shmem_ulonglong_p((unsigned long long *)&wide, 1, pe);
    shmem_short_p((short *)&narrow, 1, pe);
    shmem_uint64_p((uint64_t *)&signal_, 1, pe);
    shmem_long_p((long *)&word, 1, pe);
}
