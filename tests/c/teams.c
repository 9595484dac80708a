/* Teams: splitting, translating, configurations, ends. */
#include "check.h"

static void predefined(void)
{
    CHECK(shmem_team_my_pe(SHMEM_TEAM_WORLD) == me && shmem_team_n_pes(SHMEM_TEAM_WORLD) == n);
    int shared = shmem_team_n_pes(SHMEM_TEAM_SHARED), rank = shmem_team_my_pe(SHMEM_TEAM_SHARED);
    CHECK(shared >= 1 && shared <= n && rank >= 0 && rank < shared);
    CHECK(shmem_team_translate_pe(SHMEM_TEAM_SHARED, rank, SHMEM_TEAM_WORLD) == me);
    CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, me, SHMEM_TEAM_SHARED) == rank);
    CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, right, SHMEM_TEAM_WORLD) == right);
    CHECK(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1 && shmem_team_n_pes(SHMEM_TEAM_INVALID) == -1);
    CHECK(shmem_team_translate_pe(SHMEM_TEAM_INVALID, 0, SHMEM_TEAM_WORLD) == -1);
    CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, 0, SHMEM_TEAM_INVALID) == -1);
    shmem_team_destroy(SHMEM_TEAM_INVALID);
    CHECK(SHMEM_TEAM_WORLD != SHMEM_TEAM_SHARED && SHMEM_TEAM_WORLD != SHMEM_TEAM_INVALID);
}

/* Every way to choose PEs with a start and a stride. */
static void strided(void)
{
    for (int start = 0; start < n; start++)
        for (int stride = -2; stride <= 3; stride++) {
            int size = 1;
            if (stride != 0)
                for (int next = start + stride; next >= 0 && next < n; next += stride)
                    size++;
            shmem_team_t team = SHMEM_TEAM_WORLD;
            CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, start, stride, size, NULL, 0, &team) == 0);
            int rank = -1;
            for (int r = 0; r < size; r++)
                if (start + r * stride == me)
                    rank = r;
            CHECK((team != SHMEM_TEAM_INVALID) == (rank >= 0));
            CHECK(shmem_team_my_pe(team) == rank);
            if (rank < 0)
                continue;
            CHECK(shmem_team_n_pes(team) == size);
            for (int r = 0; r < size; r++) {
                CHECK(shmem_team_translate_pe(team, r, SHMEM_TEAM_WORLD) == start + r * stride);
                CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, start + r * stride, team) == r);
            }
            CHECK(shmem_team_translate_pe(team, size, SHMEM_TEAM_WORLD) == -1);
            CHECK(shmem_team_sync(team) == 0);
            shmem_team_destroy(team);
        }
    shmem_barrier_all();
}

static void nonsense(void)
{
    const int wrong[][3] = {{-1, 1, 1}, {0, 1, 0}, {0, 1, -1}, {n, 1, 1}, {0, 1, n + 1}, {0, n, 2}, {0, -1, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        shmem_team_t team = SHMEM_TEAM_WORLD;
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, wrong[i][0], wrong[i][1], wrong[i][2], NULL, 0,
                                       &team) != 0);
        CHECK(team == SHMEM_TEAM_INVALID);
    }
    shmem_team_t x = SHMEM_TEAM_WORLD, y = SHMEM_TEAM_WORLD;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, NULL, 0, &x) != 0);
    CHECK(x == SHMEM_TEAM_INVALID);
    x = SHMEM_TEAM_WORLD;
    CHECK(shmem_team_split_2d(SHMEM_TEAM_INVALID, 1, NULL, 0, &x, NULL, 0, &y) != 0);
    CHECK(x == SHMEM_TEAM_INVALID && y == SHMEM_TEAM_INVALID);
    shmem_barrier_all();
}

static void grids(void)
{
    for (int range = 1; range <= n + 1; range++) {
        shmem_team_t x = SHMEM_TEAM_INVALID, y = SHMEM_TEAM_INVALID;
        CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, range, NULL, 0, &x, NULL, 0, &y) == 0);
        int width = range < n ? range : n, row = me / width, column = me % width;
        int in_row = n - row * width < width ? n - row * width : width;
        int in_column = (n - column + width - 1) / width;
        CHECK(shmem_team_my_pe(x) == column && shmem_team_n_pes(x) == in_row);
        CHECK(shmem_team_my_pe(y) == row && shmem_team_n_pes(y) == in_column);
        CHECK(shmem_team_translate_pe(x, 0, SHMEM_TEAM_WORLD) == row * width);
        CHECK(shmem_team_translate_pe(y, in_column - 1, SHMEM_TEAM_WORLD) == (in_column - 1) * width + column);
        static long sum_from, sum_to;
        sum_from = me;
        CHECK(shmem_long_sum_reduce(x, &sum_to, &sum_from, 1) == 0);
        long sum = 0;
        for (int r = 0; r < in_row; r++)
            sum += row * width + r;
        CHECK(sum_to == sum);
        CHECK(shmem_long_max_reduce(y, &sum_to, &sum_from, 1) == 0);
        CHECK(sum_to == (in_column - 1) * width + column);
        shmem_team_destroy(x);
        shmem_team_destroy(y);
    }
}

/* A part of a part, and its configuration. */
static void nested(void)
{
    shmem_team_config_t config = {.num_contexts = 2}, got = {.num_contexts = -1};
    shmem_team_t upper = SHMEM_TEAM_INVALID, last = SHMEM_TEAM_INVALID;
    int start = n / 2, size = n - start;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, start, 1, size, &config, SHMEM_TEAM_NUM_CONTEXTS,
                                   &upper) == 0);
    if (upper != SHMEM_TEAM_INVALID) {
        CHECK(shmem_team_get_config(upper, SHMEM_TEAM_NUM_CONTEXTS, &got) == 0 && got.num_contexts == 2);
        CHECK(shmem_team_get_config(upper, 0, NULL) == 0);
        CHECK(shmem_team_split_strided(upper, size - 1, -1, size, NULL, 0, &last) == 0);
        CHECK(shmem_team_translate_pe(last, 0, SHMEM_TEAM_WORLD) == n - 1);
        CHECK(shmem_team_translate_pe(last, 0, upper) == size - 1);
        CHECK(shmem_team_get_config(last, SHMEM_TEAM_NUM_CONTEXTS, &got) == 0 && got.num_contexts == 0);
        CHECK(shmem_team_sync(last) == 0);
        shmem_team_destroy(last);
        shmem_team_destroy(upper);
    }
    CHECK(shmem_team_get_config(SHMEM_TEAM_INVALID, SHMEM_TEAM_NUM_CONTEXTS, &got) != 0);
    shmem_barrier_all();
}

/* Made and destroyed more often than there is room for. */
static void again(void)
{
    for (int i = 0; i < 200; i++) {
        shmem_team_t team;
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) == 0);
        shmem_team_destroy(team);
    }
}

void teams(void)
{
    predefined();
    strided();
    nonsense();
    grids();
    nested();
    again();
}
