/* Waiting and testing by the names that C11 chooses the type for. */
#include "check.h"

#define WAIT(TYPENAME, routine, ...) shmem_##routine(__VA_ARGS__)
#define NAME(test) generic_##test
#include "bodies/waiting.h"

void waiting_generic(void) { generic_all(); }
