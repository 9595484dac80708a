/* Made from the table in shmem-capi/table; UPDATE_DOCS=1 cargo test -p shmem-capi writes it anew. */
/* Extensions: what there is beyond OpenSHMEM 1.6. */
#ifndef SHMEMX_H
#define SHMEMX_H

#include <shmem.h>

#if defined(__cplusplus) && __cplusplus < 201103L && defined(__GNUC__)
#pragma GCC system_header
#endif

/* The id of a job without a launcher, a secret: bytes to hand on as they are, by whatever channel. Written as
   hexadecimal digits they are what SHMEM_UNIQUE_ID takes. */
#define SHMEMX_UNIQUEID_BYTES 128
typedef struct {
    unsigned char bytes[SHMEMX_UNIQUEID_BYTES];
} shmemx_uniqueid_t;

#ifdef __cplusplus
extern "C" {
#endif

/* Jobs without a launcher */
int shmemx_get_uniqueid(shmemx_uniqueid_t *id);
int shmemx_init_from_uniqueid(const shmemx_uniqueid_t *id, int my_pe, int n_pes, int requested, int *provided);

#ifdef __cplusplus
}
#endif

#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L


#endif

#endif
