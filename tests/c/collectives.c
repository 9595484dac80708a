/* Collectives on teams by their typed names, and those that move bytes. */
#include "check.h"
#include "team_list.h"

#include <complex.h>

#define IMAGINARY I
#define COLLECT(TYPENAME, routine, ...) shmem_##TYPENAME##_##routine(__VA_ARGS__)
#define NAME(test) plain_##test
#include "bodies/collectives.h"

enum { BYTES = 7 };
static unsigned char bytes_from[3 * BYTES * MOST_PES], bytes_to[3 * BYTES * MOST_PES];

static void bytes(shmem_team_t team, int rank, int size, const int *pe)
{
    for (int i = 0; i < 3 * BYTES * MOST_PES; i++)
        bytes_from[i] = VALUE(unsigned char, me, i);
    EMPTY(bytes_to);
    CHECK(shmem_broadcastmem(team, bytes_to + 1, bytes_from + 2, BYTES, size - 1) == 0);
    for (int i = 0; i < BYTES; i++)
        CHECK(bytes_to[i + 1] == VALUE(unsigned char, pe[size - 1], i + 2));
    EMPTY(bytes_to);
    CHECK(shmem_fcollectmem(team, bytes_to, bytes_from + 1, BYTES) == 0);
    for (int i = 0; i < size * BYTES; i++)
        CHECK(bytes_to[i] == VALUE(unsigned char, pe[i / BYTES], i % BYTES + 1));
    EMPTY(bytes_to);
    CHECK(shmem_collectmem(team, bytes_to, bytes_from, (size_t)(size - rank) % 4) == 0);
    int at = 0;
    for (int r = 0; r < size; r++)
        for (int i = 0; i < (size - r) % 4; i++)
            CHECK(bytes_to[at++] == VALUE(unsigned char, pe[r], i));
    EMPTY(bytes_to);
    CHECK(shmem_alltoallmem(team, bytes_to, bytes_from, BYTES) == 0);
    for (int i = 0; i < size * BYTES; i++)
        CHECK(bytes_to[i] == VALUE(unsigned char, pe[i / BYTES], rank * BYTES + i % BYTES));
    EMPTY(bytes_to);
    CHECK(shmem_alltoallsmem(team, bytes_to, bytes_from, 3, 2, BYTES) == 0);
    for (int i = 0; i < 3 * size * BYTES; i++) {
        int byte = i / 3 % BYTES, r = i / 3 / BYTES;
        CHECK(bytes_to[i] ==
              (i % 3 ? 0 : VALUE(unsigned char, pe[r], 2 * (rank * BYTES + byte))));
    }
    shmem_team_sync(team);
}

/* So much data that no one message or buffer holds it. */
static void large(shmem_team_t team, int rank, int size, const int *pe)
{
    enum { COUNT = 70001 };
    static double from[COUNT], to[COUNT];
    (void)rank;
    for (int i = 0; i < COUNT; i++)
        from[i] = me + i;
    EMPTY(to);
    CHECK(shmem_double_sum_reduce(team, to, from, COUNT) == 0);
    double sum = 0;
    for (int r = 0; r < size; r++)
        sum += pe[r];
    long wrong = 0;
    for (int i = 0; i < COUNT; i++)
        wrong += to[i] != sum + (double)size * i;
    CHECK(wrong == 0);
    EMPTY(to);
    CHECK(shmem_double_broadcast(team, to, from, COUNT, size - 1) == 0);
    wrong = 0;
    for (int i = 0; i < COUNT; i++)
        wrong += to[i] != pe[size - 1] + i;
    CHECK(wrong == 0);
    /* nothing at all */
    CHECK(shmem_double_sum_reduce(team, NULL, NULL, 0) == 0);
    CHECK(shmem_double_broadcast(team, NULL, NULL, 0, 0) == 0);
    CHECK(shmem_double_fcollect(team, NULL, NULL, 0) == 0);
    CHECK(shmem_double_collect(team, NULL, NULL, 0) == 0);
    CHECK(shmem_double_alltoall(team, NULL, NULL, 0) == 0);
    CHECK(shmem_team_sync(team) == 0);
}

void collectives(void)
{
    on_all_teams(plain_all);
    on_all_teams(bytes);
    on_all_teams(large);
}
