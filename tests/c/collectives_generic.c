/* Collectives on teams by the names that C11 chooses the type for. */
#include "check.h"
#include "team_list.h"

#include <complex.h>

#define IMAGINARY I
#define COLLECT(TYPENAME, routine, ...) shmem_##routine(__VA_ARGS__)
#define NAME(test) generic_##test
#include "bodies/collectives.h"

void collectives_generic(void)
{
    on_all_teams(generic_all);
    CHECK(shmem_sync(SHMEM_TEAM_WORLD) == 0);
}
