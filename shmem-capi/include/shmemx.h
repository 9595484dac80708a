/* Made from the table in shmem-capi/table; UPDATE_DOCS=1 cargo test -p shmem-capi writes it anew. */
/* Extensions: there are none beyond OpenSHMEM 1.6. */
#ifndef SHMEMX_H
#define SHMEMX_H

#include <shmem.h>

#endif
