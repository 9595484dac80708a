/* Who and how many, versions, what can be reached, direct pointers. */
#include "check.h"

#include <errno.h>

static long in_static_memory[4];
static const long constant = 1;
static _Thread_local long of_a_thread;

void setup(void)
{
    int major = 0, minor = 0, provided = -1, initialized = 0;
    char name[SHMEM_MAX_NAME_LEN];
    CHECK(me >= 0 && me < n);
    shmem_info_get_version(&major, &minor);
    CHECK(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION);
    CHECK(major == 1 && minor == 6);
    memset(name, 'x', sizeof name);
    shmem_info_get_name(name);
    CHECK(strcmp(name, SHMEM_VENDOR_STRING) == 0);
    shmem_query_thread(&provided);
    CHECK(provided == SHMEM_THREAD_MULTIPLE);
    CHECK(SHMEM_THREAD_SINGLE < SHMEM_THREAD_FUNNELED &&
          SHMEM_THREAD_FUNNELED < SHMEM_THREAD_SERIALIZED &&
          SHMEM_THREAD_SERIALIZED < SHMEM_THREAD_MULTIPLE);
    shmem_query_initialized(&initialized);
    CHECK(initialized);
    shmem_pcontrol(0);
    shmem_pcontrol(3, "anything", 4.0);

    long on_the_stack = 0, *on_the_heap = malloc(sizeof(long));
    long *symmetric = shmem_malloc(4 * sizeof(long));
    for (int pe = 0; pe < n; pe++) {
        CHECK(shmem_pe_accessible(pe) == 1);
        CHECK(shmem_addr_accessible(symmetric, pe) == 1);
        CHECK(shmem_addr_accessible(symmetric + 3, pe) == 1);
        CHECK(shmem_addr_accessible(in_static_memory, pe) == 1);
        CHECK(shmem_addr_accessible(&on_the_stack, pe) == 0);
        CHECK(shmem_addr_accessible(on_the_heap, pe) == 0);
        CHECK(shmem_addr_accessible(&constant, pe) == 0);
        CHECK(shmem_addr_accessible(&of_a_thread, pe) == 0);
        CHECK(shmem_addr_accessible(&errno, pe) == 0); /* of the C library */
        CHECK(shmem_ptr(&on_the_stack, pe) == NULL);
    }
    CHECK(shmem_pe_accessible(-1) == 0 && shmem_pe_accessible(n) == 0);
    CHECK(shmem_addr_accessible(symmetric, n) == 0);

    /* on this node memory can be read and written directly, static memory too */
    for (int i = 0; i < 4; i++)
        symmetric[i] = in_static_memory[i] = 10 * me + i;
    shmem_barrier_all();
    long *own = shmem_ptr(symmetric, me), *own_static = shmem_ptr(in_static_memory, me);
    CHECK(own != NULL && own_static != NULL);
    own[1] += 5; /* it may be another address, yet it is the same memory */
    own_static[2] += 5;
    CHECK(symmetric[1] == 10 * me + 6 && in_static_memory[2] == 10 * me + 7);
    int reached = 0;
    for (int r = 0; r < shmem_team_n_pes(SHMEM_TEAM_SHARED); r++) {
        int pe = shmem_team_translate_pe(SHMEM_TEAM_SHARED, r, SHMEM_TEAM_WORLD);
        long *theirs = shmem_ptr(symmetric, pe), *static_ = shmem_ptr(in_static_memory + 1, pe);
        CHECK(theirs != NULL && theirs[2] == 10 * pe + 2);
        CHECK(static_ != NULL && *static_ == 10 * pe + 1);
        CHECK(shmem_team_ptr(SHMEM_TEAM_SHARED, symmetric, r) == theirs);
        CHECK(shmem_team_ptr(SHMEM_TEAM_WORLD, symmetric, pe) == theirs);
        reached++;
    }
    int direct = 0;
    for (int pe = 0; pe < n; pe++)
        direct += shmem_ptr(symmetric, pe) != NULL;
    CHECK(direct == reached);
    CHECK(shmem_team_ptr(SHMEM_TEAM_INVALID, symmetric, 0) == NULL);
    shmem_barrier_all();
    long *next = shmem_ptr(symmetric, right);
    if (next)
        next[3] = 1000 + me; /* a store is as good as a put */
    else
        shmem_long_p(&symmetric[3], 1000 + me, right);
    shmem_barrier_all();
    CHECK(symmetric[3] == 1000 + left);
    shmem_free(symmetric);
    free(on_the_heap);
}
