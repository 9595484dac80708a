/* Atomics on a context, by the names that C11 chooses the type for. */
#include "check.h"

#define PARAMETERS shmem_ctx_t ctx
#define ARGUMENTS ctx
#define CALL(TYPENAME, routine, ...) shmem_##routine(ctx, __VA_ARGS__)
#define QUIET() shmem_ctx_quiet(ctx)
#define NAME(test) generic_on_context_##test
#include "bodies/atomics.h"

void atomics_generic_on_context(shmem_ctx_t ctx) { generic_on_context_all(ctx); }
