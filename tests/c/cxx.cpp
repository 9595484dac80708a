// The same tests as C++: the headers compile, the names link.
#include "check.h"
#include "team_list.h"

#include <cstdint>

int me, n, left, right;
long checks, failures;

namespace plain {
#define PARAMETERS
#define ARGUMENTS
#define CALL(TYPENAME, routine, ...) shmem_##TYPENAME##_##routine(__VA_ARGS__)
#define QUIET() shmem_quiet()
#define NAME(test) test_##test
namespace rma {
#include "bodies/rma.h"
}
namespace atomics {
#include "bodies/atomics.h"
}
#undef PARAMETERS
#undef ARGUMENTS
#undef CALL
#undef QUIET
} // namespace plain

namespace on_context {
#define PARAMETERS shmem_ctx_t ctx
#define ARGUMENTS ctx
#define CALL(TYPENAME, routine, ...) shmem_ctx_##TYPENAME##_##routine(ctx, __VA_ARGS__)
#define QUIET() shmem_ctx_quiet(ctx)
namespace rma {
#include "bodies/rma.h"
}
namespace atomics {
#include "bodies/atomics.h"
}
#undef PARAMETERS
#undef ARGUMENTS
} // namespace on_context

namespace waits {
#define WAIT(TYPENAME, routine, ...) shmem_##TYPENAME##_##routine(__VA_ARGS__)
#include "bodies/waiting.h"
} // namespace waits

namespace on_teams {
#define IMAGINARY (__extension__ 1.0iF)
#define COLLECT(TYPENAME, routine, ...) shmem_##TYPENAME##_##routine(__VA_ARGS__)
#include "bodies/collectives.h"
} // namespace on_teams

// Constructors run before main, and see initial values; their objects are symmetric like all others.
struct Counter {
    long value;
    Counter() : value(42) {}
};
static Counter counter;

int main()
{
    shmem_init();
    me = shmem_my_pe();
    n = shmem_n_pes();
    right = (me + 1) % n;
    left = (me + n - 1) % n;
    CHECK(counter.value == 42);
    shmem_barrier_all();
    shmem_long_atomic_add(&counter.value, me + 1, right);
    shmem_barrier_all();
    CHECK(counter.value == 43 + left);
    plain::rma::test_all();
    plain::atomics::test_all();
    shmem_ctx_t ctx;
    CHECK(shmem_ctx_create(SHMEM_CTX_SERIALIZED, &ctx) == 0);
    on_context::rma::test_all(ctx);
    on_context::atomics::test_all(ctx);
    shmem_ctx_destroy(ctx);
    waits::test_all();
    on_all_teams(on_teams::test_all);

    static long mine[2], all[2];
    mine[0] = checks;
    mine[1] = failures;
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, all, mine, 2);
    if (me == 0)
        printf("%ld checks, %ld failed on %d PEs\n", all[0], all[1], n);
    shmem_finalize();
    return failures ? 1 : 0;
}
