/* Every routine of the C library, with every type: one program that runs on many layouts. */
#include "check.h"

int me, n, left, right;
long checks, failures;

static void on_contexts(long options)
{
    shmem_ctx_t ctx;
    CHECK(shmem_ctx_create(options, &ctx) == 0);
    rma_on_context(ctx);
    sized_on_context(ctx);
    atomics_on_context(ctx);
    rma_generic_on_context(ctx);
    atomics_generic_on_context(ctx);
    shmem_ctx_destroy(ctx);
}

static void all_others(void)
{
    waiting();
    rma_generic();
    atomics_generic();
    waiting_generic();
    on_contexts(0);
    on_contexts(SHMEM_CTX_PRIVATE);
    teams();
    contexts();
    ordering();
    collectives_generic();
    deprecated();
}

/* With the argument `linking`, a selection for programs that are linked in another way, which have their variables at other
   addresses. */
int main(int argc, char **argv)
{
    int provided, initialized = 1;
    shmem_query_initialized(&initialized);
    CHECK(!initialized);
    CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0);
    CHECK(provided == SHMEM_THREAD_MULTIPLE);
    me = shmem_my_pe();
    n = shmem_n_pes();
    right = (me + 1) % n;
    left = (me + n - 1) % n;
    if (n > MOST_PES) {
        fprintf(stderr, "this program runs on at most %d PEs\n", MOST_PES);
        shmem_global_exit(2);
    }
    statics(); /* first: it looks at initial values */
    setup();
    memory();
    rma();
    sized();
    atomics();
    signals();
    collectives();
    active_sets();
    locks();
    if (argc < 2 || strcmp(argv[1], "linking") != 0)
        all_others();

    static long mine[2], all[2];
    mine[0] = checks;
    mine[1] = failures;
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, all, mine, 2);
    if (me == 0)
        printf("%ld checks, %ld failed on %d PEs\n", all[0], all[1], n);
    shmem_finalize();
    shmem_query_initialized(&initialized);
    return failures || initialized ? 1 : 0;
}
