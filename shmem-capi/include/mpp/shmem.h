/* Made from the table in shmem-capi/table; UPDATE_DOCS=1 cargo test -p shmem-capi writes it anew. */
/* Deprecated place of shmem.h. */
#include <shmem.h>
