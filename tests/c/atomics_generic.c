/* Atomics by the names that C11 chooses the type for. */
#include "check.h"

#define PARAMETERS void
#define ARGUMENTS
#define CALL(TYPENAME, routine, ...) shmem_##routine(__VA_ARGS__)
#define QUIET() shmem_quiet()
#define NAME(test) generic_##test
#include "bodies/atomics.h"

void atomics_generic(void) { generic_all(); }
