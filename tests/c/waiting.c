/* Waiting and testing by their typed names. */
#include "check.h"

#define WAIT(TYPENAME, routine, ...) shmem_##TYPENAME##_##routine(__VA_ARGS__)
#define NAME(test) plain_##test
#include "bodies/waiting.h"

void waiting(void) { plain_all(); }
