/* A job without a launcher: PE 0 makes the id and prints it, the others read it. Usage: by_id PE N */
#include <shmemx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print(const shmemx_uniqueid_t *id) {
    for (int i = 0; i < SHMEMX_UNIQUEID_BYTES; i++)
        printf("%02x", id->bytes[i]);
    printf("\n");
    fflush(stdout);
}

static int read_id(shmemx_uniqueid_t *id) {
    for (int i = 0; i < SHMEMX_UNIQUEID_BYTES; i++) {
        unsigned byte;
        if (scanf("%2x", &byte) != 1)
            return 1;
        id->bytes[i] = (unsigned char)byte;
    }
    return 0;
}

static long here = -1; /* symmetric: the library finds it in the program's file */

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int me = atoi(argv[1]), n = atoi(argv[2]), provided;
    shmemx_uniqueid_t id, nonsense;
    memset(&nonsense, 0, sizeof nonsense);
    if (shmemx_init_from_uniqueid(&nonsense, me, n, SHMEM_THREAD_SINGLE, &provided) == 0)
        return 3;
    if (me == 0) {
        if (shmemx_get_uniqueid(&id) != 0)
            return 4;
        print(&id);
    } else if (read_id(&id) != 0) {
        return 5;
    }
    if (shmemx_init_from_uniqueid(&id, -1, n, SHMEM_THREAD_SINGLE, NULL) == 0)
        return 6;
    if (shmemx_init_from_uniqueid(&id, me, n, SHMEM_THREAD_FUNNELED, &provided) != 0)
        return 7;
    if (shmem_my_pe() != me || shmem_n_pes() != n || provided < SHMEM_THREAD_FUNNELED)
        shmem_global_exit(8);
    long *there = shmem_calloc(1, sizeof *there);
    shmem_long_p(there, 100 + me, (me + 1) % n);
    shmem_long_p(&here, me, (me + 1) % n);
    shmem_barrier_all();
    int left = (me + n - 1) % n;
    if (*there != 100 + left || here != left)
        shmem_global_exit(9);
    shmem_free(there);
    shmem_finalize();
    printf("PE %d of %d: ok\n", me, n);
    return 0;
}
