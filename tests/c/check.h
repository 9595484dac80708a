/* What the C tests share: counting checks, and who this PE is. */
#ifndef CHECK_H
#define CHECK_H

#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "types.h"

/* Most PEs that the tests run on: size of their static arrays. */
#define MOST_PES 16
/* Elements of most transfers. */
#define LEN 5

extern int me, n, left, right;
extern long checks, failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        checks++;                                                                                  \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            fprintf(stderr, "PE %d: %s:%d: %s: %s\n", me, __FILE__, __LINE__, __func__,            \
                    #condition);                                                                   \
        }                                                                                          \
    } while (0)

/* A value that fits every type and tells PEs and positions apart. */
#define VALUE(T, pe, i) ((T)(((pe) * 17 + (i) * 5 + 1) % 120))
/* A value that is negative, or large, now and then. */
#define MIXED(T, pe, i) ((T)(((pe) * 37 + (i) * 91) % 251 - 120))

/* Forgets what was in symmetric memory; nobody writes to it before everybody has. */
#define CLEAR(array) (memset((array), 0, sizeof(array)), shmem_sync_all())

/* The topics, each in a file. */
void setup(void);
void memory(void);
void statics(void);
void rma(void);
void rma_on_context(shmem_ctx_t ctx);
void rma_generic(void);
void rma_generic_on_context(shmem_ctx_t ctx);
void sized(void);
void sized_on_context(shmem_ctx_t ctx);
void atomics(void);
void atomics_on_context(shmem_ctx_t ctx);
void atomics_generic(void);
void atomics_generic_on_context(shmem_ctx_t ctx);
void signals(void);
void waiting(void);
void waiting_generic(void);
void teams(void);
void contexts(void);
void ordering(void);
void collectives(void);
void collectives_generic(void);
void active_sets(void);
void locks(void);
void deprecated(void);

#endif
