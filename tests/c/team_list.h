/* The teams that collectives are tested on. */
#ifndef TEAM_LIST_H
#define TEAM_LIST_H

#include "check.h"

/* Calls `test` on the world, on the PEs of this node, on the PEs with odd and with even numbers, and on
 * all PEs in reverse order: on those that this PE is in. */
static void on_all_teams(void (*test)(shmem_team_t team, int rank, int size, const int *pe))
{
    shmem_team_t odd_or_even = SHMEM_TEAM_INVALID, reverse = SHMEM_TEAM_INVALID;
    shmem_team_t halves[2] = {SHMEM_TEAM_INVALID, SHMEM_TEAM_INVALID};
    for (int first = 0; first < 2 && first < n; first++)
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, first, 2, (n - first + 1) / 2, NULL, 0,
                                       &halves[first]) == 0);
    odd_or_even = halves[me % 2];
    CHECK(odd_or_even != SHMEM_TEAM_INVALID);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, NULL, 0, &reverse) == 0);
    shmem_team_t teams[] = {SHMEM_TEAM_WORLD, SHMEM_TEAM_SHARED, odd_or_even, reverse};
    for (int t = 0; t < 4; t++) {
        int size = shmem_team_n_pes(teams[t]), pe[MOST_PES];
        CHECK(size >= 1 && size <= n);
        for (int r = 0; r < size; r++)
            pe[r] = shmem_team_translate_pe(teams[t], r, SHMEM_TEAM_WORLD);
        test(teams[t], shmem_team_my_pe(teams[t]), size, pe);
    }
    shmem_team_destroy(odd_or_even);
    shmem_team_destroy(reverse);
    shmem_barrier_all();
}

#endif
