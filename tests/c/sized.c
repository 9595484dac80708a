/* Puts and gets that are named by bits, or take bytes: with and without a context. */
#include "check.h"

static unsigned char sized_from[4 * LEN * 16] __attribute__((aligned(16)));
static unsigned char sized_to[4 * LEN * 16] __attribute__((aligned(16)));
static unsigned char sized_got[4 * LEN * 16] __attribute__((aligned(16)));
static uint64_t sized_signal;

#define PARAMETERS void
#define ARGUMENTS
#define SIZED(routine, BITS, suffix, ...) shmem_##routine##BITS##suffix(__VA_ARGS__)
#define QUIET() shmem_quiet()
#define NAME(test) plain_##test
#include "bodies/sized.h"

void sized(void) { plain_all(); }

#undef PARAMETERS
#undef ARGUMENTS
#undef SIZED
#undef QUIET
#undef NAME
#define PARAMETERS shmem_ctx_t ctx
#define ARGUMENTS ctx
#define SIZED(routine, BITS, suffix, ...) shmem_ctx_##routine##BITS##suffix(ctx, __VA_ARGS__)
#define QUIET() shmem_ctx_quiet(ctx)
#define NAME(test) on_context_##test
#include "bodies/sized.h"

void sized_on_context(shmem_ctx_t ctx) { on_context_all(ctx); }
