/* Atomics on a context, by their typed names. */
#include "check.h"

#define PARAMETERS shmem_ctx_t ctx
#define ARGUMENTS ctx
#define CALL(TYPENAME, routine, ...) shmem_ctx_##TYPENAME##_##routine(ctx, __VA_ARGS__)
#define QUIET() shmem_ctx_quiet(ctx)
#define NAME(test) on_context_##test
#include "bodies/atomics.h"

void atomics_on_context(shmem_ctx_t ctx) { on_context_all(ctx); }
