/* Puts and gets by their typed names. */
#include "check.h"

#define PARAMETERS void
#define ARGUMENTS
#define CALL(TYPENAME, routine, ...) shmem_##TYPENAME##_##routine(__VA_ARGS__)
#define QUIET() shmem_quiet()
#define NAME(test) plain_##test
#include "bodies/rma.h"

void rma(void) { plain_all(); }
